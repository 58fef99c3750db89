// The card's registers as the trace shows them: by address, with name, last value, who touched them
// when, and a bounded history. An address is a byte offset in the register space: BAR5 itself or
// the wider space behind the index windows; see Via.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "decoder/model/flat_index.h"
#include "decoder/model/roles.h"
#include "decoder/model/types.h"
#include "schemas/amd/registers.h"

namespace tg::model {

struct Sample {
  Stamp at;
  uint32_t value = 0;
  bool write = false;
};

// The first 16 and the latest 48 samples; a sample equal to the one before it (same value, same
// direction: polling) is only counted.
class History {
 public:
  void Add(const Sample& sample);
  uint64_t total() const { return total_; }
  // In order; `gap_after` is how many of them come before those that were dropped (all: none was).
  std::vector<Sample> All(size_t* gap_after = nullptr) const;

 private:
  static constexpr size_t kFirst = 16;
  static constexpr size_t kLast = 48;
  std::vector<Sample> first_;
  std::vector<Sample> last_;  // a ring once full
  size_t next_ = 0;
  uint64_t total_ = 0;
};

struct RegisterState {
  uint64_t address = 0;         // byte offset; for a register of another die | die << 34
  uint8_t bar = 5;              // NVIDIA's are in BAR0
  amd::RegisterHit hit;         // empty: no name
  std::string_view other_name;  // what is not in the AMD tables ("NV_PMC_BOOT_0", HDP flush)
  Role role = Role::kNone;
  uint8_t die = 0;
  Via via = Via::kDirect;  // of the latest access
  bool known = false;      // a value was seen (a read without an answer does not tell)
  uint32_t value = 0;      // the latest seen, read or written
  uint64_t reads = 0;      // answered ones, folded ones included
  uint64_t writes = 0;
  Sample last_read;   // valid if reads > 0
  Sample last_write;  // valid if writes > 0
  Stamp first;
  History history;

  std::string_view name() const { return hit ? hit.name() : other_name; }
  bool named() const { return !name().empty(); }
};

// A 64-bit value in two registers.
struct RegisterPair {
  std::string name;  // what the halves' names share
  const RegisterState* low = nullptr;
  const RegisterState* high = nullptr;
  uint64_t value() const { return low->value | static_cast<uint64_t>(high->value) << 32; }
};

class Registers {
 public:
  Registers();
  const amd::RegisterMap& map() const { return names_->map; }
  // Grows when the map is replaced (the discovery table was seen): caches of addresses are stale.
  uint64_t map_generation() const { return generation_; }

  // nullptr: never touched.
  const RegisterState* Find(uint64_t address) const;
  const RegisterState* Find(std::string_view name, uint8_t instance = 0) const;
  std::optional<uint32_t> Value(std::string_view name, uint8_t instance = 0) const;
  // Of a pair, by what stands before and after the half's mark: Value64("X_ADDR", "_LO32",
  // "_HI32").
  std::optional<uint64_t> Value64(std::string_view base, std::string_view low,
                                  std::string_view high, uint8_t instance = 0) const;

  // In the order of first touch. Pointers stay valid until the next access.
  const std::vector<RegisterState>& all() const { return states_; }
  std::vector<const RegisterState*> Sorted() const;  // by address
  std::vector<const RegisterState*> Unnamed() const;
  std::vector<RegisterPair> Pairs() const;
  uint64_t accesses() const { return accesses_; }
  uint64_t unnamed_accesses() const { return unnamed_accesses_; }
  bool full() const { return full_; }  // so many that further ones are not tracked

  // ---- for the device that feeds it ----
  void SetMap(amd::RegisterMap map);
  // The state of that register, made if need be; nullptr when full.
  RegisterState* Touch(uint64_t address, uint8_t bar, uint8_t die, Via via);
  void Record(RegisterState& state, const Sample& sample, uint64_t times, Stamp last);
  void SetOtherName(uint64_t address, std::string_view name, Role role);

 private:
  void Resolve(RegisterState& state) const;
  // All of a BAR of 1 MiB, and as many behind windows as a card of eight dies has.
  static constexpr size_t kMaxRegisters = (1u << 18) + (1u << 15);

  // Takes a millisecond to make, so that what is assumed is made once for all devices.
  struct Names {
    explicit Names(amd::RegisterMap m) : map(std::move(m)), roles(map) {}
    amd::RegisterMap map;
    RoleMap roles;
  };
  std::shared_ptr<const Names> names_;
  uint64_t generation_ = 0;
  std::vector<RegisterState> states_;
  FlatIndex index_;  // address | bar 0 flag -> position in states_
  struct OtherName {
    std::string_view name;
    Role role;
  };
  std::unordered_map<uint64_t, OtherName> other_names_;
  uint64_t accesses_ = 0;
  uint64_t unnamed_accesses_ = 0;
  bool full_ = false;
};

}  // namespace tg::model
