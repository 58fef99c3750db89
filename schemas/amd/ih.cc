#include "schemas/amd/ih.h"

#include "schemas/amd/code_name.h"

namespace tg::amd {
namespace {

constexpr CodeName kSoc21Clients[] = {
    {0, "IH"},    {2, "ATHUB"},  {3, "BIF"},      {4, "DCN"},        {5, "ISP"},  {6, "MP3"},
    {7, "RLC"},   {10, "GFX"},   {11, "IMU"},     {14, "VCN1"},      {15, "THM"}, {16, "VCN"},
    {17, "VPE1"}, {18, "VMC"},   {20, "GRBM_CP"}, {22, "ROM_SMUIO"}, {23, "DF"},  {24, "VPE"},
    {25, "PWR"},  {26, "LSDMA"}, {30, "MP0"},     {31, "MP1"},
};
constexpr CodeName kSoc15Clients[] = {
    {0, "IH"},     {1, "SDMA2"},  {2, "ATHUB"},    {3, "BIF"},   {4, "SDMA3"},      {5, "SDMA4"},
    {6, "PCIE0"},  {7, "RLC"},    {8, "SDMA0"},    {9, "SDMA1"}, {10, "SE0SH"},     {11, "SE1SH"},
    {12, "SE2SH"}, {13, "SE3SH"}, {14, "UVD1"},    {15, "THM"},  {16, "UVD"},       {17, "SDMA5"},
    {18, "VMC"},   {19, "SDMA6"}, {20, "GRBM_CP"}, {21, "ATS"},  {22, "ROM_SMUIO"}, {23, "DF"},
    {24, "SDMA7"}, {25, "PWR"},   {27, "UTCL2"},   {28, "EA"},   {29, "UTCL2LOG"},  {30, "MP0"},
    {31, "MP1"},
};
// Clients GFX and GRBM_CP (kernel: irqsrcs_gfx_11_0_0.h); gfx12 moved one of them.
constexpr CodeName kGfx11Sources[] = {
    {0, "UTCL2_FAULT"},
    {1, "UTCL2_DATA_POISONING"},
    {10, "MEM_ACCES_MON"},
    {48, "SDMA_ATOMIC_RTN_DONE"},
    {49, "SDMA_TRAP"},
    {50, "SDMA_SRBMWRITE"},
    {51, "SDMA_CTXEMPTY"},
    {52, "SDMA_PREEMPT"},
    {53, "SDMA_IB_PREEMPT"},
    {54, "SDMA_DOORBELL_INVALID"},
    {55, "SDMA_QUEUE_HANG"},
    {56, "SDMA_ATOMIC_TIMEOUT"},
    {57, "SDMA_POLL_TIMEOUT"},
    {58, "SDMA_PAGE_TIMEOUT"},
    {59, "SDMA_PAGE_NULL"},
    {60, "SDMA_PAGE_FAULT"},
    {61, "SDMA_VM_HOLE"},
    {62, "SDMA_ECC"},
    {63, "SDMA_FROZEN"},
    {64, "SDMA_SRAM_ECC"},
    {65, "SDMA_SEM_INCOMPLETE_TIMEOUT"},
    {66, "SDMA_SEM_WAIT_FAIL_TIMEOUT"},
    {67, "SDMA_FENCE"},
    {128, "RLC_GC_FED_INTERRUPT"},
    {177, "CP_GENERIC_INT"},
    {180, "CP_PM4_PKT_RSVD_BIT_ERROR"},
    {181, "CP_EOP_INTERRUPT"},
    {183, "CP_BAD_OPCODE_ERROR"},
    {184, "CP_PRIV_REG_FAULT"},
    {185, "CP_PRIV_INSTR_FAULT"},
    {186, "CP_WAIT_MEM_SEM_FAULT"},
    {187, "CP_CTX_EMPTY_INTERRUPT"},
    {188, "CP_CTX_BUSY_INTERRUPT"},
    {192, "CP_ME_WAIT_REG_MEM_POLL_TIMEOUT"},
    {193, "CP_SIG_INCOMPLETE"},
    {194, "CP_PREEMPT_ACK"},
    {195, "CP_GPF"},
    {196, "CP_GDS_ALLOC_ERROR"},
    {197, "CP_ECC_ERROR"},
    {199, "CP_COMPUTE_QUERY_STATUS"},
    {200, "CP_VM_DOORBELL"},
    {201, "CP_FUE_ERROR"},
    {202, "RLC_STRM_PERF_MONITOR_INTERRUPT"},
    {232, "GRBM_RD_TIMEOUT_ERROR"},
    {233, "GRBM_REG_GUI_IDLE"},
    {239, "SQ_INTERRUPT_ID"},
};
constexpr uint8_t kGfx11Fence = 67;
constexpr uint8_t kGfx12Fence = 70;
// Clients GRBM_CP and SE0..3 (irqsrcs_gfx_9_0.h).
constexpr CodeName kGfx9CpSources[] = {
    {176, "CP_RB_INTERRUPT_PKT"},
    {177, "CP_IB1_INTERRUPT_PKT"},
    {178, "CP_IB2_INTERRUPT_PKT"},
    {180, "CP_PM4_PKT_RSVD_BIT_ERROR"},
    {181, "CP_EOP_INTERRUPT"},
    {183, "CP_BAD_OPCODE_ERROR"},
    {184, "CP_PRIV_REG_FAULT"},
    {185, "CP_PRIV_INSTR_FAULT"},
    {186, "CP_WAIT_MEM_SEM_FAULT"},
    {187, "CP_CTX_EMPTY_INTERRUPT"},
    {188, "CP_CTX_BUSY_INTERRUPT"},
    {192, "CP_ME_WAIT_REG_MEM_POLL_TIMEOUT"},
    {193, "CP_SIG_INCOMPLETE"},
    {194, "CP_PREEMPT_ACK"},
    {195, "CP_GPF"},
    {196, "CP_GDS_ALLOC_ERROR"},
    {197, "CP_ECC_ERROR"},
    {199, "CP_COMPUTE_QUERY_STATUS"},
    {200, "CP_VM_DOORBELL"},
    {201, "CP_FUE_ERROR"},
    {202, "RLC_STRM_PERF_MONITOR_INTERRUPT"},
    {232, "GRBM_RD_TIMEOUT_ERROR"},
    {233, "GRBM_REG_GUI_IDLE"},
    {239, "SQ_INTERRUPT_ID"},
};
// The SDMA clients of gfx9 (irqsrcs_sdma0_4_0.h).
constexpr CodeName kGfx9SdmaSources[] = {
    {217, "SDMA_ATOMIC_RTN_DONE"},
    {218, "SDMA_ATOMIC_TIMEOUT"},
    {219, "SDMA_IB_PREEMPT"},
    {220, "SDMA_ECC"},
    {221, "SDMA_PAGE_FAULT"},
    {222, "SDMA_PAGE_NULL"},
    {223, "SDMA_XNACK"},
    {224, "SDMA_TRAP"},
    {225, "SDMA_SEM_INCOMPLETE_TIMEOUT"},
    {226, "SDMA_SEM_WAIT_FAIL_TIMEOUT"},
    {228, "SDMA_SRAM_ECC"},
    {240, "SDMA_PREEMPT"},
    {242, "SDMA_VM_HOLE"},
    {243, "SDMA_CTXEMPTY"},
    {244, "SDMA_DOORBELL_INVALID"},
    {245, "SDMA_FROZEN"},
    {246, "SDMA_POLL_TIMEOUT"},
    {247, "SDMA_SRBMWRITE"},
};

constexpr uint8_t kClientGfx = 10;
constexpr uint8_t kClientGrbmCp = 20;
constexpr uint8_t kClientVmc = 18;
constexpr uint8_t kClientUtcl2 = 27;  // gfx9

bool IsGfx9Sdma(uint8_t client) {
  switch (client) {
    case 1:
    case 4:
    case 5:
    case 8:
    case 9:
    case 17:
    case 19:
    case 24:
      return true;
    default:
      return false;
  }
}

std::string_view ShaderErrorName(uint32_t type) {
  constexpr std::string_view kNames[] = {"EDC_FUE", "ILLEGAL_INST", "MEMVIOL", "EDC_FED"};
  return type < 4 ? kNames[type] : "unknown error";
}

}  // namespace

IhEntry DecodeIhEntry(std::span<const uint32_t, kIhEntryDwords> dwords) {
  IhEntry entry;
  entry.client = static_cast<uint8_t>(dwords[0]);
  entry.source = static_cast<uint8_t>(dwords[0] >> 8);
  entry.ring = static_cast<uint8_t>(dwords[0] >> 16);
  entry.vmid = static_cast<uint8_t>((dwords[0] >> 24) & 0xf);
  entry.vmid_type = (dwords[0] >> 31) != 0;
  entry.timestamp = dwords[1] | static_cast<uint64_t>(dwords[2] & 0xffff) << 32;
  entry.pasid = static_cast<uint16_t>(dwords[3]);
  entry.node = static_cast<uint8_t>(dwords[3] >> 16);
  for (int i = 0; i < 4; ++i) entry.context[i] = dwords[4 + i];
  return entry;
}

std::string IhClientName(IpVersion gc, uint8_t client) {
  const std::string_view name =
      gc.major >= 11 ? FindCode(kSoc21Clients, client) : FindCode(kSoc15Clients, client);
  return name.empty() ? "client " + std::to_string(client) : std::string(name);
}

std::string_view IhSourceName(IpVersion gc, uint8_t client, uint8_t source) {
  if (gc.major >= 11) {
    if (client != kClientGfx && client != kClientGrbmCp) return {};
    if (gc.major >= 12 && source == kGfx12Fence) return "SDMA_FENCE";
    if (gc.major >= 12 && source == kGfx11Fence) return {};
    return FindCode(kGfx11Sources, source);
  }
  if (client == kClientGrbmCp || (client >= 10 && client <= 13)) {
    return FindCode(kGfx9CpSources, source);
  }
  return IsGfx9Sdma(client) ? FindCode(kGfx9SdmaSources, source) : std::string_view();
}

IhMeaning ExplainIhEntry(IpVersion gc, const IhEntry& entry) {
  const std::string_view name = IhSourceName(gc, entry.client, entry.source);
  IhMeaning meaning;
  meaning.text = IhClientName(gc, entry.client) + " ";
  meaning.text += name.empty() ? "source " + std::to_string(entry.source) : std::string(name);
  if (name == "SDMA_TRAP") {
    meaning.effect = IhEffect::kIgnored;
  } else if (name == "SQ_INTERRUPT_ID") {
    const auto& ctx = entry.context;
    const uint32_t encoding = gc.major >= 11 ? (ctx[1] >> 6) & 3 : (ctx[0] >> 26) & 3;
    const uint32_t error =
        gc.major >= 11
            ? (ctx[0] >> 21) & 0xf
            : (((ctx[0] & 0xfff) | ((ctx[0] >> 16) & 0xf000) | ((ctx[1] << 16) & 0xff0000)) >> 20);
    constexpr std::string_view kEncodings[] = {"auto", "wave", "error", "encoding 3"};
    meaning.text += " ";
    meaning.text += kEncodings[encoding];
    meaning.effect = IhEffect::kIgnored;
    if (encoding == 2) {
      meaning.text += " ";
      meaning.text += ShaderErrorName(error);
      meaning.effect = IhEffect::kShaderError;
    }
  } else if (name == "UTCL2_FAULT" || (gc.major == 9 && entry.client == kClientUtcl2)) {
    meaning.effect = IhEffect::kPageFault;
  } else if (entry.client == kClientVmc) {
    meaning.text += " (MM hub fault)";
  }
  return meaning;
}

}  // namespace tg::amd
