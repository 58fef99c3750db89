#include "decoder/explain/finding.h"

namespace tg::explain {

std::string_view AdviceWord(Advice advice) {
  switch (advice) {
    case Advice::kNothing:
      return "nothing to do";
    case Advice::kContinue:
      return "CONTINUE";
    case Advice::kRestartProcess:
      return "RESTART PROCESS";
    case Advice::kAmReset:
      return "START ONCE WITH AM_RESET=1";
    case Advice::kReplug:
      return "REPLUG";
    case Advice::kReboot:
      return "REBOOT REQUIRED";
  }
  return "";
}

std::string_view ConfidenceWord(int confidence) {
  return confidence >= 80 ? "high" : confidence >= 50 ? "medium" : "low";
}

}  // namespace tg::explain
