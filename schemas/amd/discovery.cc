#include "schemas/amd/discovery.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "schemas/wire/bytes.h"

namespace tg::amd {
namespace {

constexpr size_t kBinaryHeaderSize = 0x3c;
constexpr size_t kIpHeaderSize = 0x50;
constexpr size_t kMaxDies = 16;
constexpr size_t kHarvestEntries = 32;
enum Table { kIpTable = 0, kGcTable = 1, kHarvestTable = 2 };

// Reads that stay within the bytes; a read past the end gives 0 and is remembered.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool Has(size_t offset, size_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }
  uint8_t U8(size_t offset) const { return Has(offset, 1) ? bytes_[offset] : 0; }
  uint16_t U16(size_t offset) const { return Load<uint16_t>(offset); }
  uint32_t U32(size_t offset) const { return Load<uint32_t>(offset); }
  uint64_t U64(size_t offset) const { return Load<uint64_t>(offset); }
  size_t size() const { return bytes_.size(); }

 private:
  template <typename T>
  T Load(size_t offset) const {
    return Has(offset, sizeof(T)) ? LoadLe<T>(bytes_.data() + offset) : T{0};
  }
  std::span<const uint8_t> bytes_;
};

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

size_t TableOffset(const Reader& in, Table table) {
  return in.U16(0xc + 8u * table);
}

void ReadIps(const Reader& in, size_t table, Discovery& out) {
  out.ip_table_version = in.U16(table + 4);
  out.base_64 = (in.U8(table + 0x4e) & 1) != 0;
  if (out.base_64 && out.ip_table_version < 4) {
    out.problems.push_back("64-bit bases announced by an IP table of version " +
                           std::to_string(out.ip_table_version));
  }
  const uint16_t dies = in.U16(table + 0xc);
  out.dies = std::min<uint16_t>(dies, kMaxDies);
  if (dies > kMaxDies) {
    out.problems.push_back(std::to_string(dies) + " dies announced, 16 fit the table");
  }
  const size_t base_size = out.base_64 ? 8 : 4;
  for (size_t die = 0; die < out.dies; ++die) {
    size_t at = in.U16(table + 0xe + die * 4 + 2);
    if (!in.Has(at, 4)) {
      out.problems.push_back("die " + std::to_string(die) + " at " + Hex(at) + " is outside");
      continue;
    }
    const uint16_t count = in.U16(at + 2);
    at += 4;
    for (uint16_t i = 0; i < count; ++i) {
      const size_t bases = in.U8(at + 3);
      if (!in.Has(at, 8 + bases * base_size)) {
        out.problems.push_back("die " + std::to_string(die) + ": entry " + std::to_string(i) +
                               " of " + std::to_string(count) + " runs past the end");
        break;
      }
      if (out.ips.size() >= kMaxIpBlocks) {
        out.problems.push_back("more than " + std::to_string(kMaxIpBlocks) + " IP entries");
        return;
      }
      IpBlock ip;
      ip.hw_id = in.U16(at);
      ip.instance = in.U8(at + 2);
      ip.version = {in.U8(at + 4), in.U8(at + 5), in.U8(at + 6)};
      ip.die = static_cast<uint16_t>(die);
      ip.bases.reserve(bases);
      for (size_t b = 0; b < bases; ++b) {
        ip.bases.push_back(out.base_64 ? in.U64(at + 8 + b * 8) : in.U32(at + 8 + b * 4));
      }
      out.ips.push_back(std::move(ip));
      at += 8 + bases * base_size;
    }
  }
}

void ReadHarvest(const Reader& in, size_t table, Discovery& out) {
  if (table == 0) return;
  if (in.U32(table) != kHarvestSignature) {
    out.problems.push_back("no harvest table at " + Hex(table));
    return;
  }
  for (size_t i = 0; i < kHarvestEntries; ++i) {
    const size_t at = table + 8 + i * 4;
    if (!in.Has(at, 4)) break;
    const uint16_t hw_id = in.U16(at);
    if (hw_id == 0) continue;
    out.harvested.push_back({hw_id, in.U8(at + 2)});
  }
  for (IpBlock& ip : out.ips) {
    ip.harvested = std::any_of(
        out.harvested.begin(), out.harvested.end(),
        [&](const HarvestedIp& h) { return h.hw_id == ip.hw_id && h.instance == ip.instance; });
  }
}

void ReadGc(const Reader& in, size_t table, Discovery& out) {
  if (table == 0) return;
  if (!in.Has(table, 0x50)) {
    out.problems.push_back("gc_info at " + Hex(table) + " is outside");
    return;
  }
  GcInfo gc;
  gc.version_major = in.U16(table + 4);
  gc.version_minor = in.U16(table + 6);
  if (gc.version_major != 1 && gc.version_major != 2) {
    out.problems.push_back("gc_info version " + std::to_string(gc.version_major) + "." +
                           std::to_string(gc.version_minor) + " is not known");
    return;
  }
  gc.num_se = in.U32(table + 0x0c);
  if (gc.version_major == 1) {
    gc.num_wgp0_per_sa = in.U32(table + 0x10);
    gc.num_wgp1_per_sa = in.U32(table + 0x14);
    gc.num_sa_per_se = in.U32(table + 0x4c);
  } else {
    gc.num_cu_per_sh = in.U32(table + 0x10);
    gc.num_sh_per_se = in.U32(table + 0x14);
  }
  gc.num_rb_per_se = in.U32(table + 0x18);
  gc.num_l2 = in.U32(table + 0x1c);
  gc.wave_size = in.U32(table + 0x38);
  gc.max_waves_per_simd = in.U32(table + 0x3c);
  gc.max_scratch_slots_per_cu = in.U32(table + 0x40);
  gc.lds_size = in.U32(table + 0x44);
  out.gc = gc;
}

}  // namespace

