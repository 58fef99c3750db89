#include "proxy/rules/policy.h"

#include <algorithm>
#include <utility>

namespace tg::proxy {
namespace {

using wire::Command;

constexpr uint32_t kRegisterBar = 5;
constexpr size_t kMaxScopes = 64;  // device numbers; a client may send any
constexpr uint32_t kBarByte = 0xff;

bool Is(const wire::RequestHeader& header, Command command) {
  return header.command == static_cast<uint8_t>(command);
}

bool Writes(const wire::RequestHeader& header) {
  return Is(header, Command::kReset) || Is(header, Command::kCfgWrite) ||
         Is(header, Command::kResizeBar) || Is(header, Command::kMmioWrite) ||
         Is(header, Command::kSysmemWrite);
}

bool Overlaps(const Rule& rule, uint64_t begin, uint64_t size) {
  if (size == 0) return false;
  const uint64_t last = size - 1 > UINT64_MAX - begin ? UINT64_MAX : begin + (size - 1);
  return begin <= rule.high && last >= rule.low;
}

}  // namespace

// For each rule that has a name: where that is.
struct Policy::Names {
  std::vector<std::vector<uint64_t>> addresses;
};

Result<std::shared_ptr<const RuleSet>> MakeRuleSet(const RuleOptions& options) {
  auto rules = std::make_shared<RuleSet>();
  rules->read_only = options.read_only;
  for (const std::string& list : options.deny) {
    std::string_view rest = list;
    while (true) {
      const std::string_view one = rest.substr(0, rest.find(';'));
      auto rule = ParseDeny(one);
      if (!rule) return tl::unexpected(std::move(rule.error()));
      rules->deny.push_back(std::move(*rule));
      if (one.size() == rest.size()) break;
      rest.remove_prefix(one.size() + 1);
    }
  }
  for (const std::string& text : options.inject) {
    auto rule = ParseInject(text);
    if (!rule) return tl::unexpected(std::move(rule.error()));
    rules->inject.push_back(std::move(*rule));
  }
  if (!options.asic.empty()) {
    auto map = MapOfAsic(options.asic);
    if (!map) return tl::unexpected(std::move(map.error()));
    rules->asic = std::make_shared<const amd::RegisterMap>(std::move(*map));
    // A name that this card does not have would never match: a mistake, or a guard with a hole.
    for (const auto* list : {&rules->deny, &rules->inject})
      for (const Rule& rule : *list)
        if (!rule.name.empty() && AddressesOf(*rules->asic, rule.name).empty())
          return Fail(Error::Code::kUsage,
                      "'" + rule.text + "': " + options.asic + " has no register of that name");
  }
  if (rules->empty() && !rules->asic) return std::shared_ptr<const RuleSet>();
  return std::shared_ptr<const RuleSet>(std::move(rules));
}

std::string DescribeRules(const RuleSet& rules) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (rules.read_only) add("--read-only");
  for (const Rule& rule : rules.deny) add("--deny " + rule.text);
  for (const Rule& rule : rules.inject) add("--inject " + rule.text);
  return text;
}

Policy::Policy(std::shared_ptr<const RuleSet> rules, Link link)
    : rules_(std::move(rules)),
      link_(link),
      uses_registers_(std::any_of(rules_->deny.begin(), rules_->deny.end(),
                                  [](const Rule& r) { return r.has_register; }) ||
                      std::any_of(rules_->inject.begin(), rules_->inject.end(),
                                  [](const Rule& r) { return r.has_register; })),
      counts_(rules_->deny.size() + rules_->inject.size()) {}

Policy::~Policy() = default;

RegisterScope& Policy::Scope(uint32_t dev) {
  // Past the limit all share one that never learns: nothing is known of any of them.
  if (scopes_.size() >= kMaxScopes && !scopes_.contains(dev)) dev = UINT32_MAX;
  auto& scope = scopes_[dev];
  if (!scope) scope = std::make_unique<RegisterScope>(rules_->asic);
  return *scope;
}

