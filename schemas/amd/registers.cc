#include "schemas/amd/registers.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace tg::amd {
namespace {

// A card with more instances of one block than this does not exist (MI300X: 16 SDMAs).
constexpr size_t kMaxInstances = 64;

std::string_view PoolName(const char* pool, const uint32_t* offsets, uint16_t index) {
  return {pool + offsets[index], offsets[index + 1] - offsets[index]};
}

std::optional<uint16_t> NameIndex(std::string_view name) {
  size_t low = 0;
  size_t high = data::kNameCount;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const int order =
        PoolName(data::kNamePool, data::kNameOffset, static_cast<uint16_t>(middle)).compare(name);
    if (order == 0) return static_cast<uint16_t>(middle);
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return std::nullopt;
}

// `name` as the tables spell it: as it is, or with "reg" or "mm" in front.
std::array<std::optional<uint16_t>, 3> NameIndices(std::string_view name) {
  constexpr size_t kLongest = 128;
  std::array<std::optional<uint16_t>, 3> found{NameIndex(name), std::nullopt, std::nullopt};
  if (name.size() + 3 > kLongest) return found;
  size_t i = 1;
  for (const std::string_view prefix : {"reg", "mm"}) {
    char spelt[kLongest];
    std::memcpy(spelt, prefix.data(), prefix.size());
    std::memcpy(spelt + prefix.size(), name.data(), name.size());
    found[i++] = NameIndex({spelt, prefix.size() + name.size()});
  }
  return found;
}

const RegisterDef* FindInModule(const data::Module& module, uint16_t name) {
  const RegisterDef* begin = data::kRegisters + module.first;
  const RegisterDef* end = begin + module.count;
  const RegisterDef* found = std::lower_bound(
      begin, end, name, [](const RegisterDef& r, uint16_t n) { return r.name < n; });
  return found != end && found->name == name ? found : nullptr;
}

// How far down the list of names for an address this one comes. The SMU mailbox is spoken of by the
// names of mp 11.0.0 on MP1's bases, the PSP mailbox by those of MP0's own module.
uint8_t Rank(const RegisterDef& reg, uint16_t hw_id, uint8_t order) {
  uint8_t rank = order;
  if (reg.alias != 0) rank += 64;
  const std::string_view name = NameOf(reg);
  if ((hw_id == kHwMp0 && name.starts_with("regMP1_")) ||
      (hw_id == kHwMp1 && name.starts_with("mmMP0_"))) {
    rank += 32;
  }
  return rank;
}

// Bases that boards with gfx11 and gfx12 share (kernel: the ip_offset headers; tinygrad's packets
// are built on the GC and NBIO ones). Unused places are 0.
struct AssumedBlock {
  uint16_t hw_id;
  std::array<uint64_t, 6> bases;
};
constexpr AssumedBlock kAssumedBases[] = {
    {kHwGc, {0x1260, 0xA000, 0x1C000, 0x2402C00}},
    {kHwSdma0, {0x1260, 0xA000, 0x1C000, 0x2402C00}},
    {kHwMmhub, {0x1A000, 0x2408800}},
    {kHwNbif, {0x0, 0x14, 0xD20, 0x10400, 0x241B000, 0x4040000}},
    {kHwMp0, {0x16000, 0xDC0000, 0xE00000, 0xE40000, 0x243FC00}},
    {kHwMp1, {0x16000, 0xDC0000, 0xE00000, 0xE40000, 0x243FC00}},
    {kHwHdp, {0xF20, 0x240A400}},
    {kHwOsssys, {0x10A0, 0x240A000}},
};
// PCI device -> versions, in the order of kAssumedBases.
struct AssumedChip {
  uint16_t pci_device;
  std::array<IpVersion, 8> versions;
};
constexpr AssumedChip kAssumedChips[] = {
    {0x744c,
     {{{11, 0, 0}, {6, 0, 0}, {3, 0, 0}, {4, 3, 0}, {13, 0, 0}, {13, 0, 0}, {6, 0, 0}, {6, 0, 0}}}},
    {0x7480,
     {{{11, 0, 2}, {6, 0, 2}, {3, 0, 2}, {4, 3, 0}, {13, 0, 7}, {13, 0, 7}, {6, 0, 0}, {6, 0, 0}}}},
    {0x7550,
     {{{12, 0, 1}, {7, 0, 1}, {4, 1, 0}, {6, 3, 1}, {14, 0, 3}, {14, 0, 3}, {7, 0, 0}, {7, 0, 0}}}},
    {0x7551,
     {{{12, 0, 1}, {7, 0, 1}, {4, 1, 0}, {6, 3, 1}, {14, 0, 3}, {14, 0, 3}, {7, 0, 0}, {7, 0, 0}}}},
    {0x7590,
     {{{12, 0, 0}, {7, 0, 0}, {4, 1, 0}, {6, 3, 1}, {14, 0, 2}, {14, 0, 2}, {7, 0, 0}, {7, 0, 0}}}},
    {0x74a1,
     {{{9, 4, 3}, {4, 4, 2}, {1, 8, 0}, {7, 9, 0}, {13, 0, 6}, {13, 0, 6}, {4, 4, 2}, {4, 4, 2}}}},
    {0x75a0,
     {{{9, 5, 0},
       {4, 4, 4},
       {1, 8, 1},
       {7, 9, 1},
       {13, 0, 12},
       {13, 0, 12},
       {4, 4, 5},
       {4, 4, 5}}}},
    {0x75a8,
     {{{9, 5, 0},
       {4, 4, 4},
       {1, 8, 1},
       {7, 9, 1},
       {13, 0, 12},
       {13, 0, 12},
       {4, 4, 5},
       {4, 4, 5}}}},
};
// gfx9 differs only here, as far as tinygrad's fixed packet bases tell.
constexpr std::array<uint64_t, 6> kAssumedGcGfx9 = {0x2000, 0xA000};

// Names of field values, where one is worth a look in a report.
struct ValueName {
  std::string_view field;
  uint64_t value;
  std::string_view name;
};
constexpr ValueName kValueNames[] = {
    {"address_mode", 0, "32-bit"},    {"address_mode", 1, "64-bit"},
    {"alignment_mode", 0, "dword"},   {"alignment_mode", 1, "dword strict"},
    {"alignment_mode", 2, "strict"},  {"alignment_mode", 3, "unaligned"},
    {"mc_space", 1, "GPU virtual"},   {"mc_space", 4, "frame buffer"},
    {"dequeue_req", 1, "drain pipe"}, {"dequeue_req", 2, "reset waves"},
    {"flush_type", 0, "legacy"},      {"flush_type", 1, "light"},
    {"flush_type", 2, "heavy"},
};

}  // namespace