Result<Discovery> ParseDiscovery(std::span<const uint8_t> bytes) {
  const Reader in(bytes);
  if (!in.Has(0, kBinaryHeaderSize)) {
    return Fail(Error::Code::kBadInput, "discovery binary: only " + std::to_string(bytes.size()) +
                                            " bytes, its header alone has 60");
  }
  if (in.U32(0) != kDiscoverySignature) {
    return Fail(Error::Code::kBadInput,
                "discovery binary: signature " + Hex(in.U32(0)) + " instead of 0x28211407");
  }
  const size_t ip_table = TableOffset(in, kIpTable);
  if (!in.Has(ip_table, kIpHeaderSize) || in.U32(ip_table) != kIpTableSignature) {
    return Fail(Error::Code::kBadInput,
                "discovery binary: no IP table (\"IPDS\") at " + Hex(ip_table));
  }
  Discovery out;
  out.version_major = in.U16(4);
  out.version_minor = in.U16(6);
  out.size = in.U16(0xa);
  uint16_t sum = 0;
  for (size_t i = 0xa; i < out.size && i < bytes.size(); ++i) sum += bytes[i];
  out.checksum_ok = out.size > 0xa && out.size <= bytes.size() && sum == in.U16(8);
  ReadIps(in, ip_table, out);
  ReadHarvest(in, TableOffset(in, kHarvestTable), out);
  ReadGc(in, TableOffset(in, kGcTable), out);
  return out;
}

std::optional<IpVersion> Discovery::Version(uint16_t hw_id) const {
  for (auto ip = ips.rbegin(); ip != ips.rend(); ++ip) {
    if (ip->hw_id == hw_id) return ip->version;
  }
  return std::nullopt;
}

uint32_t Discovery::LiveInstances(uint16_t hw_id) const {
  std::set<uint8_t> live;
  for (const IpBlock& ip : ips) {
    if (ip.hw_id == hw_id && !ip.harvested) live.insert(ip.instance);
  }
  return static_cast<uint32_t>(live.size());
}

uint32_t GfxTargetVersion(IpVersion gc) {
  const uint32_t version = gc.major * 10000u + gc.minor * 100u + gc.revision;
  return version == 90403 ? 90402 : version;
}

std::string GfxArch(IpVersion gc) {
  const uint32_t target = GfxTargetVersion(gc);
  char text[24];
  std::snprintf(text, sizeof text, "gfx%u%x%x", target / 10000, target / 100 % 100, target % 100);
  return text;
}

std::optional<DeviceProps> Discovery::Props() const {
  const auto version = Version(kHwGc);
  if (!version || !gc) return std::nullopt;
  DeviceProps p;
  p.gfx_target_version = GfxTargetVersion(*version);
  p.arch = GfxArch(*version);
  p.accepted = p.gfx_target_version == 90402 || p.gfx_target_version == 90500 ||
               version->major == 11 || version->major == 12;
  p.num_xcc = LiveInstances(kHwGc);
  if (gc->version_major == 2) {
    p.cu_per_simd_array = gc->num_cu_per_sh;
    p.simd_arrays_per_engine = gc->num_sh_per_se;
  } else {
    p.cu_per_simd_array = 2 * (gc->num_wgp0_per_sa + gc->num_wgp1_per_sa);
    p.simd_arrays_per_engine = gc->num_sa_per_se;
  }
  p.array_count = p.simd_arrays_per_engine * gc->num_se * p.num_xcc;
  p.simd_count = 2 * p.cu_per_simd_array * p.array_count;
  p.simd_per_cu = 2;
  p.max_waves_per_simd = gc->max_waves_per_simd;
  p.max_slots_scratch_cu = gc->max_scratch_slots_per_cu;
  p.lds_size_in_kb = gc->lds_size;
  if (p.num_xcc != 0) {
    if (p.simd_arrays_per_engine != 0) {
      p.se_cnt = p.array_count / p.simd_arrays_per_engine / p.num_xcc;
    }
    p.cu_cnt = p.simd_count / p.simd_per_cu / p.num_xcc;
  }
  return p;
}

std::vector<std::pair<std::string, uint32_t>> DeviceProps::Items() const {
  return {
      {"gfx_target_version", gfx_target_version},
      {"num_xcc", num_xcc},
      {"array_count", array_count},
      {"cu_per_simd_array", cu_per_simd_array},
      {"simd_arrays_per_engine", simd_arrays_per_engine},
      {"simd_count", simd_count},
      {"simd_per_cu", simd_per_cu},
      {"max_waves_per_simd", max_waves_per_simd},
      {"max_slots_scratch_cu", max_slots_scratch_cu},
      {"lds_size_in_kb", lds_size_in_kb},
      {"se_cnt", se_cnt},
      {"cu_cnt", cu_cnt},
  };
}

}  // namespace tg::amd