Policy::Match Policy::MatchRegister(const Rule& rule, size_t index,
                                    const wire::RequestEvent& event) {
  const wire::RequestHeader& header = event.header;
  const bool mmio = Is(header, Command::kMmioRead) || Is(header, Command::kMmioWrite);
  // An address of a BAR that was named, of configuration space or of a region: what the message
  // itself says.
  if (!mmio || rule.bar)
    if (rule.name.empty())
      return Overlaps(rule, header.arg0, header.arg1) ||
                     (mmio && header.arg1 > UINT64_MAX - header.arg0)
                 ? Match::kYes
                 : Match::kNo;
  if ((header.bar & kBarByte) != kRegisterBar) return Match::kNo;
  if (header.bar != kRegisterBar) return Match::kUnknown;  // TinyGPU.app looks at one byte of it
  const RegisterScope& scope = Scope(header.dev);
  const Touched touched = scope.Look(header, event.payload);
  bool hit = false;
  if (rule.name.empty()) {
    for (const uint64_t address : touched.addresses) hit = hit || Overlaps(rule, address, 4);
  } else if (const amd::RegisterMap* map = scope.map()) {
    auto& names = names_[map];
    if (!names) {
      names = std::make_unique<Names>();
      for (const auto* list : {&rules_->deny, &rules_->inject})
        for (const Rule& one : *list)
          names->addresses.push_back(one.name.empty() ? std::vector<uint64_t>()
                                                      : AddressesOf(*map, one.name));
    }
    const std::vector<uint64_t>& wanted = names->addresses[index];
    for (const uint64_t address : touched.addresses)
      hit = hit || std::binary_search(wanted.begin(), wanted.end(), address);
  } else {
    static const amd::RegisterMap fixed{std::span<const amd::IpBlock>()};
    for (const uint64_t address : touched.addresses) {
      const amd::RegisterHit known = fixed.Lookup(address);
      hit = hit || (known && NameMatches(rule.name, known.name()));
    }
  }
  return hit ? Match::kYes : touched.unknown ? Match::kUnknown : Match::kNo;
}

Policy::Match Policy::Matches(const Rule& rule, size_t index, const wire::RequestEvent& event) {
  const wire::RequestHeader& header = event.header;
  if (!rule.Takes(header.command)) return Match::kNo;
  if (rule.bar && header.bar != *rule.bar) {
    // TinyGPU.app cuts the number of a BAR to a byte in one place and not in others.
    const bool cut = header.bar > kBarByte && (header.bar & kBarByte) == *rule.bar;
    return cut ? Match::kUnknown : Match::kNo;
  }
  return rule.has_register ? MatchRegister(rule, index, event) : Match::kYes;
}

Decision Policy::Keep(const wire::RequestHeader& header, std::string by,
                      const std::string& why) const {
  Decision decision;
  decision.guard = true;
  const wire::CommandInfo* info = wire::FindCommand(header.command);
  decision.kind = info && info->reply ? Decision::Kind::kAnswer : Decision::Kind::kDrop;
  decision.text = "rpcproxy " + by + ": " + std::string(wire::CommandName(header.command)) +
                  " is not passed on" + (why.empty() ? "" : ": " + why);
  decision.by = std::move(by);
  if (!why.empty()) decision.by += ": " + why;
  return decision;
}

