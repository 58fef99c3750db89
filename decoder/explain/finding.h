// What a rule found: one possible cause, how sure it is, what it rests on, and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tg::explain {

// A place in the trace; seq 0: the trace as a whole.
struct Evidence {
  uint64_t seq = 0;
  std::string text;
};

// From harmless to drastic. What a person must do, and never more than the evidence asks for.
enum class Advice : uint8_t {
  kNothing,         // all is well
  kContinue,        // the program can go on
  kRestartProcess,  // the next start cleans up by itself
  kAmReset,         // one start with AM_RESET=1: the driver resets the card (mode 1)
  kHiveReset,       // cards that no single driver resets: extra/amdpci/hive_reset.py
  kReplug,          // the card or its server is gone: plug it in again
  kPowerCycle,      // the card's own fault: switch it off and on
  kReboot,          // neither reset can help, or both were seen to fail
};
inline constexpr size_t kColumns = 100;  // of a summary
// `text` if it fits, else its beginning and "...".
std::string Fit(std::string_view text, size_t columns = kColumns);

// "nothing to do", "RESTART PROCESS", ... "REBOOT REQUIRED".
std::string_view AdviceWord(Advice advice);

struct Finding;
// The advice and its reason; empty where there is nothing to do.
std::string AdviceText(const Finding& finding);

struct Finding {
  std::string rule;     // stable: "sdma_stuck", "page_fault"
  std::string kind;     // healthy, hang, device_lost, unreachable, refused,
                        // incomplete, killed, desync, unknown
  std::string queue;    // that it is about: "SDMA0", "COMPUTE0"; empty: none, or not known
  int confidence = 0;   // 0..100; the highest is the verdict
  std::string summary;  // one line, at most 100 columns
  Advice advice = Advice::kNothing;
  std::string reason;  // why that advice
  std::vector<Evidence> evidence;
  std::vector<Evidence> against;  // what speaks against it or was not seen
  std::vector<Evidence> chain;    // first bad event, what followed, where it stands
};

// "high" from 80 on, "medium" from 50 on, else "low".
std::string_view ConfidenceWord(int confidence);

}  // namespace tg::explain
