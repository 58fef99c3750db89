// What a register means to the model, so that it is recognised by one lookup and not by its name.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "schemas/amd/registers.h"

namespace tg::model {

enum class Role : uint8_t {
  kNone = 0,
  // Windows and fixed places
  kMmIndex,
  kMmIndexHi,
  kMmData,
  kMemsize,
  kRsmuIndex,
  kRsmuIndexHi,
  kRsmuData,
  kPcieIndex2,
  kPcieIndex2Hi,
  kPcieData2,
  kHdpRemap,
  kHdpFlush,
  // Notes between sessions
  kScratch6,
  kScratch7,
  // Memory hubs
  kFaultStatusGc,
  kFaultStatusMm,
  kFaultStatusHiGc,
  kFaultStatusHiMm,
  kFaultAddrLoGc,
  kFaultAddrHiGc,
  kFaultAddrLoMm,
  kFaultAddrHiMm,
  kFaultCntlGc,
  kFaultCntlMm,
  kFbBase,
  kFbTop,
  kXgmiCntl,
  kXgmiSize,
  kRootLoGc,
  kRootHiGc,
  kRootLoMm,
  kRootHiMm,
  kVaStartLo,
  kVaStartHi,
  kAgpBaseMm,
  kAgpBaseGc,
  kInvalidateReqGc,
  kInvalidateReqMm,
  kInvalidateAckGc,
  kInvalidateAckMm,
  kInvalidateSemMm,
  // Interrupt ring 0
  kIhBase,
  kIhBaseHi,
  kIhCntl,
  kIhWptr,
  kIhRptr,
  kDoorbellInt,
  // Mailboxes
  kPspBootloader,
  kPspUpload,
  kPspRingControl,
  kPspWptr,
  kPspRingLo,
  kPspRingHi,
  kPspRingSize,
  kPspAlive,
  kSmuMessage,
  kSmuArgument,
  kSmuResponse,
  kSmuDebugMessage,
  kSmuDebugArgument,
  kSmuDebugResponse,
  // Engines
  kCpStat,
  kBootloadStatus,
  kGrbmSelect,
  kGrbmSoftReset,
  kHqdActive,
  kHqdDequeue,
  kMecCntl,
  kSdmaWatchdog,
  kSdmaCntl,
  kSdmaRbCntl,
  kRlcSafeMode,
  kHdpPower,
  kStrap2,
  kXccFence,
  kAtcCg,
  // NVIDIA
  kNvBoot0,
  kNvBoot42,
};

// Which addresses have a role, for one register map.
class RoleMap {
 public:
  explicit RoleMap(const amd::RegisterMap& map);
  Role Of(uint64_t address) const {
    const auto found = roles_.find(address & ~3ull);
    return found == roles_.end() ? Role::kNone : found->second;
  }

 private:
  std::unordered_map<uint64_t, Role> roles_;
};

}  // namespace tg::model
