// Names and fields of registers, by address and by name.
//
// A register's dword index is bases[base index] + offset: the bases come from the card's own IP
// discovery table, offset and base index from the table of the module ("gc 11.0.0") that serves the
// block's version: same major, newest that is not newer. That is how tinygrad's AM driver chooses,
// and what the kernel's per-version headers say for the chips it accepts.
//
// Names are spelt as in the kernel's headers ("regSCRATCH_REG7", "mmMP1_SMN_C2PMSG_90"), fields in
// lower case. The tables hold the families that the AM driver uses (about 10,100 registers), not
// every register there is: an address without a name is normal in traces of other software.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schemas/amd/ip.h"
#include "schemas/amd/registers_data.h"

namespace tg::amd {

struct Field {
  std::string_view name;
  uint8_t lsb = 0;
  uint8_t msb = 0;
  constexpr uint64_t mask() const {
    return (msb - lsb >= 63 ? ~0ull : (1ull << (msb - lsb + 1)) - 1) << lsb;
  }
  constexpr uint64_t Get(uint64_t value) const { return (value & mask()) >> lsb; }
};

std::string_view NameOf(const RegisterDef& reg);
size_t FieldCount(const RegisterDef& reg);
Field FieldAt(const RegisterDef& reg, size_t index);  // index < FieldCount(reg)
std::optional<Field> FindField(const RegisterDef& reg, std::string_view name);
// Value of a field, or nothing if the register has none of that name.
std::optional<uint64_t> GetField(const RegisterDef& reg, std::string_view name, uint64_t value);
// `value` with the field replaced; unchanged if there is none of that name.
uint64_t SetField(const RegisterDef& reg, std::string_view name, uint64_t field,
                  uint64_t value = 0);
// "rb_enable=1 rb_size=22": the fields that are not zero, with the names of known values. Empty for
// zero, and for registers whose only field is the whole word.
std::string DescribeFields(const RegisterDef& reg, uint64_t value);

// The module that serves `version` of the block called `prefix` ("gc", "mmhub", "nbio", "nbif",
// "hdp", "osssys", "mp", "sdma"), or nullptr.
const data::Module* ChooseModule(std::string_view prefix, IpVersion version);

// What is at an address.
struct RegisterHit {
  const RegisterDef* reg = nullptr;
  const data::Module* module = nullptr;  // prefix "fixed": the same address in all cards
  uint16_t hw_id = 0;
  uint8_t instance = 0;
  explicit operator bool() const { return reg != nullptr; }
  std::string_view name() const { return reg ? NameOf(*reg) : std::string_view(); }
};

class RegisterMap {
 public:
  RegisterMap() : RegisterMap(std::span<const IpBlock>()) {}
  // From a discovery table. Blocks without bases or without a module are left out (problems() says
  // so). Harvested instances keep their names: software touches them all the same.
  explicit RegisterMap(std::span<const IpBlock> ips);

  // Before a discovery table is seen: the bases that gfx11 and gfx12 boards share, modules by PCI
  // device id (gfx11.0.0 when it is 0 or unknown).
  static RegisterMap Assumed(uint16_t pci_device = 0);
  static std::vector<IpBlock> AssumedIps(uint16_t pci_device = 0);
  // From a table of which only the beginning is known: blocks that are not in it are assumed.
  static RegisterMap FromPart(std::span<const IpBlock> ips);
  bool assumed() const { return assumed_; }

  // The register at a byte offset of BAR5 (or of the wider space behind the index windows). The
  // offset of any byte of the register will do. No allocation.
  RegisterHit Lookup(uint64_t byte_offset) const;
  // All names of that address, the shown one first.
  std::vector<RegisterHit> Aliases(uint64_t byte_offset) const;

  // Byte offset of a register; `name` with or without "reg"/"mm" in front. No allocation.
  std::optional<uint64_t> Find(std::string_view name, uint8_t instance = 0) const;
  const RegisterDef* FindDef(std::string_view name) const;
  // Instances of the block that has this register.
  std::vector<uint8_t> InstancesOf(std::string_view name) const;

  // Version of a block as tinygrad takes it (the last entry of the table), or nothing.
  std::optional<IpVersion> Version(uint16_t hw_id) const;
  const std::vector<std::string>& problems() const { return problems_; }
  size_t size() const { return entries_.size(); }
  // Every name at every address, by address: fn(byte offset, hit).
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (const Entry& entry : entries_) fn(entry.dword * 4, Hit(entry));
  }

 private:
  struct Instance {
    uint8_t number;
    std::vector<uint64_t> bases;
  };
  struct Attached {
    const data::Module* module;
    uint16_t hw_id;
    std::vector<Instance> instances;
  };
  struct Entry {
    uint64_t dword;
    const RegisterDef* reg;
    uint8_t rank;  // the lowest is shown
    uint8_t attached;
    uint8_t instance;
  };
  struct Found {
    const RegisterDef* reg = nullptr;
    const Attached* attached = nullptr;
  };
  void AttachBlock(std::string_view prefix, uint16_t hw_id, std::span<const IpBlock> ips);
  void AttachModule(const data::Module& module, uint16_t hw_id, std::vector<Instance> instances);
  void BuildIndex();
  Found FindByName(std::string_view name) const;
  RegisterHit Hit(const Entry& entry) const;
  const Entry* First(uint64_t dword) const;

  bool assumed_ = false;
  std::vector<Attached> attached_;
  std::vector<Entry> entries_;     // by address, then rank
  std::vector<uint32_t> buckets_;  // open addressing: entry index + 1 of the first at an address
  std::vector<std::pair<uint16_t, IpVersion>> versions_;
  std::vector<std::string> problems_;
};

// Fixed addresses (dwords): the VRAM window and the memory size, readable before anything is known.
inline constexpr uint64_t kMmIndexByte = 0;
inline constexpr uint64_t kMmDataByte = 4;
inline constexpr uint64_t kMmIndexHiByte = 24;
inline constexpr uint64_t kConfigMemsizeByte = 0xde3 * 4;

}  // namespace tg::amd