Decision Policy::Guard(const wire::RequestEvent& event, wire::Revision revision) {
  const wire::RequestHeader& header = event.header;
  const std::string option = rules_->read_only ? "--read-only" : "--deny";
  if (revision == wire::Revision::kR1 && !link_.r1_given) {
    Decision decision;
    decision.kind = Decision::Kind::kClose;
    decision.guard = true;
    decision.by = option +
                  ": the client's frame reads as 26 bytes long, and a server that takes 33 would "
                  "cut it elsewhere; if both are that old, give --protocol r1";
    return decision;
  }
  if (rules_->read_only && Writes(header)) return Keep(header, "--read-only", "");
  if (link_.app_server && Is(header, Command::kProbe) && event.payload_size > 0)
    return Keep(header, option, "TinyGPU.app would read its payload as requests");
  if (link_.app_server && Is(header, Command::kSysmemWrite) && event.payload_size > 0)
    return Keep(header, option, "TinyGPU.app would read its payload as requests");
  for (size_t i = 0; i < rules_->deny.size(); i++) {
    const Rule& rule = rules_->deny[i];
    const Match match = Matches(rule, i, event);
    if (match == Match::kNo) continue;
    // What may be one of them is one as far as the guard is concerned.
    if (!rule.when.Holds(++counts_[i])) continue;
    const char* why = "";
    if (match == Match::kUnknown)
      why = (header.bar & ~kBarByte) != 0 ? "the server looks at one byte of the BAR's number only"
            : Scope(header.dev).map()
                ? "an index register whose value was not seen decides where it goes"
                : "which register it is cannot be told before the card's discovery table was read "
                  "through this connection, or --asic is given";
    return Keep(header, "--deny " + rule.text, why);
  }
  return {};
}

Decision Policy::OnRequest(const wire::RequestEvent& event, wire::Revision revision) {
  if (rules_->guards()) {
    Decision decision = Guard(event, revision);
    if (decision.kind != Decision::Kind::kForward) return decision;
  }
  Decision decision;
  bool struck = false;
  for (size_t i = 0; i < rules_->inject.size(); i++) {
    const Rule& rule = rules_->inject[i];
    const size_t index = rules_->deny.size() + i;
    const Match match = Matches(rule, index, event);
    if (match == Match::kUnknown && !std::exchange(said_unknown_, true))
      notes_.push_back("--inject " + rule.text +
                       ": where that register lies is not known before the card's discovery table "
                       "was read through this connection (or --asic is given); until then the rule "
                       "does not strike");
    if (match != Match::kYes || !rule.when.Holds(++counts_[index]) || struck) continue;
    struck = true;
    decision.by = "--inject " + rule.text;
    decision.delay_ms = rule.action.delay_ms;
    switch (rule.action.kind) {
      case ActionKind::kNone:
        break;
      case ActionKind::kValue:
      case ActionKind::kShort:
        decision.change = {rule.action.kind, rule.action.value, rule.action.bytes, decision.by};
        break;
      case ActionKind::kError:
        decision.kind = Decision::Kind::kAnswer;
        decision.text = rule.action.text;
        break;
      case ActionKind::kDrop:
        decision.kind = Decision::Kind::kDrop;
        break;
      case ActionKind::kClose:
        decision.kind = Decision::Kind::kClose;
        break;
    }
  }
  return decision;
}

void Policy::OnForwarded(const wire::RequestEvent& event, uint64_t call) {
  if (uses_registers_) Scope(event.header.dev).OnForwarded(event, call);
}

void Policy::OnReply(const wire::ReplyEvent& event) {
  if (!uses_registers_) return;
  RegisterScope& scope = Scope(event.request.header.dev);
  if (!scope.OnReply(event)) return;
  std::string note = "the card's registers are known now: its discovery table was read";
  for (const auto* list : {&rules_->deny, &rules_->inject})
    for (const Rule& rule : *list)
      if (!rule.name.empty() && AddressesOf(*scope.map(), rule.name).empty())
        note += "; it has no register " + rule.name + ", so '" + rule.text + "' matches nothing";
  notes_.push_back(std::move(note));
}

bool Policy::StopsAtRaw(std::string& text) const {
  if (!rules_->guards()) return false;
  text = std::string(rules_->read_only ? "--read-only" : "--deny") +
         ": the stream cannot be told apart into requests any more, so nothing more is passed on";
  return true;
}

std::vector<std::string> Policy::TakeNotes() {
  return std::exchange(notes_, {});
}

}  // namespace tg::proxy
