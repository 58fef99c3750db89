#include "decoder/model/windows.h"

namespace tg::model {
namespace {

constexpr uint32_t kMmVram = 0x80000000;
constexpr uint32_t kPcieHiUsed = 0xff;

}  // namespace

std::optional<WindowTarget> Windows::OnAccess(Role role, uint32_t value, bool write, bool* blind) {
  const auto set = [&](std::optional<uint32_t>& index) -> std::optional<WindowTarget> {
    // A read of the index tells it as well.
    if (write || value != 0xFFFFFFFF) index = value;
    return std::nullopt;
  };
  switch (role) {
    case Role::kMmIndex:
      return set(mm_index_);
    case Role::kMmIndexHi:
      return set(mm_index_hi_);
    case Role::kRsmuIndex:
      return set(rsmu_index_);
    case Role::kRsmuIndexHi:
      return set(rsmu_index_hi_);
    case Role::kPcieIndex2:
      return set(pcie_index_);
    case Role::kPcieIndex2Hi:
      return set(pcie_index_hi_);
    case Role::kMmData: {
      if (!mm_index_ || ((*mm_index_ & kMmVram) != 0 && !mm_index_hi_)) {
        *blind = true;
        return std::nullopt;
      }
      if ((*mm_index_ & kMmVram) == 0) return WindowTarget{Via::kVramWindow, false, *mm_index_, 0};
      const uint64_t high = static_cast<uint64_t>(*mm_index_hi_) << 31;
      return WindowTarget{Via::kVramWindow, true, high | (*mm_index_ & ~kMmVram), 0};
    }
    case Role::kRsmuData: {
      if (!rsmu_index_) {
        *blind = true;
        return std::nullopt;
      }
      const uint64_t high = static_cast<uint64_t>(rsmu_index_hi_.value_or(0)) << 32;
      return WindowTarget{Via::kRsmuWindow, false, high | *rsmu_index_, 0};
    }
    case Role::kPcieData2: {
      if (!pcie_index_) {
        *blind = true;
        return std::nullopt;
      }
      const uint32_t high = pcie_index_hi_.value_or(0) & kPcieHiUsed;
      return WindowTarget{Via::kPcieWindow, false, *pcie_index_, static_cast<uint8_t>(high & 3)};
    }
    default:
      return std::nullopt;
  }
}

}  // namespace tg::model
