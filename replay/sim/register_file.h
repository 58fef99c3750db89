// The card's registers: one value each, with behaviour where the driver expects some.
//
// Addressed by dword index, in the whole register space (BAR5 shows its beginning; the index/data
// windows reach the rest). A register that nobody gave a behaviour, a reset value or a first write
// reads as 0 and is counted, so that gaps in the model show in the report.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schemas/amd/registers.h"

namespace tg::sim {

class RegisterFile;

// One register, for the block that gives it its behaviour. Empty (reads 0, ignores writes) if the
// card has none of that name.
class Register {
 public:
  Register() = default;
  explicit operator bool() const { return slot_ != nullptr; }
  uint32_t value() const;
  void Set(uint32_t value);
  void Reset();  // to its reset value
  uint32_t Field(std::string_view name) const;
  void SetField(std::string_view name, uint32_t value);
  uint32_t dword() const { return dword_; }

 private:
  friend class RegisterFile;
  struct Slot;
  Slot* slot_ = nullptr;
  const amd::RegisterDef* def_ = nullptr;
  uint32_t dword_ = 0;
};

class RegisterFile {
 public:
  // A behaviour: on a read, what the client sees for the stored value; on a write, what follows
  // once the value is stored.
  using ReadHook = std::function<uint32_t(uint32_t stored)>;
  using WriteHook = std::function<void(uint32_t value)>;

  explicit RegisterFile(std::span<const amd::IpBlock> ips);
  ~RegisterFile();

  // What the client sees. `dword` may be anything.
  uint32_t Read(uint64_t dword);
  void Write(uint64_t dword, uint32_t value);

  // The same for an engine that executes a packet. Hooks run only where SafeForEngines said so:
  // most change the state of the very engine that is at work.
  uint32_t EngineRead(uint64_t dword);
  void EngineWrite(uint64_t dword, uint32_t value);
  void SafeForEngines(Register reg);

  // Modelled registers. A name the card does not have is remembered in missing().
  Register Define(std::string_view name, uint32_t reset = 0);
  Register DefineAt(uint32_t dword, uint32_t reset = 0);
  void OnRead(Register reg, ReadHook hook);
  void OnWrite(Register reg, WriteHook hook);
  // The description of a register, nullptr if the card has none of that name.
  const amd::RegisterDef* Def(std::string_view name) const { return map_.FindDef(name); }
  std::string_view NameAt(uint64_t dword) const { return map_.Lookup(dword * 4).name(); }

  // Reset values everywhere. Hooks are not called.
  void Reset();

  struct Gap {
    uint64_t dword;
    std::string name;  // empty: not in the tables
    uint64_t reads;
    uint64_t writes;
  };
  std::vector<Gap> Gaps() const;                          // ascending addresses
  uint64_t gaps_not_listed() const { return overflow_; }  // accesses beyond kMaxGaps addresses
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  static constexpr size_t kMaxGaps = 4096;
  struct Unknown {
    uint64_t reads = 0;
    uint64_t writes = 0;
  };
  Register::Slot* Find(uint64_t dword);
  Register::Slot* Make(uint64_t dword);
  Register::Slot* Store(uint64_t dword, uint32_t value);
  Unknown* CountUnknown(uint64_t dword);

  amd::RegisterMap map_;
  std::unordered_map<uint64_t, std::unique_ptr<Register::Slot>> slots_;
  std::unordered_map<uint64_t, Unknown> unknown_;
  uint64_t overflow_ = 0;
  std::vector<std::string> missing_;
};

}  // namespace tg::sim
