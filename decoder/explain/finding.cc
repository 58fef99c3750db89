#include "decoder/explain/finding.h"

namespace tg::explain {

std::string Fit(std::string_view text, size_t columns) {
  if (text.size() <= columns) return std::string(text);
  const size_t room = columns > 3 ? columns - 3 : 0;
  size_t end = text.rfind(' ', room);
  if (end == std::string_view::npos || end < room / 2) {
    end = room;
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) end--;  // inside a letter
  }
  return std::string(text.substr(0, end)) + "...";
}

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
    case Advice::kHiveReset:
      return "RUN extra/amdpci/hive_reset.py";
    case Advice::kReplug:
      return "REPLUG";
    case Advice::kPowerCycle:
      return "POWER-CYCLE";
    case Advice::kReboot:
      return "REBOOT REQUIRED";
  }
  return "";
}

std::string AdviceText(const Finding& finding) {
  if (finding.advice == Advice::kNothing) return {};
  std::string text(AdviceWord(finding.advice));
  if (!finding.reason.empty()) text += ": " + finding.reason;
  return text;
}

std::string_view ConfidenceWord(int confidence) {
  return confidence >= 80 ? "high" : confidence >= 50 ? "medium" : "low";
}

}  // namespace tg::explain
