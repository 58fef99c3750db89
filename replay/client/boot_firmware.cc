// The security processor's and the power controller's part of the boot.
#include <algorithm>
#include <array>
#include <thread>

#include "replay/client/boot.h"
#include "schemas/amd/psp.h"
#include "schemas/amd/smu.h"
#include "schemas/amd/vram_layout.h"
#include "schemas/wire/bytes.h"

namespace tg::client {
namespace {

using std::chrono::milliseconds;

// Bootloader commands of the sOS image's components, in the driver's order.
struct Component {
  uint32_t command;
  size_t size;
};
constexpr Component kComponents[] = {
    {0x80000, 3192},     // key database
    {0x10000000, 3192},  // SPL table
    {0x10000, 3128},     // system driver
    {0xB0000, 3448},     // SOC driver
    {0xD0000, 3512},     // interface driver
    {0xC0000, 3576},     // debug driver
    {0xE0000, 3640},     // RAS driver
};
constexpr size_t kSosSize = 3064, kTocSize = 3256;

// Firmware types per image (kernel: psp_gfx_if.h), in the driver's order.
constexpr uint32_t kSmuTypes[] = {18};
constexpr uint32_t kSdmaControl[] = {72}, kSdmaContext[] = {71};
constexpr uint32_t kPfp[] = {87}, kPfpStack[] = {90}, kMe[] = {88}, kMeStack[] = {92};
constexpr uint32_t kMec[] = {89}, kMecStack[] = {94};
constexpr uint32_t kImuI[] = {68}, kImuD[] = {69};
constexpr uint32_t kRlcIram[] = {26}, kRlcDram[] = {48}, kRlcP[] = {25}, kRlcV[] = {7},
                   kRlcG[] = {8};

// No firmware: bytes that are unlike each other's.
std::vector<uint8_t> StandIn(size_t size, uint32_t seed) {
  std::vector<uint8_t> image(size);
  for (size_t i = 0; i < size; i++) image[i] = static_cast<uint8_t>(seed * 41 + i * 7 + i / 251);
  return image;
}

}  // namespace

std::string Boot::Psp(int number) const {
  const bool mpasp = card_.version(amd::kHwMp0).major >= 14;
  return (mpasp ? "regMPASP_SMN_C2PMSG_" : "regMP0_SMN_C2PMSG_") + std::to_string(number);
}

bool Boot::SosAlive() {
  return card_.Get(Psp(81)) != 0;
}

// Four zero bytes more, and a multiple of 16.
void Boot::Upload(std::span<const uint8_t> image) {
  std::vector<uint8_t> padded(image.begin(), image.end());
  padded.resize((image.size() + 4 + 15) / 16 * 16);
  card_.WriteVram(amd::kVramPspMsg1, padded);
  card_.FlushHdp();
}

void Boot::LoadComponent(uint32_t command, uint32_t size) {
  const auto ready = [this] { return (card_.Get(Psp(35)) & amd::kPspBootloaderReady) != 0; };
  card_.Wait(ready, "PSP bootloader");
  Upload(StandIn(size, command >> 16));
  card_.Set(Psp(36), static_cast<uint32_t>((card_.fb_base() + amd::kVramPspMsg1) >> 20));
  card_.Set(Psp(35), command);
  if (command != amd::kPspLoadSosDrv) card_.Wait(ready, "PSP bootloader");
}

void Boot::SecurityProcessor() {
  if (!SosAlive()) {
    for (const Component& part : kComponents)
      LoadComponent(part.command, static_cast<uint32_t>(part.size));
    LoadComponent(amd::kPspLoadSosDrv, kSosSize);
    card_.Wait([this] { return SosAlive(); }, "start of the sOS");
  }
  if (card_.Get(Psp(71)) != 0) {
    card_.Set(Psp(64), amd::kPspRingDestroy);
    std::this_thread::sleep_for(milliseconds(20));
  }
  card_.Wait([this] { return (card_.Get(Psp(64)) & 0x80000000) != 0; }, "sOS");
  card_.SetPair(Psp(0).substr(0, Psp(0).size() - 1), "69", "70",
                card_.fb_base() + amd::kVramPspRing);
  card_.Set(Psp(71), amd::kVramPspRingSize);
  card_.Set(Psp(64), amd::kPspRingCreateKm);
  std::this_thread::sleep_for(milliseconds(20));
  card_.Wait([this] { return (card_.Get(Psp(64)) & 0x8000ffff) == 0x80000000; }, "PSP ring");

  const uint64_t upload = card_.fb_base() + amd::kVramPspMsg1;
  std::vector<uint8_t> command(amd::kPspCommandSize);
  const auto start = [&command](uint32_t id) {
    std::fill(command.begin(), command.end(), 0);
    StoreLe(&command[8], id);
  };
  Upload(StandIn(kTocSize, 4));
  start(amd::kPspLoadToc);
  StoreLe(&command[0x1c], upload);
  StoreLe<uint32_t>(&command[0x24], kTocSize);
  SubmitPsp(command);
  const uint32_t tmr_size = amd::DecodePspCommand(command)->tmr_size.value_or(0);

  LoadFirmware(kSmuTypes, 20000);
  const amd::IpVersion mp0 = card_.version(amd::kHwMp0);
  if (mp0 != amd::IpVersion{14, 0, 2} && mp0 != amd::IpVersion{14, 0, 3}) {
    start(amd::kPspSetupTmr);
    StoreLe(&command[0x1c], card_.fb_base() + amd::kVramPspTmr);
    StoreLe(&command[0x24], tmr_size);
    StoreLe<uint32_t>(&command[0x28], 2);  // virt_phy_addr
    StoreLe(&command[0x2c], amd::kVramPspTmr);
    SubmitPsp(command);
  }
  if (!card_.gfx12()) LoadFirmware(kSdmaControl, 4000);
  LoadFirmware(kSdmaContext, 8000);
  if (card_.gfx12()) {
    LoadFirmware(kPfp, 40000);
    LoadFirmware(kPfpStack, 4096);
    LoadFirmware(kMe, 40000);
    LoadFirmware(kMeStack, 4096);
  }
  LoadFirmware(kMec, 40000);
  LoadFirmware(kMecStack, 4096);
  LoadFirmware(kImuI, 6000);
  LoadFirmware(kImuD, 3000);
  LoadFirmware(kRlcIram, 3000);
  LoadFirmware(kRlcDram, 2000);
  LoadFirmware(kRlcP, 1500);
  LoadFirmware(kRlcV, 2500);
  LoadFirmware(kRlcG, 16000);
  start(amd::kPspAutoloadRlc);
  SubmitPsp(command);
}

void Boot::LoadFirmware(std::span<const uint32_t> types, size_t size) {
  Upload(StandIn(size, types.front()));
  for (uint32_t type : types) {
    std::vector<uint8_t> command(amd::kPspCommandSize);
    StoreLe<uint32_t>(&command[8], amd::kPspLoadIpFw);
    StoreLe(&command[0x1c], card_.fb_base() + amd::kVramPspMsg1);
    StoreLe(&command[0x24], static_cast<uint32_t>(size));
    StoreLe(&command[0x28], type);
    SubmitPsp(command);
  }
}

void Boot::SubmitPsp(std::span<uint8_t> command) {
  const uint32_t wptr = card_.Get(Psp(67));
  const uint32_t fence = wptr + 1;
  std::array<uint8_t, amd::kPspFrameSize> frame{};
  StoreLe(&frame[0x00], card_.fb_base() + amd::kVramPspCommand);
  StoreLe(&frame[0x0c], card_.fb_base() + amd::kVramPspFence);
  StoreLe(&frame[0x14], fence);
  card_.WriteVram(amd::kVramPspCommand, command);
  card_.WriteVram(amd::kVramPspRing + wptr * 4ull % amd::kVramPspRingSize, frame);
  card_.Set(Psp(67), wptr + amd::kPspFrameSize / 4);
  card_.Wait([&] { return card_.ReadVram32(amd::kVramPspFence) == fence; }, "PSP command");
  card_.ReadVram(amd::kVramPspCommand, command);
  const auto answer = amd::DecodePspCommand(command);
  if (!answer || answer->status.value_or(1) != 0)
    Throw(Error::Code::kIo, "the PSP refused " + (answer ? amd::DescribePspCommand(*answer) : "?"));
}

uint32_t Boot::Smu(std::string_view message, uint32_t argument, int limit_ms) {
  const auto number = amd::SmuMessageNumber(card_.version(amd::kHwMp1), message);
  if (!number) Throw(Error::Code::kUnsupported, "no SMU message " + std::string(message));
  card_.Set("mmMP1_SMN_C2PMSG_90", 0);
  card_.Set("mmMP1_SMN_C2PMSG_82", argument);
  card_.Set("mmMP1_SMN_C2PMSG_66", *number);
  card_.Wait([this] { return card_.Get("mmMP1_SMN_C2PMSG_90") == amd::kSmuOk; },
             "SMU message " + std::string(message), milliseconds(limit_ms));
  if (message != "GetDpmFreqByIndex") return 0;
  return card_.Get("mmMP1_SMN_C2PMSG_82") & 0x7fffffff;
}

bool Boot::SmuAlive() {
  try {
    Smu("GetSmuVersion", 0, 100);
  } catch (const Trouble&) {
    // The register decides.
  }
  return card_.Get("mmMP1_SMN_C2PMSG_90") != 0;
}

void Boot::Mode1Reset() {
  card_.Set("mmMP1_SMN_C2PMSG_54", 0);
  card_.Set("mmMP1_SMN_C2PMSG_53", 0);
  card_.Set("mmMP1_SMN_C2PMSG_75", amd::kSmuDebugMode1Reset);
  card_.Wait([this] { return card_.Get("mmMP1_SMN_C2PMSG_54") == amd::kSmuOk; }, "mode-1 reset");
  std::this_thread::sleep_for(milliseconds(500));
}

void Boot::SetUpPowerController() {
  const uint64_t table = card_.fb_base() + amd::kVramSmuTable;
  Smu("SetDriverDramAddrHigh", static_cast<uint32_t>(table >> 32));
  Smu("SetDriverDramAddrLow", static_cast<uint32_t>(table));
  Smu("EnableAllSmuFeatures", 0);
}

// First all levels of all clocks are read, then each is pinned.
void Boot::Clocks(bool highest) {
  constexpr uint32_t kClocks[] = {2, 3, 1, 0};  // memory, fabric, SOC, graphics
  static constexpr uint32_t kCount = 0xff;
  if (clock_levels_.empty()) {
    for (uint32_t clock : kClocks) {
      const uint32_t count = Smu("GetDpmFreqByIndex", clock << 16 | kCount);
      std::vector<uint32_t> mhz;
      for (uint32_t i = 0; i < std::min(count, kCount); i++)
        mhz.push_back(Smu("GetDpmFreqByIndex", clock << 16 | i));
      if (!mhz.empty()) clock_levels_.push_back({clock, std::move(mhz)});
    }
  }
  for (const auto& [clock, mhz] : clock_levels_) {
    const uint32_t level = highest ? mhz.back() : mhz.front();
    try {
      Smu("SetSoftMinByFreq", clock << 16 | level, 20);
    } catch (const Trouble&) {
      // As the driver: a slow answer to this one is no failure.
    }
    Smu("SetSoftMaxByFreq", clock << 16 | level);
  }
}

}  // namespace tg::client
