#include "schemas/amd/ip.h"

#include <algorithm>
#include <iterator>

namespace tg::amd {
namespace {

struct IdName {
  uint16_t id;
  const char* name;
};
// kernel: soc15_hw_ip.h; the names as drivers speak of them. In ascending order.
constexpr IdName kNames[] = {
    {1, "MP1"},      {2, "MP2"},         {3, "THM"},         {4, "SMUIO"},
    {5, "FUSE"},     {6, "CLKA"},        {10, "PWR"},        {11, "GC"},
    {12, "VCN"},     {13, "AUDIO_AZ"},   {14, "ACP"},        {15, "DCI"},
    {16, "DCO"},     {17, "XDMA"},       {18, "DCEAZ"},      {19, "SDPMUX"},
    {20, "NTB"},     {21, "VPE"},        {24, "IOHC"},       {28, "L2IMU"},
    {32, "VCE"},     {34, "MMHUB"},      {35, "ATHUB"},      {36, "DBGU_NBIO"},
    {37, "DFX"},     {38, "DBGU0"},      {39, "DBGU1"},      {40, "OSSSYS"},
    {41, "HDP"},     {42, "SDMA0"},      {43, "SDMA1"},      {44, "ISP"},
    {45, "DBGU_IO"}, {46, "DF"},         {47, "CLKB"},       {48, "FCH"},
    {49, "DFX_DAP"}, {50, "L1IMU_PCIE"}, {51, "L1IMU_NBIF"}, {52, "L1IMU_IOAGR"},
    {53, "L1IMU3"},  {54, "L1IMU4"},     {55, "L1IMU5"},     {56, "L1IMU6"},
    {57, "L1IMU7"},  {58, "L1IMU8"},     {59, "L1IMU9"},     {60, "L1IMU10"},
    {61, "L1IMU11"}, {62, "L1IMU12"},    {63, "L1IMU13"},    {64, "L1IMU14"},
    {65, "L1IMU15"}, {66, "WAFLC"},      {67, "FCH_USB_PD"}, {68, "SDMA2"},
    {69, "SDMA3"},   {70, "PCIE"},       {80, "PCS"},        {89, "DDCL"},
    {90, "SST"},     {91, "LSDMA"},      {100, "IOAGR"},     {108, "NBIF"},
    {124, "IOAPIC"}, {128, "SYSTEMHUB"}, {144, "NTBCCP"},    {150, "UMC"},
    {168, "SATA"},   {170, "USB"},       {176, "CCXSEC"},    {200, "XGMI"},
    {216, "XGBE"},   {255, "MP0"},       {271, "DMU"},       {272, "DIO"},
    {274, "DAZ"},
};
// tinygrad's hw_id_map.
constexpr uint16_t kKnown[] = {1,  3,  4,  6,  10, 11, 12, 15, 21,  32,  34,  35,  40, 41,
                               42, 43, 44, 46, 68, 69, 70, 91, 108, 150, 200, 255, 271};

}  // namespace

std::string ToString(const IpVersion& version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.revision);
}

std::string HwIdName(uint16_t hw_id) {
  const auto* found = std::lower_bound(std::begin(kNames), std::end(kNames), hw_id,
                                       [](const IdName& n, uint16_t id) { return n.id < id; });
  if (found != std::end(kNames) && found->id == hw_id) return found->name;
  return "hw id " + std::to_string(hw_id);
}

std::string_view AsicName(IpVersion gc) {
  struct Asic {
    IpVersion gc;
    std::string_view name;
  };
  constexpr Asic kAsics[] = {
      {{9, 4, 3}, "MI300"},       {{9, 4, 4}, "MI300"},    {{9, 5, 0}, "MI350"},
      {{11, 0, 0}, "navi31"},     {{11, 0, 1}, "phoenix"}, {{11, 0, 2}, "navi33"},
      {{11, 0, 3}, "navi32"},     {{11, 0, 4}, "phoenix"}, {{11, 5, 0}, "strix"},
      {{11, 5, 1}, "strix halo"}, {{12, 0, 0}, "navi44"},  {{12, 0, 1}, "navi48"},
  };
  for (const Asic& asic : kAsics) {
    if (asic.gc == gc) return asic.name;
  }
  return {};
}

bool IsKnownHwId(uint16_t hw_id) {
  return std::binary_search(std::begin(kKnown), std::end(kKnown), hw_id);
}

}  // namespace tg::amd
