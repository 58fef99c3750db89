// What the proxy does with a request, by the guard (--read-only, --deny) and the fault injection
// (--inject). Decides; the session acts.
//
//   guard   keeps requests from the server. A request with an answer gets status 1 and a text (the
//           server's own error form), a posted write is dropped; the stream stays in step. It fails
//           closed: what it cannot tell, it keeps.
//   inject  strikes where a rule matches and its turn has come; at most one rule per request, the
//           first given. What it cannot tell does not match.
//
// The guard comes first; rules of --inject count only what it lets through.
//
// What the guard keeps although no rule names it, because behind it nothing could be told any more:
// an unknown command (its length is not known, so writes could hide in what follows), a 26-byte
// frame unless --protocol r1 was given (a server of today would cut it elsewhere), and over a Unix
// socket PROBE with a payload and SYSMEM_WRITE: TinyGPU.app does not take their payload and reads
// it as requests.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/rules/registers.h"
#include "proxy/rules/rule.h"
#include "schemas/result.h"
#include "schemas/wire/framer.h"

namespace tg::proxy {

struct RuleSet {
  bool read_only = false;
  std::vector<Rule> deny;
  std::vector<Rule> inject;
  std::shared_ptr<const amd::RegisterMap> asic;  // --asic

  bool guards() const { return read_only || !deny.empty(); }
  bool empty() const { return !guards() && inject.empty(); }
};

struct RuleOptions {
  bool read_only = false;
  std::vector<std::string> deny;    // each one rule, or several with ';' between
  std::vector<std::string> inject;  // each one rule
  std::string asic;
};
// nullptr when there is nothing to do.
Result<std::shared_ptr<const RuleSet>> MakeRuleSet(const RuleOptions& options);

// What is done to the answer of a request that was forwarded.
struct ReplyChange {
  ActionKind kind = ActionKind::kNone;  // kValue, kShort
  uint64_t value = 0;
  uint64_t bytes = 0;
  std::string by;  // "--inject RULE"
};

struct Decision {
  enum class Kind : uint8_t { kForward, kAnswer, kDrop, kClose };
  Kind kind = Kind::kForward;
  bool guard = false;     // not an injection
  std::string by;         // what decided: "--read-only", "--deny RULE", "--inject RULE"
  std::string text;       // kAnswer: for the client, as the server's error text
  uint64_t delay_ms = 0;  // before it is forwarded or answered
  ReplyChange change;     // kForward
};

class Policy {
 public:
  struct Link {
    bool app_server = true;  // a Unix socket: TinyGPU.app's rules
    bool r1_given = false;   // --protocol r1
  };
  Policy(std::shared_ptr<const RuleSet> rules, Link link);
  ~Policy();

  // A kRequest event. `event.payload` may be only the first part of a large payload; the decision
  // is for the whole message.
  Decision OnRequest(const wire::RequestEvent& event, wire::Revision revision);
  // A message whose decision was to forward it goes on; `call` is its number.
  void OnForwarded(const wire::RequestEvent& event, uint64_t call);
  // An answer of the server, as it came (kReply, kBodyChunk).
  void OnReply(const wire::ReplyEvent& event);
  // The stream has lost its framing. True if it must not go on (then `text` says why).
  bool StopsAtRaw(std::string& text) const;

  // Things worth a line in the log that have come up since the last call: a map became known, a
  // rule cannot strike yet.
  std::vector<std::string> TakeNotes();

 private:
  enum class Match : uint8_t { kNo, kYes, kUnknown };
  struct Names;  // addresses of the rules' names on one map
  RegisterScope& Scope(uint32_t dev);
  Match Matches(const Rule& rule, size_t index, const wire::RequestEvent& event);
  Match MatchRegister(const Rule& rule, size_t index, const wire::RequestEvent& event);
  Decision Guard(const wire::RequestEvent& event, wire::Revision revision);
  Decision Keep(const wire::RequestHeader& header, std::string by, const std::string& why) const;

  const std::shared_ptr<const RuleSet> rules_;
  const Link link_;
  const bool uses_registers_;
  std::vector<uint64_t> counts_;  // matches so far, by rule: deny, then inject
  std::map<uint32_t, std::unique_ptr<RegisterScope>> scopes_;  // by device number
  std::map<const amd::RegisterMap*, std::unique_ptr<Names>> names_;
  std::vector<std::string> notes_;
  bool said_unknown_ = false;
};

// For logs: "read-only; 2 deny rules; 1 inject rule".
std::string DescribeRules(const RuleSet& rules);

}  // namespace tg::proxy
