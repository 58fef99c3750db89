#include "replay/sim/smu.h"

#include <cstring>

#include "schemas/amd/smu.h"

namespace tg::sim {
namespace {

constexpr uint32_t kFailed = 0xff;
constexpr uint32_t kUnknown = 0xfe;
constexpr uint32_t kDpmCount = 0xff;
constexpr uint32_t kTableBytes = 0x1000;

}  // namespace

Smu::Smu(Card& card, const Psp& psp, std::function<void()> mode1_reset)
    : card_(card), psp_(psp), mode1_reset_(std::move(mode1_reset)) {
  const auto number = [mp1 = card.Version(amd::kHwMp1)](std::string_view name) {
    return amd::SmuMessageNumber(mp1, name).value_or(UINT32_MAX);
  };
  numbers_ = {number("GetSmuVersion"),        number("SetDriverDramAddrHigh"),
              number("SetDriverDramAddrLow"), number("EnableAllSmuFeatures"),
              number("SetPptLimit"),          number("TransferTableSmu2Dram"),
              number("GetDpmFreqByIndex"),    number("SetSoftMinByFreq"),
              number("SetSoftMaxByFreq")};
  RegisterFile& regs = card.regs;
  message_ = regs.Define("mmMP1_SMN_C2PMSG_66");
  argument_ = regs.Define("mmMP1_SMN_C2PMSG_82");
  response_ = regs.Define("mmMP1_SMN_C2PMSG_90");
  debug_message_ = regs.Define("mmMP1_SMN_C2PMSG_75");
  debug_argument_ = regs.Define("mmMP1_SMN_C2PMSG_53");
  debug_response_ = regs.Define("mmMP1_SMN_C2PMSG_54");
  regs.OnWrite(message_, [this](uint32_t value) { Message(value); });
  regs.OnWrite(debug_message_, [this](uint32_t value) { DebugMessage(value); });
}

void Smu::Reset() {
  table_address_ = 0;
  soft_min_.fill(0);
  soft_max_.fill(0);
}

const ClockDomain* Smu::Clock(uint32_t id) const {
  for (const ClockDomain& clock : card_.asic.clocks)
    if (clock.id == id) return &clock;
  return nullptr;
}

uint32_t Smu::DpmFrequency(uint32_t argument) const {
  const ClockDomain* clock = Clock(argument >> 16);
  const uint32_t index = argument & 0xffff;
  if (!clock) return 0;
  if (index == kDpmCount) return static_cast<uint32_t>(clock->mhz.size());
  return index < clock->mhz.size() ? clock->mhz[index] : 0;
}

void Smu::Message(uint32_t message) {
  if (!psp_.Loaded(kFwSmu) || card_.hangs.Strike(HangKind::kSmuDead)) return;
  const uint32_t argument = argument_.value();
  const uint32_t clock = argument >> 16;
  uint32_t response = amd::kSmuOk;
  card_.counters.smu_messages++;
  if (message == numbers_.version) {
    argument_.Set(card_.asic.smu_version);
  } else if (message == numbers_.dram_high) {
    table_address_ = (table_address_ & 0xffffffff) | static_cast<uint64_t>(argument) << 32;
  } else if (message == numbers_.dram_low) {
    table_address_ = (table_address_ & ~0xffffffffull) | argument;
  } else if (message == numbers_.enable_features || message == numbers_.power_limit) {
    argument_.Set(0);
  } else if (message == numbers_.table) {
    const auto table = card_.Mc(table_address_, kTableBytes);
    if (table.empty()) {
      response = kFailed;
    } else {
      std::memset(table.data(), 0, table.size());  // metrics: nothing is measured here
    }
  } else if (message == numbers_.frequency) {
    argument_.Set(DpmFrequency(argument));
  } else if (message == numbers_.soft_min || message == numbers_.soft_max) {
    if (!Clock(clock)) {
      response = kFailed;
    } else {
      (message == numbers_.soft_min ? soft_min_ : soft_max_)[clock] = argument & 0xffff;
    }
  } else {
    response = kUnknown;
  }
  if (response != amd::kSmuOk) card_.counters.smu_rejected++;
  response_.Set(response);
}

void Smu::DebugMessage(uint32_t message) {
  if (!psp_.Loaded(kFwSmu) || card_.hangs.Strike(HangKind::kSmuDead)) return;
  card_.counters.smu_messages++;
  if (message != amd::kSmuDebugMode1Reset) {
    card_.counters.smu_rejected++;
    debug_response_.Set(kUnknown);
    return;
  }
  mode1_reset_();
  // The mailbox itself survives: the driver finds the answer after the reset.
  debug_response_.Set(amd::kSmuOk);
}

}  // namespace tg::sim
