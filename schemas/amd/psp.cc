#include "schemas/amd/psp.h"

#include "schemas/amd/code_name.h"
#include "schemas/wire/bytes.h"

namespace tg::amd {
namespace {

// kernel psp_gfx_if.h, amdgpu_psp.h.
constexpr CodeName kCommands[] = {
    {1, "LOAD_TA"},   {2, "UNLOAD_TA"},     {3, "INVOKE_CMD"},  {4, "LOAD_ASD"},
    {5, "SETUP_TMR"}, {6, "LOAD_IP_FW"},    {7, "DESTROY_TMR"}, {8, "SAVE_RESTORE"},
    {9, "SETUP_VMR"}, {10, "DESTROY_VMR"},  {11, "PROG_REG"},   {15, "GET_FW_ATTESTATION"},
    {32, "LOAD_TOC"}, {33, "AUTOLOAD_RLC"}, {34, "BOOT_CFG"},   {39, "SRIOV_SPATIAL_PART"},
};
constexpr CodeName kFwTypes[] = {
    {0, "NONE"},
    {1, "CP_ME"},
    {2, "CP_PFP"},
    {3, "CP_CE"},
    {4, "CP_MEC"},
    {5, "CP_MEC_ME1"},
    {6, "CP_MEC_ME2"},
    {7, "RLC_V"},
    {8, "RLC_G"},
    {9, "SDMA0"},
    {10, "SDMA1"},
    {11, "DMCU_ERAM"},
    {12, "DMCU_ISR"},
    {13, "VCN"},
    {14, "UVD"},
    {15, "VCE"},
    {16, "ISP"},
    {17, "ACP"},
    {18, "SMU"},
    {19, "MMSCH"},
    {20, "RLC_RESTORE_LIST_GPM_MEM"},
    {21, "RLC_RESTORE_LIST_SRM_MEM"},
    {22, "RLC_RESTORE_LIST_SRM_CNTL"},
    {23, "UVD1"},
    {24, "TOC"},
    {25, "RLC_P"},
    {26, "RLC_IRAM"},
    {27, "GLOBAL_TAP_DELAYS"},
    {28, "SE0_TAP_DELAYS"},
    {29, "SE1_TAP_DELAYS"},
    {30, "GLOBAL_SE0_SE1_SKEW_DELAYS"},
    {31, "SDMA0_JT"},
    {32, "SDMA1_JT"},
    {33, "CP_MES"},
    {34, "MES_STACK"},
    {35, "RLC_SRM_DRAM_SR"},
    {36, "RLCG_SCRATCH_SR"},
    {37, "RLCP_SCRATCH_SR"},
    {38, "RLCV_SCRATCH_SR"},
    {39, "RLX6_DRAM_SR"},
    {40, "SDMA0_PG_CONTEXT"},
    {41, "SDMA1_PG_CONTEXT"},
    {42, "GLOBAL_MUX_SELECT_RAM"},
    {43, "SE0_MUX_SELECT_RAM"},
    {44, "SE1_MUX_SELECT_RAM"},
    {45, "ACCUM_CTRL_RAM"},
    {46, "RLCP_CAM"},
    {47, "RLC_SPP_CAM_EXT"},
    {48, "RLC_DRAM_BOOT"},
    {49, "VCN0_RAM"},
    {50, "VCN1_RAM"},
    {51, "DMUB"},
    {52, "SDMA2"},
    {53, "SDMA3"},
    {54, "SDMA4"},
    {55, "SDMA5"},
    {56, "SDMA6"},
    {57, "SDMA7"},
    {58, "VCN1"},
    {62, "CAP"},
    {65, "SE2_TAP_DELAYS"},
    {66, "SE3_TAP_DELAYS"},
    {67, "REG_LIST"},
    {68, "IMU_I"},
    {69, "IMU_D"},
    {70, "LSDMA"},
    {71, "SDMA_UCODE_TH0"},
    {72, "SDMA_UCODE_TH1"},
    {73, "PPTABLE"},
    {74, "DISCRETE_USB4"},
    {75, "TA"},
    {76, "RS64_MES"},
    {77, "RS64_MES_STACK"},
    {78, "RS64_KIQ"},
    {79, "RS64_KIQ_STACK"},
    {80, "ISP_DATA"},
    {81, "CP_MES_KIQ"},
    {82, "MES_KIQ_STACK"},
    {83, "UMSCH_DATA"},
    {84, "UMSCH_UCODE"},
    {85, "UMSCH_CMD_BUFFER"},
    {86, "USB_DP_COMBO_PHY"},
    {87, "RS64_PFP"},
    {88, "RS64_ME"},
    {89, "RS64_MEC"},
    {90, "RS64_PFP_P0_STACK"},
    {91, "RS64_PFP_P1_STACK"},
    {92, "RS64_ME_P0_STACK"},
    {93, "RS64_ME_P1_STACK"},
    {94, "RS64_MEC_P0_STACK"},
    {95, "RS64_MEC_P1_STACK"},
    {96, "RS64_MEC_P2_STACK"},
    {97, "RS64_MEC_P3_STACK"},
    {100, "VPEC_FW1"},
    {101, "VPEC_FW2"},
    {102, "VPE"},
    {128, "JPEG_RAM"},
    {129, "P2S_TABLE"},
};
constexpr CodeName kControls[] = {
    {65536, "INIT_RBI_RING"},       {131072, "INIT_GPCOM_RING"}, {196608, "DESTROY_RINGS"},
    {262144, "CAN_INIT_RINGS"},     {327680, "ENABLE_INT"},      {393216, "DISABLE_INT"},
    {458752, "MODE1_RST"},          {524288, "GBR_IH_SET"},      {589824, "CONSUME_CMD"},
    {786432, "DESTROY_GPCOM_RING"},
};
constexpr CodeName kBootloader[] = {
    {65536, "LOAD_SYSDRV"},        {131072, "LOAD_SOSDRV"},           {524288, "LOAD_KEY_DATABASE"},
    {720896, "LOAD_SOCDRV"},       {786432, "LOAD_DBGDRV"},           {851968, "LOAD_INTFDRV"},
    {917504, "LOAD_RASDRV"},       {983040, "LOAD_IPKEYMGRDRV"},      {1048576, "DRAM_LONG_TRAIN"},
    {2097152, "DRAM_SHORT_TRAIN"}, {268435456, "LOAD_TOS_SPL_TABLE"},
};

uint64_t Pair(std::span<const uint8_t> bytes, size_t low) {
  return LoadLe<uint32_t>(bytes.data() + low) |
         static_cast<uint64_t>(LoadLe<uint32_t>(bytes.data() + low + 4)) << 32;
}

std::string Or(std::string_view name, const char* what, uint32_t code) {
  return name.empty() ? what + std::to_string(code) : std::string(name);
}

}  // namespace

std::string PspCommandName(uint32_t id) {
  return Or(FindCode(kCommands, id), "command ", id);
}
std::string PspFwTypeName(uint32_t type) {
  return Or(FindCode(kFwTypes, type), "type ", type);
}
std::string PspControlName(uint32_t value) {
  return Or(FindCode(kControls, value & 0xf0000), "control ", value);
}
std::string PspBootloaderName(uint32_t command) {
  return Or(FindCode(kBootloader, command), "bootloader command ", command);
}

std::optional<PspFrame> DecodePspFrame(std::span<const uint8_t> bytes) {
  if (bytes.size() < kPspFrameSize) return std::nullopt;
  PspFrame frame;
  frame.command_address = Pair(bytes, 0x00);
  frame.command_size = LoadLe<uint32_t>(bytes.data() + 0x08);
  frame.fence_address = Pair(bytes, 0x0c);
  frame.fence_value = LoadLe<uint32_t>(bytes.data() + 0x14);
  return frame;
}

std::optional<PspCommand> DecodePspCommand(std::span<const uint8_t> bytes) {
  if (bytes.size() < 0x3c) return std::nullopt;
  const auto word = [&](size_t offset) { return LoadLe<uint32_t>(bytes.data() + offset); };
  PspCommand command;
  command.id = word(0x08);
  switch (command.id) {
    case kPspSetupTmr:
      command.address = Pair(bytes, 0x1c);
      command.size = word(0x24);
      command.system_address = Pair(bytes, 0x2c);
      break;
    case kPspLoadIpFw:
      command.address = Pair(bytes, 0x1c);
      command.size = word(0x24);
      command.fw_type = word(0x28);
      break;
    case kPspLoadToc:
      command.address = Pair(bytes, 0x1c);
      command.size = word(0x24);
      break;
    case kPspSpatialPart:
      command.mode = word(0x1c);
      break;
    default:
      break;
  }
  if (bytes.size() >= kPspResponseOffset + 0x14) {
    command.status = word(kPspResponseOffset);
    command.tmr_size = word(kPspResponseOffset + 0x10);
  }
  return command;
}

std::string DescribePspCommand(const PspCommand& command) {
  std::string text = PspCommandName(command.id);
  if (command.id == kPspLoadIpFw) text += " " + PspFwTypeName(command.fw_type);
  if (command.id == kPspSpatialPart) text += " mode " + std::to_string(command.mode);
  return text;
}

}  // namespace tg::amd
