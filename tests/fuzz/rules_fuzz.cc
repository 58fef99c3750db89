// The rules of --deny and --inject: any text, and what they decide about any requests.
//
// Input: options u8 | rules, each u8 size and text | requests and answers. Options: bit 0
// --read-only, bit 1 TCP, bit 2 --protocol r1, bit 3 26-byte frames, bit 4 --asic, bits 5-7 number
// of rules; of a rule's size bit 7 says that it is one of --inject. Requests: kind u8 | operands.
#include <memory>
#include <string>
#include <vector>

#include "proxy/rules/policy.h"
#include "tests/fuzz/fuzz.h"

namespace tg::proxy {
namespace {

using wire::Command;

constexpr int kMaxSteps = 300;
// Offsets that mean something in BAR 5: index and data registers, the first registers that the
// driver reads, PCIE_INDEX2 and DATA2, a place of the discovery table's in VRAM.
constexpr uint64_t kPlaces[] = {0x0, 0x4, 0x18, 0x38, 0x3c, 0x60, 0x378c, 0x4b8c, 0x10000, 0x3c000};

void CheckRule(const Rule& rule, bool deny) {
  FUZZ_CHECK(rule.text.size() <= kMaxRuleText);
  FUZZ_CHECK(rule.low <= rule.high);
  FUZZ_CHECK(rule.when.first >= 1 && rule.when.step >= 1 && rule.when.first <= rule.when.last);
  FUZZ_CHECK(!rule.when.Holds(0) && rule.when.Holds(rule.when.first));
  FUZZ_CHECK(rule.name.empty() || rule.has_register);
  FUZZ_CHECK(rule.commands != 0);
  FUZZ_CHECK(rule.action.delay_ms <= kMaxDelayMs);
  if (deny) FUZZ_CHECK(rule.action.kind == ActionKind::kNone && rule.action.delay_ms == 0);
  // What logs and traces name it by is the rule.
  const auto again = deny ? ParseDeny(rule.text) : ParseInject(rule.text);
  FUZZ_CHECK(again);
  FUZZ_CHECK(again->commands == rule.commands && again->bar == rule.bar &&
             again->has_register == rule.has_register && again->name == rule.name &&
             again->low == rule.low && again->high == rule.high && again->when == rule.when);
  FUZZ_CHECK(again->action.kind == rule.action.kind && again->action.value == rule.action.value &&
             again->action.bytes == rule.action.bytes && again->action.text == rule.action.text &&
             again->action.delay_ms == rule.action.delay_ms);
}

// Does the rule name this message beyond doubt, by what the message alone says?
bool Plain(const Rule& rule, const wire::RequestHeader& header) {
  if (!rule.Takes(header.command) || (rule.bar && *rule.bar != header.bar)) return false;
  if (rule.when != When()) return false;
  if (!rule.has_register) return true;
  if (!rule.name.empty() || !rule.bar || header.arg1 == 0) return false;
  const uint64_t last = header.arg0 + (header.arg1 - 1);
  return last >= header.arg0 && header.arg0 <= rule.high && last >= rule.low;
}

bool Writes(uint8_t command) {
  switch (static_cast<Command>(command)) {
    case Command::kReset:
    case Command::kCfgWrite:
    case Command::kResizeBar:
    case Command::kMmioWrite:
    case Command::kSysmemWrite:
      return true;
    default:
      return false;
  }
}

class Conversation {
 public:
  Conversation(std::shared_ptr<const RuleSet> rules, Policy::Link link, wire::Revision revision)
      : rules_(std::move(rules)), link_(link), revision_(revision), policy_(rules_, link) {}

  void Step(fuzz::Input& in) {
    const uint8_t kind = in.Take<uint8_t>();
    if (kind % 3 == 2 && !pending_.empty())
      Answer(in);
    else
      Ask(in, kind);
    for (const std::string& note : policy_.TakeNotes()) FUZZ_CHECK(!note.empty());
    std::string why;
    FUZZ_CHECK(policy_.StopsAtRaw(why) == rules_->guards() && why.empty() != rules_->guards());
  }

