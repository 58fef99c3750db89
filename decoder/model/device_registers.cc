// Registers: direct, through windows, and what those with a role tell; the discovery table.
#include <algorithm>
#include <array>

#include "decoder/model/device_impl.h"
#include "schemas/amd/vram_layout.h"
#include "schemas/wire/bytes.h"

namespace tg::model {
namespace {

constexpr uint64_t kMaxRegisterRun = 64 * 1024;  // bytes of one access taken apart into registers
// A wide write of zeros is a few bytes in the trace and thousands of registers or doorbells: so
// many of them in all.
constexpr uint64_t kMaxZeroRuns = 1u << 18;

}  // namespace

// One at a time are no run.
bool Device::Impl::ZerosAllowed(const Call& call, uint64_t count) {
  if (count <= 1) return true;
  if (zero_runs_ + count <= kMaxZeroRuns) {
    zero_runs_ += count;
    return true;
  }
  Warn("zeros", call.at.call, "more wide writes of zeros to registers than are taken apart");
  return false;
}

// Registers are 4 bytes; a wider access is taken apart, low address first, as the server does it.
void Device::Impl::RegisterRun(const Call& call, std::span<const uint8_t> data, bool all_zero,
                               bool write, uint64_t latency_ns) {
  const uint64_t offset = call.header.arg0;
  const uint64_t size = std::min(call.header.arg1, kMaxRegisterRun);
  if (offset % 4 != 0 || size % 4 != 0) {
    Warn("register-size", call.at.call,
         std::string(write ? "write" : "read") + " of " + std::to_string(call.header.arg1) +
             " bytes at bar " + std::to_string(call.header.bar) + " + " + DeviceHex(offset) +
             ": registers are 4 bytes wide");
    return;
  }
  if (all_zero && !ZerosAllowed(call, size / 4)) return;
  for (uint64_t at = 0; at + 4 <= size; at += 4) {
    uint32_t value = 0;
    if (!all_zero) {
      if (at + 4 > data.size()) return;
      value = LoadLe<uint32_t>(data.data() + at);
    }
    OnRegister(call, offset + at, static_cast<uint8_t>(call.header.bar), 0, value, write,
               Via::kDirect, latency_ns);
  }
}

void Device::Impl::OnRegister(const Call& call, uint64_t address, uint8_t bar, uint8_t die,
                              uint32_t value, bool write, Via via, uint64_t latency_ns) {
  RegisterState* state = registers_.Touch(address, bar, die, via);
  if (!state) {
    Warn("registers", call.at.call, "more registers than can be followed");
    return;
  }
  RegisterAccess access;
  access.at = call.at;
  access.last = call.last;
  access.times = call.times;
  access.reg = state;
  access.value = value;
  access.write = write;
  access.via = via;
  access.latency_ns = latency_ns;
  if (!write) {
    registers_.Record(*state, {call.at, value, false}, call.times, call.last);
  } else {
    registers_.Record(*state, {call.at, value, true}, call.times, call.last);
  }
  if (autopsy_) {
    // What the register holds counts; what the client does is another matter.
    faults_.OnRegister(access);
    for (Observer* observer : observers_) observer->OnAutopsy(access);
    return;
  }
  const Role role = state->role;
  if (role != Role::kNone) {
    if (via == Via::kDirect) {
      bool blind = false;
      const auto target = windows_.OnAccess(role, value, write, &blind);
      if (blind) {
        Warn("window", call.at.call,
             std::string(state->name()) +
                 " used before its index register was written: the "
                 "target is not known");
      }
      if (target) {
        for (Observer* observer : observers_) observer->OnRegister(access);
        OnWindow(call, *target, value, write, latency_ns);
        return;
      }
    }
    OnRole(access);
  }
  for (Observer* observer : observers_) observer->OnRegister(access);
}

void Device::Impl::OnWindow(const Call& call, const WindowTarget& target, uint32_t value,
                            bool write, uint64_t latency_ns) {
  if (!target.vram) {
    OnRegister(call, target.address, 5, target.die, value, write, target.via, latency_ns);
    return;
  }
  std::array<uint8_t, 4> bytes{};
  StoreLe(bytes.data(), value);
  MemoryAccess access;
  access.at = call.at;
  access.last = call.last;
  access.times = call.times;
  access.offset = target.address;
  access.size = 4;
  access.data = bytes;
  access.write = write;
  access.via = target.via;
  OnVram(access);
}

void Device::Impl::OnRole(const RegisterAccess& access) {
  const Role role = access.reg->role;
  switch (role) {
    case Role::kMemsize:
      if (!access.write && access.value != kOnes && access.value != 0) {
        vram_size_ = static_cast<uint64_t>(access.value) << 20;
        gpuvm_.SetVramSize(*vram_size_);
      }
      break;
    case Role::kHdpRemap:
      if (!access.write && access.value != kOnes) {
        registers_.SetOtherName(access.value, "HDP flush", Role::kHdpFlush);
      }
      break;
    case Role::kFbBase:
      if (!access.write && access.value != kOnes) {
        gpuvm_.SetFbBase(static_cast<uint64_t>(access.value & 0xFFFFFF) << 24);
        psp_.SetMcBase(gpuvm_.mc_base());
      }
      break;
    case Role::kXgmiCntl:
    case Role::kXgmiSize:
      if (!access.write && access.value != kOnes && access.reg->hit) {
        const amd::RegisterDef& reg = *access.reg->hit.reg;
        if (const auto region = amd::GetField(reg, "pf_lfb_region", access.value)) {
          gpuvm_.SetXgmi(static_cast<uint32_t>(*region), std::nullopt);
        }
        const auto size = amd::GetField(reg, "pf_lfb_size", access.value);
        if (size) gpuvm_.SetXgmi(std::nullopt, *size << 24);
        boot_.SetXgmi(amd::GetField(reg, "pf_max_region", access.value), size);
        psp_.SetMcBase(gpuvm_.mc_base());
      }
      break;
    case Role::kRootLoGc:
    case Role::kRootHiGc:
      if (const auto root =
              registers_.Value64("regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR", "_LO32", "_HI32")) {
        gpuvm_.SetRoot(*root);
      }
      break;
    case Role::kRootLoMm:
    case Role::kRootHiMm:
      // Both hubs get the same root; the GC hub's, written later, is what queues use.
      if (const auto root =
              registers_.Value64("regMMVM_CONTEXT0_PAGE_TABLE_BASE_ADDR", "_LO32", "_HI32");
          root && gpuvm_.root_assumed()) {
        gpuvm_.SetRoot(*root);
      }
      break;
    case Role::kVaStartLo:
    case Role::kVaStartHi:
      if (const auto start =
              registers_.Value64("regGCVM_CONTEXT0_PAGE_TABLE_START_ADDR", "_LO32", "_HI32");
          start && *start != ~0ull) {
        gpuvm_.SetVaStart(*start);
      }
      break;
    case Role::kIhBase:
    case Role::kIhBaseHi:
    case Role::kIhCntl:
      if (const auto base = registers_.Value64("regIH_RB_BASE", "", "_HI")) {
        uint64_t size = ih_.ring_size();
        const RegisterState* cntl = registers_.Find("regIH_RB_CNTL");
        if (cntl && cntl->known && cntl->hit) {
          if (const auto n = amd::GetField(*cntl->hit.reg, "rb_size", cntl->value)) {
            size = 4ull << (*n & 0x1f);
          }
        }
        const uint64_t mc = (*base & 0xFFFFFFFFFFull) << 8;
        ih_.SetRing(gpuvm_.McToVram(mc).value_or(ih_.ring_base()), size);
      }
      break;
    case Role::kIhWptr:
    case Role::kIhRptr:
      ih_.OnRegister(access);
      break;
    default:
      break;
  }
  faults_.OnRegister(access);
  psp_.OnRegister(access);
  boot_.OnRegister(access);
  if (smu_.OnRegister(access)) boot_.OnMode1Reset(access.at);
}

void Device::Impl::LookForDiscovery(const MemoryAccess& access) {
  if (access.write || access.data.size() < 4) return;
  const auto first = LoadLe<uint32_t>(access.data.data());
  // Where the driver looks for the table; what stands there instead is why it stops.
  const bool in_place = vram_size_ && access.offset == *vram_size_ - amd::kDiscoveryFromEnd &&
                        (access.via == Via::kVramWindow || access.size >= 0x100);
  if (in_place && first != amd::kDiscoverySignature) {
    Warn("discovery", access.at.call,
         "no discovery table at VRAM " + DeviceHex(access.offset) + ": " + DeviceHex(first) +
             " where its signature " + DeviceHex(amd::kDiscoverySignature) +
             " belongs; the client fails with \"discovery signatures mismatch\"");
  }
  if (access.via == Via::kVramWindow) {
    if (first == amd::kDiscoverySignature && access.offset % 0x1000 == 0) {
      window_table_ = access.offset;
    }
    if (window_table_ && access.offset == *window_table_ + amd::kDiscoverySize - 4) {
      DiscoveryFromWindow(access.at);
    }
    return;
  }
  if (access.size >= 0x100 && first == amd::kDiscoverySignature) {
    const bool cut = access.data.size() < access.size;
    TakeDiscovery(access.data, cut, DiscoverySource::kBulkRead, access.at);
    if (cut) {
      Warn("discovery", access.at.call,
           "the trace keeps " + std::to_string(access.data.size()) + " of " +
               std::to_string(access.size) + " bytes of the discovery table");
    }
  }
}

void Device::Impl::DiscoveryFromWindow(Stamp at) {
  if (!window_table_) return;
  std::vector<uint8_t> bytes(vram_.KnownBytes(*window_table_, amd::kDiscoverySize));
  vram_.Read(*window_table_, bytes);
  window_table_.reset();
  TakeDiscovery(bytes, bytes.size() < amd::kDiscoverySize, DiscoverySource::kWindow, at);
}

void Device::Impl::TakeDiscovery(std::span<const uint8_t> bytes, bool cut, DiscoverySource source,
                                 Stamp at) {
  auto parsed = amd::ParseDiscovery(bytes);
  if (!parsed) {
    Warn("discovery", at.call, parsed.error().message);
    return;
  }
  for (const std::string& problem : parsed->problems) Warn("discovery", at.call, problem);
  amd::RegisterMap map =
      cut ? amd::RegisterMap::FromPart(parsed->ips) : amd::RegisterMap(parsed->ips);
  for (const std::string& problem : map.problems()) Warn("register-names", at.call, problem);
  const auto gc = map.Version(amd::kHwGc);
  const auto mp1 = map.Version(amd::kHwMp1);
  registers_.SetMap(std::move(map));
  windows_.Forget();
  if (gc) GcIs(*gc, mp1.value_or(amd::IpVersion{13, 0, 0}), false);
  discovery_ = std::move(*parsed);
  discovery_source_ = source;
  discovery_at_ = at;
}

void Device::Impl::GcIs(amd::IpVersion gc, amd::IpVersion mp1, bool assumed) {
  gc_ = gc;
  gpuvm_.SetFormat(amd::PteFormatFor(gc), assumed);
  ih_.SetGc(gc);
  boot_.SetGc(gc);
  faults_.SetGc(gc);
  smu_.SetMp1(mp1);
}

}  // namespace tg::model
