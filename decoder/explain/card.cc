#include "decoder/explain/card.h"

#include "schemas/amd/ip.h"

namespace tg::explain {
namespace {

constexpr const char* kHiveReset = "extra/amdpci/hive_reset.py";

}  // namespace

bool ResetsSdmaAtExit(const Facts& facts) {
  const auto sdma = facts.device.registers().map().Version(amd::kHwSdma0);
  if (sdma) return sdma->major >= 6;
  return facts.device.gc().major >= 11;
}

void AdviseCardReset(const Facts& facts, Finding& f, const std::string& why,
                     const std::string& then) {
  const amd::IpVersion gc = facts.device.gc();
  if (gc.major == 9 && facts.device.boot().hive()) {
    f.advice = Advice::kHiveReset;
    f.reason = why + "; a hive is reset as a whole: the driver refuses AM_RESET=1 there; " + then;
    return;
  }
  if (gc == amd::IpVersion{9, 5, 0}) {
    f.advice = Advice::kHiveReset;
    f.reason =
        why +
        "; on gc 9.5.0 the driver (since 0.14.0) boots a card that AM set up only partially, "
        "AM_RESET=1 or not; " +
        then;
    return;
  }
  f.advice = Advice::kAmReset;
  f.reason = why + "; " + then;
  if (gc.major == 9) f.reason += std::string("; on a hive: ") + kHiveReset;
}

}  // namespace tg::explain