std::string_view NameOf(const RegisterDef& reg) {
  return PoolName(data::kNamePool, data::kNameOffset, reg.name);
}

size_t FieldCount(const RegisterDef& reg) {
  return data::kFieldSetStart[reg.fields + 1] - data::kFieldSetStart[reg.fields];
}

Field FieldAt(const RegisterDef& reg, size_t index) {
  const data::FieldDef& f = data::kFields[data::kFieldSetStart[reg.fields] + index];
  return {PoolName(data::kFieldNamePool, data::kFieldNameOffset, f.name), f.lsb, f.msb};
}

std::optional<Field> FindField(const RegisterDef& reg, std::string_view name) {
  for (size_t i = 0; i < FieldCount(reg); ++i) {
    const Field field = FieldAt(reg, i);
    if (field.name == name) return field;
  }
  return std::nullopt;
}

std::optional<uint64_t> GetField(const RegisterDef& reg, std::string_view name, uint64_t value) {
  const auto field = FindField(reg, name);
  if (!field) return std::nullopt;
  return field->Get(value);
}

uint64_t SetField(const RegisterDef& reg, std::string_view name, uint64_t field, uint64_t value) {
  const auto found = FindField(reg, name);
  if (!found) return value;
  return (value & ~found->mask()) | ((field << found->lsb) & found->mask());
}

std::string DescribeFields(const RegisterDef& reg, uint64_t value) {
  std::string text;
  for (size_t i = 0; i < FieldCount(reg); ++i) {
    const Field field = FieldAt(reg, i);
    if (field.lsb == 0 && field.msb >= 31) continue;
    const uint64_t v = field.Get(value);
    if (v == 0) continue;
    if (!text.empty()) text += ' ';
    text += field.name;
    text += '=';
    const auto* named =
        std::find_if(std::begin(kValueNames), std::end(kValueNames),
                     [&](const ValueName& n) { return n.field == field.name && n.value == v; });
    if (v < 10) {
      text += std::to_string(v);
    } else {
      char hex[20];
      std::snprintf(hex, sizeof hex, "0x%llx", static_cast<unsigned long long>(v));
      text += hex;
    }
    if (named != std::end(kValueNames)) {
      text += '(';
      text += named->name;
      text += ')';
    }
  }
  return text;
}

const data::Module* ChooseModule(std::string_view prefix, IpVersion version) {
  const data::Module* best = nullptr;
  for (size_t i = 0; i < data::kModuleCount; ++i) {
    const data::Module& m = data::kModules[i];
    if (m.prefix != prefix || m.version.major != version.major || m.version > version) continue;
    if (!best || m.version > best->version) best = &m;
  }
  return best;
}

