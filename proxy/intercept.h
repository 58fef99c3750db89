// What a session has beside it when it may do more than relay: the guard, the fault injection, the
// autopsy. Without any of them a session has none of this.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/autopsy.h"
#include "proxy/log.h"
#include "proxy/rules/policy.h"

namespace tg::proxy {

// Lines about refusals and injections: each kind a few times, then how many more there were, at
// most once a second. The trace has every single one.
class InterceptLog {
 public:
  explicit InterceptLog(const LogFn& log) : log_(log) {}
  void Add(LogLevel level, const std::string& by, std::string_view command,
           const std::string& line);
  // `all`: at the end of the session.
  void Tick(uint64_t now, bool all);

 private:
  static constexpr uint64_t kShown = 5;
  static constexpr size_t kMaxKinds = 256;
  struct Kind {
    std::string what;
    uint64_t count = 0;
    uint64_t told = 0;
  };
  const LogFn& log_;
  std::map<std::string, Kind> kinds_;
  uint64_t next_ns_ = 0;
};

struct Intercept {
  // An answer that the proxy makes, in its place among the server's: the pairing has its call.
  struct Made {
    uint64_t call = 0;
    std::vector<uint8_t> bytes;  // reply header and text
    std::string by;
  };

  Intercept(std::shared_ptr<const RuleSet> rules, Policy::Link link,
            const std::optional<AutopsyOptions>& autopsy_options, const LogFn& log);

  std::unique_ptr<Policy> policy;    // guard, injection
  std::unique_ptr<Autopsy> autopsy;  // --autopsy

  std::deque<Made> made;
  std::deque<std::pair<uint64_t, ReplyChange>> changes;  // by call, in order
  bool holding = false;                                  // delay=: nothing goes to the server
  bool skipping_payload = false;  // the rest of a large payload that is not passed on
  std::string close_reason;       // not empty: the session is to be ended
  InterceptLog lines;

  // Requests of the client wait: a delay, or a question of the proxy's own that is not answered.
  bool BlocksRequests() const {
    return holding || !close_reason.empty() || (autopsy && autopsy->waiting());
  }
  const ReplyChange* ChangeFor(uint64_t call) const {
    return !changes.empty() && changes.front().first == call ? &changes.front().second : nullptr;
  }
};

}  // namespace tg::proxy
