#include "decoder/model/roles.h"

namespace tg::model {
namespace {

struct RoleName {
  const char* name;
  Role role;
};
// First instance of each unless marked; a chip lacks those of other chips.
constexpr RoleName kNames[] = {
    {"mmMM_INDEX", Role::kMmIndex},
    {"mmMM_INDEX_HI", Role::kMmIndexHi},
    {"mmMM_DATA", Role::kMmData},
    {"mmRCC_CONFIG_MEMSIZE", Role::kMemsize},
    {"regBIF_BX_PF0_RSMU_INDEX", Role::kRsmuIndex},
    {"regBIF_BX_PF0_RSMU_INDEX_HI", Role::kRsmuIndexHi},
    {"regBIF_BX_PF0_RSMU_DATA", Role::kRsmuData},
    {"regBIF_BX0_PCIE_INDEX2", Role::kPcieIndex2},
    {"regBIF_BX0_PCIE_INDEX2_HI", Role::kPcieIndex2Hi},
    {"regBIF_BX0_PCIE_DATA2", Role::kPcieData2},
    {"regBIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", Role::kHdpRemap},
    {"regSCRATCH_REG6", Role::kScratch6},
    {"regSCRATCH_REG7", Role::kScratch7},
    {"regGCVM_L2_PROTECTION_FAULT_STATUS", Role::kFaultStatusGc},
    {"regGCVM_L2_PROTECTION_FAULT_STATUS_LO32", Role::kFaultStatusGc},
    {"regGCVM_L2_PROTECTION_FAULT_STATUS_HI32", Role::kFaultStatusHiGc},
    {"regMMVM_L2_PROTECTION_FAULT_STATUS", Role::kFaultStatusMm},
    {"regMMVM_L2_PROTECTION_FAULT_STATUS_LO32", Role::kFaultStatusMm},
    {"regMMVM_L2_PROTECTION_FAULT_STATUS_HI32", Role::kFaultStatusHiMm},
    {"regGCVM_L2_PROTECTION_FAULT_ADDR_LO32", Role::kFaultAddrLoGc},
    {"regGCVM_L2_PROTECTION_FAULT_ADDR_HI32", Role::kFaultAddrHiGc},
    {"regMMVM_L2_PROTECTION_FAULT_ADDR_LO32", Role::kFaultAddrLoMm},
    {"regMMVM_L2_PROTECTION_FAULT_ADDR_HI32", Role::kFaultAddrHiMm},
    {"regGCVM_L2_PROTECTION_FAULT_CNTL", Role::kFaultCntlGc},
    {"regGCVM_L2_PROTECTION_FAULT_CNTL_LO32", Role::kFaultCntlGc},
    {"regMMVM_L2_PROTECTION_FAULT_CNTL", Role::kFaultCntlMm},
    {"regMMVM_L2_PROTECTION_FAULT_CNTL_LO32", Role::kFaultCntlMm},
    {"regMMMC_VM_FB_LOCATION_BASE", Role::kFbBase},
    {"regMMMC_VM_FB_LOCATION_TOP", Role::kFbTop},
    {"regMMMC_VM_XGMI_LFB_CNTL", Role::kXgmiCntl},
    {"regMMMC_VM_XGMI_LFB_SIZE", Role::kXgmiSize},
    {"regGCMC_VM_XGMI_LFB_CNTL", Role::kXgmiCntl},
    {"regGCMC_VM_XGMI_LFB_SIZE", Role::kXgmiSize},
    {"regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32", Role::kRootLoGc},
    {"regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32", Role::kRootHiGc},
    {"regMMVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32", Role::kRootLoMm},
    {"regMMVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32", Role::kRootHiMm},
    {"regGCVM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32", Role::kVaStartLo},
    {"regGCVM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32", Role::kVaStartHi},
    {"regMMMC_VM_AGP_BASE", Role::kAgpBaseMm},
    {"regGCMC_VM_AGP_BASE", Role::kAgpBaseGc},
    {"regGCVM_INVALIDATE_ENG17_REQ", Role::kInvalidateReqGc},
    {"regMMVM_INVALIDATE_ENG17_REQ", Role::kInvalidateReqMm},
    {"regGCVM_INVALIDATE_ENG17_ACK", Role::kInvalidateAckGc},
    {"regMMVM_INVALIDATE_ENG17_ACK", Role::kInvalidateAckMm},
    {"regMMVM_INVALIDATE_ENG17_SEM", Role::kInvalidateSemMm},
    {"regIH_RB_BASE", Role::kIhBase},
    {"regIH_RB_BASE_HI", Role::kIhBaseHi},
    {"regIH_RB_CNTL", Role::kIhCntl},
    {"regIH_RB_WPTR", Role::kIhWptr},
    {"regIH_RB_RPTR", Role::kIhRptr},
    {"regBIF_BX0_BIF_DOORBELL_INT_CNTL", Role::kDoorbellInt},
    {"mmMP1_SMN_C2PMSG_66", Role::kSmuMessage},
    {"mmMP1_SMN_C2PMSG_82", Role::kSmuArgument},
    {"mmMP1_SMN_C2PMSG_90", Role::kSmuResponse},
    {"mmMP1_SMN_C2PMSG_75", Role::kSmuDebugMessage},
    {"mmMP1_SMN_C2PMSG_53", Role::kSmuDebugArgument},
    {"mmMP1_SMN_C2PMSG_54", Role::kSmuDebugResponse},
    {"regCP_STAT", Role::kCpStat},
    {"regRLC_RLCS_BOOTLOAD_STATUS", Role::kBootloadStatus},
    {"regGRBM_GFX_CNTL", Role::kGrbmSelect},
    {"regGRBM_SOFT_RESET", Role::kGrbmSoftReset},
    {"regCP_HQD_ACTIVE", Role::kHqdActive},
    {"regCP_HQD_DEQUEUE_REQUEST", Role::kHqdDequeue},
    {"regCP_MEC_RS64_CNTL", Role::kMecCntl},
    {"regCP_MEC_CNTL", Role::kMecCntl},
    {"regSDMA0_WATCHDOG_CNTL", Role::kSdmaWatchdog},
    {"regSDMA_CNTL", Role::kSdmaCntl},
    {"regSDMA0_QUEUE0_RB_CNTL", Role::kSdmaRbCntl},
    {"regSDMA_GFX_RB_CNTL", Role::kSdmaRbCntl},
    {"regRLC_SAFE_MODE", Role::kRlcSafeMode},
    {"regHDP_MEM_POWER_CTRL", Role::kHdpPower},
    {"regRCC_DEV0_EPF2_STRAP2", Role::kStrap2},
    {"regXCC_DOORBELL_FENCE", Role::kXccFence},
    {"regMM_ATC_L2_MISC_CG", Role::kAtcCg},
};

// C2PMSG_n of the PSP, under the prefix of the MP0 generation.
struct PspRole {
  int message;
  Role role;
};
constexpr PspRole kPspRoles[] = {
    {35, Role::kPspBootloader}, {36, Role::kPspUpload}, {64, Role::kPspRingControl},
    {67, Role::kPspWptr},       {69, Role::kPspRingLo}, {70, Role::kPspRingHi},
    {71, Role::kPspRingSize},   {81, Role::kPspAlive},
};

}  // namespace

RoleMap::RoleMap(const amd::RegisterMap& map) {
  for (const RoleName& entry : kNames) {
    if (const auto address = map.Find(entry.name)) roles_.emplace(*address & ~3ull, entry.role);
  }
  for (const PspRole& entry : kPspRoles) {
    const std::string number = std::to_string(entry.message);
    auto address = map.Find("regMP0_SMN_C2PMSG_" + number);
    if (!address) address = map.Find("regMPASP_SMN_C2PMSG_" + number);
    if (address) roles_.emplace(*address & ~3ull, entry.role);
  }
}

}  // namespace tg::model
