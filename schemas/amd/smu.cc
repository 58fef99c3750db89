#include "schemas/amd/smu.h"

#include <cstdio>

#include "schemas/amd/code_name.h"

namespace tg::amd {
namespace {

// kernel smu_v13_0_0_ppsmc.h, smu_v13_0_6_ppsmc.h, smu_v13_0_12_ppsmc.h, smu_v14_0_2_ppsmc.h.
constexpr CodeName kMessages13_0_0[] = {
    {1, "TestMessage"},
    {2, "GetSmuVersion"},
    {3, "GetDriverIfVersion"},
    {4, "SetAllowedFeaturesMaskLow"},
    {5, "SetAllowedFeaturesMaskHigh"},
    {6, "EnableAllSmuFeatures"},
    {7, "DisableAllSmuFeatures"},
    {8, "EnableSmuFeaturesLow"},
    {9, "EnableSmuFeaturesHigh"},
    {10, "DisableSmuFeaturesLow"},
    {11, "DisableSmuFeaturesHigh"},
    {12, "GetRunningSmuFeaturesLow"},
    {13, "GetRunningSmuFeaturesHigh"},
    {14, "SetDriverDramAddrHigh"},
    {15, "SetDriverDramAddrLow"},
    {16, "SetToolsDramAddrHigh"},
    {17, "SetToolsDramAddrLow"},
    {18, "TransferTableSmu2Dram"},
    {19, "TransferTableDram2Smu"},
    {20, "UseDefaultPPTable"},
    {21, "EnterBaco"},
    {22, "ExitBaco"},
    {23, "ArmD3"},
    {24, "BacoAudioD3PME"},
    {25, "SetSoftMinByFreq"},
    {26, "SetSoftMaxByFreq"},
    {27, "SetHardMinByFreq"},
    {28, "SetHardMaxByFreq"},
    {29, "GetMinDpmFreq"},
    {30, "GetMaxDpmFreq"},
    {31, "GetDpmFreqByIndex"},
    {32, "OverridePcieParameters"},
    {33, "DramLogSetDramAddrHigh"},
    {34, "DramLogSetDramAddrLow"},
    {35, "DramLogSetDramSize"},
    {36, "SetWorkloadMask"},
    {37, "GetVoltageByDpm"},
    {38, "SetVideoFps"},
    {39, "GetDcModeMaxDpmFreq"},
    {40, "AllowGfxOff"},
    {41, "DisallowGfxOff"},
    {42, "PowerUpVcn"},
    {43, "PowerDownVcn"},
    {44, "PowerUpJpeg"},
    {45, "PowerDownJpeg"},
    {46, "PrepareMp1ForUnload"},
    {47, "Mode1Reset"},
    {48, "SetSystemVirtualDramAddrHigh"},
    {49, "SetSystemVirtualDramAddrLow"},
    {50, "SetPptLimit"},
    {51, "GetPptLimit"},
    {52, "ReenableAcDcInterrupt"},
    {53, "NotifyPowerSource"},
    {54, "RunDcBtc"},
    {55, "GetDebugData"},
    {56, "SetTemperatureInputSelect"},
    {57, "SetFwDstatesMask"},
    {58, "SetThrottlerMask"},
    {59, "SetExternalClientDfCstateAllow"},
    {60, "SetMGpuFanBoostLimitRpm"},
    {61, "DumpSTBtoDram"},
    {62, "STBtoDramLogSetDramAddrHigh"},
    {63, "STBtoDramLogSetDramAddrLow"},
    {64, "STBtoDramLogSetDramSize"},
    {65, "SetGpoAllow"},
    {66, "AllowGfxDcs"},
    {67, "DisallowGfxDcs"},
    {68, "EnableAudioStutterWA"},
    {69, "PowerUpUmsch"},
    {70, "PowerDownUmsch"},
    {71, "SetDcsArch"},
    {72, "TriggerVFFLR"},
    {73, "SetNumBadMemoryPagesRetired"},
    {74, "SetBadMemoryPagesRetiredFlagsPerChannel"},
    {75, "SetPriorityDeltaGain"},
    {76, "AllowIHHostInterrupt"},
    {78, "DALNotPresent"},
    {79, "Mode2Reset"},
    {81, "EnableUCLKShadow"},
};
constexpr CodeName kMessages13_0_6[] = {
    {1, "TestMessage"},
    {2, "GetSmuVersion"},
    {3, "GfxDriverReset"},
    {4, "GetDriverIfVersion"},
    {5, "EnableAllSmuFeatures"},
    {6, "DisableAllSmuFeatures"},
    {7, "RequestI2cTransaction"},
    {8, "GetMetricsVersion"},
    {9, "GetMetricsTable"},
    {10, "GetEccInfoTable"},
    {11, "GetEnabledSmuFeaturesLow"},
    {12, "GetEnabledSmuFeaturesHigh"},
    {13, "SetDriverDramAddrHigh"},
    {14, "SetDriverDramAddrLow"},
    {15, "SetToolsDramAddrHigh"},
    {16, "SetToolsDramAddrLow"},
    {17, "SetSystemVirtualDramAddrHigh"},
    {18, "SetSystemVirtualDramAddrLow"},
    {19, "SetSoftMinByFreq"},
    {20, "SetSoftMaxByFreq"},
    {21, "GetMinDpmFreq"},
    {22, "GetMaxDpmFreq"},
    {23, "GetDpmFreqByIndex"},
    {24, "SetPptLimit"},
    {25, "GetPptLimit"},
    {26, "DramLogSetDramAddrHigh"},
    {27, "DramLogSetDramAddrLow"},
    {28, "DramLogSetDramSize"},
    {29, "GetDebugData"},
    {30, "HeavySBR"},
    {31, "SetNumBadHbmPagesRetired"},
    {32, "DFCstateControl"},
    {33, "GetGmiPwrDnHyst"},
    {34, "SetGmiPwrDnHyst"},
    {35, "GmiPwrDnControl"},
    {36, "EnterGfxoff"},
    {37, "ExitGfxoff"},
    {38, "EnableDeterminism"},
    {39, "DisableDeterminism"},
    {40, "DumpSTBtoDram"},
    {41, "STBtoDramLogSetDramAddrHigh"},
    {42, "STBtoDramLogSetDramAddrLow"},
    {43, "STBtoDramLogSetDramSize"},
    {44, "SetSystemVirtualSTBtoDramAddrHigh"},
    {45, "SetSystemVirtualSTBtoDramAddrLow"},
    {46, "GfxDriverResetRecovery"},
    {47, "TriggerVFFLR"},
    {48, "SetSoftMinGfxClk"},
    {49, "SetSoftMaxGfxClk"},
    {50, "GetMinGfxDpmFreq"},
    {51, "GetMaxGfxDpmFreq"},
    {52, "PrepareForDriverUnload"},
    {53, "ReadThrottlerLimit"},
    {54, "QueryValidMcaCount"},
    {55, "McaBankDumpDW"},
    {56, "GetCTFLimit"},
    {57, "ClearMcaOnRead"},
    {58, "QueryValidMcaCeCount"},
    {59, "McaBankCeDumpDW"},
    {64, "SelectPLPDMode"},
    {67, "RmaDueToBadPageThreshold"},
    {68, "SetThrottlingPolicy"},
    {69, "SetPhsDetWRbwThreshold"},
    {70, "SetPhsDetWRbwFreqHigh"},
    {71, "SetPhsDetWRbwFreqLow"},
    {72, "SetPhsDetWRbwHystDown"},
    {73, "SetPhsDetWRbwAlpha"},
    {74, "SetPhsDetOnOff"},
    {75, "GetPhsDetResidency"},
    {77, "ResetSDMA"},
    {89, "GetStaticMetricsTable"},
    {91, "ResetVCN"},
};
constexpr CodeName kMessages13_0_12[] = {
    {1, "TestMessage"},
    {2, "GetSmuVersion"},
    {3, "GfxDriverReset"},
    {4, "GetDriverIfVersion"},
    {5, "EnableAllSmuFeatures"},
    {6, "DisableAllSmuFeatures"},
    {7, "RequestI2cTransaction"},
    {8, "GetMetricsVersion"},
    {9, "GetMetricsTable"},
    {10, "GetEccInfoTable"},
    {11, "GetEnabledSmuFeaturesLow"},
    {12, "GetEnabledSmuFeaturesHigh"},
    {13, "SetDriverDramAddrHigh"},
    {14, "SetDriverDramAddrLow"},
    {15, "SetToolsDramAddrHigh"},
    {16, "SetToolsDramAddrLow"},
    {17, "SetSystemVirtualDramAddrHigh"},
    {18, "SetSystemVirtualDramAddrLow"},
    {19, "SetSoftMinByFreq"},
    {20, "SetSoftMaxByFreq"},
    {21, "GetMinDpmFreq"},
    {22, "GetMaxDpmFreq"},
    {23, "GetDpmFreqByIndex"},
    {24, "SetPptLimit"},
    {25, "GetPptLimit"},
    {26, "DramLogSetDramAddrHigh"},
    {27, "DramLogSetDramAddrLow"},
    {28, "DramLogSetDramSize"},
    {29, "GetDebugData"},
    {30, "HeavySBR"},
    {31, "SetNumBadHbmPagesRetired"},
    {32, "DFCstateControl"},
    {33, "GetGmiPwrDnHyst"},
    {34, "SetGmiPwrDnHyst"},
    {35, "GmiPwrDnControl"},
    {36, "EnterGfxoff"},
    {37, "ExitGfxoff"},
    {38, "EnableDeterminism"},
    {39, "DisableDeterminism"},
    {40, "DumpSTBtoDram"},
    {41, "STBtoDramLogSetDramAddrHigh"},
    {42, "STBtoDramLogSetDramAddrLow"},
    {43, "STBtoDramLogSetDramSize"},
    {44, "SetSystemVirtualSTBtoDramAddrHigh"},
    {45, "SetSystemVirtualSTBtoDramAddrLow"},
    {46, "GfxDriverResetRecovery"},
    {47, "TriggerVFFLR"},
    {48, "SetSoftMinGfxClk"},
    {49, "SetSoftMaxGfxClk"},
    {50, "GetMinGfxDpmFreq"},
    {51, "GetMaxGfxDpmFreq"},
    {52, "PrepareForDriverUnload"},
    {53, "ReadThrottlerLimit"},
    {54, "QueryValidMcaCount"},
    {55, "McaBankDumpDW"},
    {56, "GetCTFLimit"},
    {57, "ClearMcaOnRead"},
    {58, "QueryValidMcaCeCount"},
    {59, "McaBankCeDumpDW"},
    {64, "SelectPLPDMode"},
    {65, "PmLogReadSample"},
    {66, "PmLogGetTableVersion"},
    {67, "RmaDueToBadPageThreshold"},
    {68, "SetThrottlingPolicy"},
    {69, "SetPhaseDetectCSBWThreshold"},
    {70, "SetPhaseDetectFreqHigh"},
    {71, "SetPhaseDetectFreqLow"},
    {72, "SetPhaseDetectDownHysterisis"},
    {73, "SetPhaseDetectAlphaX1e6"},
    {74, "SetPhaseDetectOnOff"},
    {75, "GetPhaseDetectResidency"},
    {76, "UpdatePccWaitDecMaxStr"},
    {77, "ResetSDMA"},
    {78, "GetRasTableVersion"},
    {80, "GetBadPageCount"},
    {81, "GetBadPageMcaAddress"},
    {83, "SetTimestamp"},
    {84, "SetTimestampHi"},
    {85, "GetTimestamp"},
    {87, "GetBadPageIpIdLoHi"},
    {88, "EraseRasTable"},
    {89, "GetStaticMetricsTable"},
    {90, "ResetVfArbitersByIndex"},
    {92, "GetSystemMetricsTable"},
    {93, "GetSystemMetricsVersion"},
    {94, "ResetVCN"},
    {95, "SetFastPptLimit"},
    {96, "GetFastPptLimit"},
};
constexpr CodeName kMessages14_0_2[] = {
    {1, "TestMessage"},
    {2, "GetSmuVersion"},
    {3, "GetDriverIfVersion"},
    {4, "SetAllowedFeaturesMaskLow"},
    {5, "SetAllowedFeaturesMaskHigh"},
    {6, "EnableAllSmuFeatures"},
    {7, "DisableAllSmuFeatures"},
    {8, "EnableSmuFeaturesLow"},
    {9, "EnableSmuFeaturesHigh"},
    {10, "DisableSmuFeaturesLow"},
    {11, "DisableSmuFeaturesHigh"},
    {12, "GetRunningSmuFeaturesLow"},
    {13, "GetRunningSmuFeaturesHigh"},
    {14, "SetDriverDramAddrHigh"},
    {15, "SetDriverDramAddrLow"},
    {16, "SetToolsDramAddrHigh"},
    {17, "SetToolsDramAddrLow"},
    {18, "TransferTableSmu2Dram"},
    {19, "TransferTableDram2Smu"},
    {20, "UseDefaultPPTable"},
    {21, "EnterBaco"},
    {22, "ExitBaco"},
    {23, "ArmD3"},
    {24, "BacoAudioD3PME"},
    {25, "SetSoftMinByFreq"},
    {26, "SetSoftMaxByFreq"},
    {27, "SetHardMinByFreq"},
    {28, "SetHardMaxByFreq"},
    {29, "GetMinDpmFreq"},
    {30, "GetMaxDpmFreq"},
    {31, "GetDpmFreqByIndex"},
    {32, "OverridePcieParameters"},
    {33, "DramLogSetDramAddrHigh"},
    {34, "DramLogSetDramAddrLow"},
    {35, "DramLogSetDramSize"},
    {36, "SetWorkloadMask"},
    {37, "GetVoltageByDpm"},
    {38, "SetVideoFps"},
    {39, "GetDcModeMaxDpmFreq"},
    {40, "AllowGfxOff"},
    {41, "DisallowGfxOff"},
    {42, "PowerUpVcn"},
    {43, "PowerDownVcn"},
    {44, "PowerUpJpeg"},
    {45, "PowerDownJpeg"},
    {46, "PrepareMp1ForUnload"},
    {48, "SetSystemVirtualDramAddrHigh"},
    {49, "SetSystemVirtualDramAddrLow"},
    {50, "SetPptLimit"},
    {51, "GetPptLimit"},
    {52, "ReenableAcDcInterrupt"},
    {53, "NotifyPowerSource"},
    {54, "RunDcBtc"},
    {56, "SetTemperatureInputSelect"},
    {57, "SetFwDstatesMask"},
    {58, "SetThrottlerMask"},
    {59, "SetExternalClientDfCstateAllow"},
    {60, "SetMGpuFanBoostLimitRpm"},
    {61, "DumpSTBtoDram"},
    {62, "STBtoDramLogSetDramAddress"},
    {63, "DummyUndefined"},
    {64, "STBtoDramLogSetDramSize"},
    {65, "SetOBMTraceBufferLogging"},
    {66, "UseProfilingMode"},
    {67, "AllowGfxDcs"},
    {68, "DisallowGfxDcs"},
    {69, "EnableAudioStutterWA"},
    {70, "PowerUpUmsch"},
    {71, "PowerDownUmsch"},
    {72, "SetDcsArch"},
    {73, "TriggerVFFLR"},
    {74, "SetNumBadMemoryPagesRetired"},
    {75, "SetBadMemoryPagesRetiredFlagsPerChannel"},
    {76, "SetPriorityDeltaGain"},
    {77, "AllowIHHostInterrupt"},
    {78, "EnableShadowDpm"},
    {79, "Mode3Reset"},
    {80, "SetDriverDramAddr"},
    {81, "SetToolsDramAddr"},
    {82, "TransferTableSmu2DramWithAddr"},
    {83, "TransferTableDram2SmuWithAddr"},
    {84, "GetAllRunningSmuFeatures"},
    {85, "GetSvi3Voltage"},
    {86, "UpdatePolicy"},
    {87, "ExtPwrConnSupport"},
    {88, "PreloadSwPstateForUclkOverDrive"},
};

constexpr CodeName kClocksNavi[] = {{0, "GFXCLK"}, {1, "SOCCLK"}, {2, "UCLK"}, {3, "FCLK"}};
constexpr CodeName kClocksMi300[] = {{0, "VCLK"}, {1, "DCLK"}, {2, "SOCCLK"},
                                     {3, "UCLK"}, {4, "FCLK"}, {5, "LCLK"}};

struct Family {
  std::span<const CodeName> messages;
  std::span<const CodeName> clocks;
};
constexpr Family kNavi31 = {kMessages13_0_0, kClocksNavi};
constexpr Family kMi300 = {kMessages13_0_6, kClocksMi300};
constexpr Family kMi350 = {kMessages13_0_12, kClocksMi300};
constexpr Family kNavi48 = {kMessages14_0_2, kClocksNavi};

// The module that tinygrad takes: same major, newest not newer; 13.0.7 is served by 13.0.0.
const Family* FamilyFor(IpVersion mp1) {
  if (mp1.major == 14) return mp1 >= IpVersion{14, 0, 2} ? &kNavi48 : nullptr;
  if (mp1.major != 13) return nullptr;
  if (mp1 == IpVersion{13, 0, 7}) return &kNavi31;
  if (mp1 >= IpVersion{13, 0, 12}) return &kMi350;
  return mp1 >= IpVersion{13, 0, 6} ? &kMi300 : &kNavi31;
}

}  // namespace

std::string SmuMessageName(IpVersion mp1, uint32_t message) {
  if (const Family* family = FamilyFor(mp1)) {
    if (const std::string_view name = FindCode(family->messages, message); !name.empty()) {
      return std::string(name);
    }
  }
  char hex[16];
  std::snprintf(hex, sizeof hex, "0x%x", message);
  return std::string("message ") + hex;
}

std::optional<uint32_t> SmuMessageNumber(IpVersion mp1, std::string_view name) {
  if (const Family* family = FamilyFor(mp1)) {
    for (const CodeName& message : family->messages) {
      if (message.name == name) return message.code;
    }
  }
  return std::nullopt;
}

std::string SmuClockName(IpVersion mp1, uint32_t clock) {
  if (const Family* family = FamilyFor(mp1)) {
    if (const std::string_view name = FindCode(family->clocks, clock); !name.empty()) {
      return std::string(name);
    }
  }
  return "clock " + std::to_string(clock);
}

std::string_view SmuDebugMessageName(uint32_t message) {
  return message == kSmuDebugMode1Reset ? "Mode1Reset" : std::string_view();
}

std::string SmuResponseText(uint32_t response) {
  switch (response) {
    case kSmuNoAnswer:
      return "no answer";
    case kSmuOk:
      return "ok";
    case 0xFF:
      return "failed";
    case 0xFE:
      return "unknown command";
    case 0xFD:
      return "rejected: prerequisite";
    case 0xFC:
      return "rejected: busy";
    case 0xFFFFFFFF:
      return "all ones (not an answer)";
    default:
      return "response " + std::to_string(response);
  }
}

std::string SmuArgumentText(IpVersion mp1, uint32_t message, uint32_t argument) {
  const std::string name = SmuMessageName(mp1, message);
  const uint32_t low = argument & 0xffff;
  if (name == "GetDpmFreqByIndex") {
    return SmuClockName(mp1, argument >> 16) +
           (low == 0xff ? " count" : " level " + std::to_string(low));
  }
  if (name == "SetSoftMinByFreq" || name == "SetSoftMaxByFreq") {
    return SmuClockName(mp1, argument >> 16) + " " + std::to_string(low) + " MHz";
  }
  if (name == "SetPptLimit") return std::to_string(argument) + " W";
  char hex[16];
  std::snprintf(hex, sizeof hex, "0x%x", argument);
  return hex;
}

}  // namespace tg::amd