RegisterMap::RegisterMap(std::span<const IpBlock> ips) {
  for (const IpBlock& ip : ips) {
    const auto known = std::find_if(versions_.begin(), versions_.end(),
                                    [&](const auto& v) { return v.first == ip.hw_id; });
    if (known != versions_.end()) {
      known->second = ip.version;
    } else {
      versions_.emplace_back(ip.hw_id, ip.version);
    }
  }
  const auto gc = Version(kHwGc);
  AttachBlock("mp", kHwMp0, ips);
  AttachBlock("hdp", kHwHdp, ips);
  AttachBlock("gc", kHwGc, ips);
  AttachBlock("mmhub", kHwMmhub, ips);
  AttachBlock("osssys", kHwOsssys, ips);
  AttachBlock(!gc || gc->major < 12 ? "nbio" : "nbif", kHwNbif, ips);
  if (Version(kHwSdma0).value_or(IpVersion{}).major == 4) AttachBlock("sdma", kHwSdma0, ips);
  AttachBlock("smu mailbox", kHwMp1, ips);
  if (const data::Module* fixed = ChooseModule("fixed", {})) {
    AttachModule(*fixed, 0, {Instance{0, {0}}});
  }
  BuildIndex();
}

void RegisterMap::AttachBlock(std::string_view prefix, uint16_t hw_id,
                              std::span<const IpBlock> ips) {
  const auto version = Version(hw_id);
  if (!version) return;
  const data::Module* module =
      hw_id == kHwMp1 ? ChooseModule("mp", {11, 0, 0}) : ChooseModule(prefix, *version);
  if (!module) {
    problems_.push_back("no register table for " + HwIdName(hw_id) + " " + ToString(*version));
    return;
  }
  std::vector<Instance> instances;
  bool too_many = false;
  for (const IpBlock& ip : ips) {
    if (ip.hw_id != hw_id) continue;
    const auto same = std::find_if(instances.begin(), instances.end(),
                                   [&](const Instance& i) { return i.number == ip.instance; });
    if (same != instances.end()) {
      same->bases = ip.bases;
    } else if (instances.size() < kMaxInstances) {
      instances.push_back({ip.instance, ip.bases});
    } else {
      too_many = true;
    }
  }
  if (too_many) {
    problems_.push_back(HwIdName(hw_id) + " has more than " + std::to_string(kMaxInstances) +
                        " instances; the others are left without names");
  }
  AttachModule(*module, hw_id, std::move(instances));
}

void RegisterMap::AttachModule(const data::Module& module, uint16_t hw_id,
                               std::vector<Instance> instances) {
  const auto order = static_cast<uint8_t>(attached_.size());
  size_t outside = 0;
  for (const Instance& instance : instances) {
    entries_.reserve(entries_.size() + module.count);
    for (uint32_t i = 0; i < module.count; ++i) {
      const RegisterDef& reg = data::kRegisters[module.first + i];
      if (reg.base >= instance.bases.size()) {
        ++outside;
        continue;
      }
      entries_.push_back({instance.bases[reg.base] + reg.offset, &reg, Rank(reg, hw_id, order),
                          order, instance.number});
    }
  }
  if (outside != 0) {
    problems_.push_back(HwIdName(hw_id) + ": " + std::to_string(outside) +
                        " registers lie at bases that the discovery table does not have");
  }
  attached_.push_back({&module, hw_id, std::move(instances)});
}

namespace {
size_t HashDword(uint64_t dword) {
  return (dword * 0x9E3779B97F4A7C15ull) >> 32;
}
}  // namespace

void RegisterMap::BuildIndex() {
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.dword != b.dword ? a.dword < b.dword : a.rank < b.rank;
  });
  size_t capacity = 64;
  while (capacity < entries_.size() * 2) capacity *= 2;
  buckets_.assign(capacity, 0);
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (i > 0 && entries_[i].dword == entries_[i - 1].dword) continue;
    size_t slot = HashDword(entries_[i].dword) & (capacity - 1);
    while (buckets_[slot] != 0) slot = (slot + 1) & (capacity - 1);
    buckets_[slot] = static_cast<uint32_t>(i + 1);
  }
}