 private:
  void Ask(fuzz::Input& in, uint8_t kind) {
    wire::RequestEvent event;
    event.kind = wire::RequestEvent::Kind::kRequest;
    wire::RequestHeader& header = event.header;
    const uint8_t where = in.Take<uint8_t>();
    header.command = static_cast<uint8_t>(kind & 1 ? 6 + (kind >> 7) : (kind >> 1) % 13);
    header.dev = where == 0xff ? in.Take<uint8_t>() : 0;
    header.bar = where % 8 == 7 ? in.Take<uint16_t>() : where % 8 == 6 ? 0 : 5;
    header.arg0 =
        (where & 64) != 0 ? in.Take<uint64_t>() : kPlaces[(where >> 3) % std::size(kPlaces)];
    header.arg1 = (where & 128) != 0 ? in.Take<uint64_t>() : 4;
    header.arg2 = in.Take<uint8_t>();
    event.payload_size = wire::PayloadSize(header, revision_);
    std::vector<uint8_t> payload(std::min<uint64_t>(event.payload_size, 4096));
    const auto head = in.Bytes(std::min<size_t>(payload.size(), 16));
    std::copy(head.begin(), head.end(), payload.begin());
    event.payload = payload;
    event.bytes = payload;

    const Decision decision = policy_.OnRequest(event, revision_);
    const bool forward = decision.kind == Decision::Kind::kForward;
    const wire::CommandInfo* info = wire::FindCommand(header.command);
    FUZZ_CHECK(info != nullptr);
    FUZZ_CHECK(forward || !decision.by.empty());
    FUZZ_CHECK(decision.kind != Decision::Kind::kAnswer || (info->reply && !decision.text.empty()));
    FUZZ_CHECK(decision.kind != Decision::Kind::kDrop || !info->reply);
    FUZZ_CHECK(decision.change.kind == ActionKind::kNone || forward);
    if (decision.guard) FUZZ_CHECK(rules_->guards() && !forward && decision.delay_ms == 0);
    if (forward) {
      FUZZ_CHECK(!rules_->read_only || !Writes(header.command));
      if (rules_->guards() && revision_ == wire::Revision::kR1) FUZZ_CHECK(link_.r1_given);
      for (const Rule& rule : rules_->deny) FUZZ_CHECK(!Plain(rule, header));
      policy_.OnForwarded(event, ++calls_);
      if (info->reply) pending_.push_back({header, calls_});
      if (pending_.size() > 64) pending_.erase(pending_.begin());
    }
  }

  void Answer(fuzz::Input& in) {
    wire::ReplyEvent event;
    event.kind = wire::ReplyEvent::Kind::kReply;
    event.request = pending_.front();
    pending_.erase(pending_.begin());
    event.reply = {static_cast<uint8_t>(in.Take<uint8_t>() == 0xff), in.Take<uint32_t>(), 0};
    event.body_size = wire::BodySize(event.request.header, event.reply, revision_);
    std::vector<uint8_t> body(std::min<uint64_t>(event.body_size, 4096));
    const auto head = in.Bytes(std::min<size_t>(body.size(), in.Take<uint16_t>()));
    std::copy(head.begin(), head.end(), body.begin());
    event.body = body;
    event.bytes = body;
    policy_.OnReply(event);
    if (event.complete()) return;
    event.kind = wire::ReplyEvent::Kind::kBodyChunk;
    event.body_offset = body.size();
    policy_.OnReply(event);
  }

  const std::shared_ptr<const RuleSet> rules_;
  const Policy::Link link_;
  const wire::Revision revision_;
  Policy policy_;
  std::vector<wire::PendingReply> pending_;
  uint64_t calls_ = 0;
};

}  // namespace
}  // namespace tg::proxy

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tg::proxy;
  using tg::wire::Revision;
  tg::fuzz::Input in(data, size);
  const auto options = in.Take<uint8_t>();
  RuleOptions given;
  given.read_only = (options & 1) != 0;
  // Making its map takes a thousand times as long as the rest, so it is made once.
  static const auto asic = MapOfAsic("navi31");
  FUZZ_CHECK(asic);
  for (int i = options >> 5; i > 0; i--) {
    const auto head = in.Take<uint8_t>();
    const auto bytes = in.Bytes(head & 127);
    const std::string text(bytes.begin(), bytes.end());
    const bool deny = (head & 128) == 0;
    const auto rule = deny ? ParseDeny(text) : ParseInject(text);
    if (!rule) {
      FUZZ_CHECK(!rule.error().message.empty());
      continue;
    }
    CheckRule(*rule, deny);
    (deny ? given.deny : given.inject).push_back(text);
  }
  auto made = MakeRuleSet(given);
  if (!made) {
    // Only a list may hold something that is no rule of its own.
    FUZZ_CHECK(!made.error().message.empty());
    return 0;
  }
  if (!*made) return 0;
  FUZZ_CHECK(!DescribeRules(**made).empty());
  auto rules = std::make_shared<RuleSet>(**made);
  if (options & 16) rules->asic = std::make_shared<const tg::amd::RegisterMap>(*asic);
  Conversation conversation(rules, {(options & 2) == 0, (options & 4) != 0},
                            (options & 8) != 0 ? Revision::kR1 : Revision::kR2);
  for (int i = 0; i < kMaxSteps && !in.empty(); i++) conversation.Step(in);
  return 0;
}