std::vector<IpBlock> RegisterMap::AssumedIps(uint16_t pci_device) {
  const auto* chip = std::find_if(std::begin(kAssumedChips), std::end(kAssumedChips),
                                  [&](const AssumedChip& c) { return c.pci_device == pci_device; });
  if (chip == std::end(kAssumedChips)) chip = std::begin(kAssumedChips);
  std::vector<IpBlock> ips;
  for (size_t i = 0; i < std::size(kAssumedBases); ++i) {
    const AssumedBlock& block = kAssumedBases[i];
    const bool gfx9 = chip->versions[0].major == 9;
    const auto& bases = gfx9 && block.hw_id == kHwGc ? kAssumedGcGfx9 : block.bases;
    IpBlock ip;
    ip.hw_id = block.hw_id;
    ip.version = chip->versions[i];
    ip.bases.assign(bases.begin(), bases.end());
    ips.push_back(std::move(ip));
  }
  return ips;
}

RegisterMap RegisterMap::Assumed(uint16_t pci_device) {
  RegisterMap map{AssumedIps(pci_device)};
  map.assumed_ = true;
  map.problems_.clear();
  return map;
}

RegisterMap RegisterMap::FromPart(std::span<const IpBlock> ips) {
  // The chip whose graphics core has that version, or else that generation.
  IpVersion gc = kAssumedChips[0].versions[0];
  for (const IpBlock& ip : ips) {
    if (ip.hw_id == kHwGc) gc = ip.version;
  }
  uint16_t device = kAssumedChips[0].pci_device;
  for (const AssumedChip& chip : kAssumedChips) {
    if (chip.versions[0].major == gc.major) device = chip.pci_device;
    if (chip.versions[0] == gc) break;
  }
  std::vector<IpBlock> all(ips.begin(), ips.end());
  for (IpBlock& assumed : AssumedIps(device)) {
    const bool present = std::any_of(ips.begin(), ips.end(),
                                     [&](const IpBlock& ip) { return ip.hw_id == assumed.hw_id; });
    if (!present) all.push_back(std::move(assumed));
  }
  RegisterMap map{all};
  map.assumed_ = true;
  return map;
}

const RegisterMap::Entry* RegisterMap::First(uint64_t dword) const {
  size_t slot = HashDword(dword) & (buckets_.size() - 1);
  while (buckets_[slot] != 0) {
    const Entry& entry = entries_[buckets_[slot] - 1];
    if (entry.dword == dword) return &entry;
    slot = (slot + 1) & (buckets_.size() - 1);
  }
  return nullptr;
}

RegisterHit RegisterMap::Hit(const Entry& entry) const {
  const Attached& attached = attached_[entry.attached];
  return {entry.reg, attached.module, attached.hw_id, entry.instance};
}

RegisterHit RegisterMap::Lookup(uint64_t byte_offset) const {
  const Entry* entry = First(byte_offset / 4);
  return entry ? Hit(*entry) : RegisterHit{};
}

std::vector<RegisterHit> RegisterMap::Aliases(uint64_t byte_offset) const {
  std::vector<RegisterHit> hits;
  const Entry* entry = First(byte_offset / 4);
  if (!entry) return hits;
  const Entry* end = entries_.data() + entries_.size();
  for (const Entry* e = entry; e != end && e->dword == entry->dword; ++e) hits.push_back(Hit(*e));
  return hits;
}

RegisterMap::Found RegisterMap::FindByName(std::string_view name) const {
  for (const auto& index : NameIndices(name)) {
    if (!index) continue;
    for (const Attached& attached : attached_) {
      const RegisterDef* reg = FindInModule(*attached.module, *index);
      // The same name in both mp modules counts in the one whose block it belongs to.
      if (reg && Rank(*reg, attached.hw_id, 0) < 32) return {reg, &attached};
    }
    for (const Attached& attached : attached_) {
      if (const RegisterDef* reg = FindInModule(*attached.module, *index)) return {reg, &attached};
    }
  }
  return {};
}

std::optional<uint64_t> RegisterMap::Find(std::string_view name, uint8_t instance) const {
  const Found found = FindByName(name);
  if (!found.reg) return std::nullopt;
  for (const Instance& i : found.attached->instances) {
    if (i.number != instance) continue;
    if (found.reg->base >= i.bases.size()) return std::nullopt;
    return (i.bases[found.reg->base] + found.reg->offset) * 4;
  }
  return std::nullopt;
}

const RegisterDef* RegisterMap::FindDef(std::string_view name) const {
  return FindByName(name).reg;
}

std::vector<uint8_t> RegisterMap::InstancesOf(std::string_view name) const {
  std::vector<uint8_t> numbers;
  if (const Found found = FindByName(name); found.reg) {
    for (const Instance& i : found.attached->instances) numbers.push_back(i.number);
  }
  return numbers;
}

std::optional<IpVersion> RegisterMap::Version(uint16_t hw_id) const {
  for (const auto& [id, version] : versions_) {
    if (id == hw_id) return version;
  }
  return std::nullopt;
}

}  // namespace tg::amd
