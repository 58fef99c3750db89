#include "proxy/rules/rule.h"

#include <algorithm>
#include <vector>

#include "schemas/amd/registers.h"

namespace tg::proxy {
namespace {

constexpr uint32_t kAllCommands = (1u << wire::kCommandCount) - 1;

std::string Upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

// Decimal, or hexadecimal with 0x; all of `text`.
std::optional<uint64_t> Number(std::string_view text) {
  uint64_t base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  if (text.empty()) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    uint64_t digit = 99;
    if (c >= '0' && c <= '9') digit = static_cast<uint64_t>(c - '0');
    if (c >= 'a' && c <= 'f') digit = static_cast<uint64_t>(c - 'a') + 10;
    if (c >= 'A' && c <= 'F') digit = static_cast<uint64_t>(c - 'A') + 10;
    if (digit >= base || value > (UINT64_MAX - digit) / base) return std::nullopt;
    value = value * base + digit;
  }
  return value;
}

bool NameLike(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '*' || c == '?';
  });
}

bool AnyRegister(std::string_view pattern) {
  for (size_t m = 0; m < amd::data::kModuleCount; m++) {
    const amd::data::Module& module = amd::data::kModules[m];
    for (uint32_t i = 0; i < module.count; i++)
      if (NameMatches(pattern, amd::NameOf(amd::data::kRegisters[module.first + i]))) return true;
  }
  return false;
}

uint32_t CommandsWhere(bool (*wanted)(const wire::CommandInfo&)) {
  uint32_t mask = 0;
  for (uint8_t i = 0; i < wire::kCommandCount; i++)
    if (wanted(*wire::FindCommand(i))) mask |= 1u << i;
  return mask;
}

// What each action can be done to.
struct ActionInfo {
  ActionKind kind;
  std::string_view name;
  bool (*applies)(const wire::CommandInfo&);
  std::string_view to;
};
constexpr ActionInfo kActions[] = {
    {ActionKind::kValue, "value",
     [](const wire::CommandInfo& c) {
       return c.command == wire::Command::kMmioRead || c.command == wire::Command::kSysmemRead ||
              c.command == wire::Command::kCfgRead;
     },
     "MMIO_READ, SYSMEM_READ or CFG_READ"},
    {ActionKind::kShort, "short",
     [](const wire::CommandInfo& c) { return c.body != wire::BodyRule::kNone; },
     "a command whose answer has a body"},
    {ActionKind::kError, "error", [](const wire::CommandInfo& c) { return c.reply; },
     "a command that is answered"},
    {ActionKind::kDrop, "drop", [](const wire::CommandInfo& c) { return !c.reply; },
     "MMIO_WRITE or SYSMEM_WRITE, which are posted"},
    {ActionKind::kClose, "close", [](const wire::CommandInfo&) { return true; }, "a command"},
};

// Registers lie behind these; of configuration space and regions only ranges can be named.
bool Mmio(const wire::CommandInfo& c) {
  return c.command == wire::Command::kMmioRead || c.command == wire::Command::kMmioWrite;
}
bool HasOffset(const wire::CommandInfo& c) {
  return Mmio(c) || c.bar_is_handle || c.command == wire::Command::kCfgRead ||
         c.command == wire::Command::kCfgWrite;
}

class Parser {
 public:
  Parser(std::string_view option, std::string_view text, bool actions)
      : option_(option), text_(text), actions_(actions) {}

  Result<Rule> Parse() {
    rule_.text = std::string(text_);
    if (text_.empty()) return Wrong("is empty");
    if (text_.size() > kMaxRuleText) return Wrong("is too long");
    std::string_view rest = text_;
    rule_.commands = kAllCommands;
    // The commands stand first and are the one part without a '='.
    const std::string_view first = rest.substr(0, rest.find(':'));
    if (first.find('=') == std::string_view::npos && first != "drop" && first != "close") {
      if (!Commands(first)) return Wrong(problem_);
      rest.remove_prefix(std::min(rest.size(), first.size() + 1));
    }
    while (!rest.empty()) {
      std::string_view part = rest.substr(0, rest.find(':'));
      if (part.starts_with("error=")) part = rest;  // all that is left
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
      if (!Part(part)) return Wrong(problem_);
    }
    if (!Finish()) return Wrong(problem_);
    return std::move(rule_);
  }

 private:
  tl::unexpected<Error> Wrong(const std::string& why) const {
    return Fail(Error::Code::kUsage, std::string(option_) + " '" +
                                         std::string(text_.substr(0, kMaxRuleText)) + "': " + why);
  }
  bool Problem(std::string text) {
    problem_ = std::move(text);
    return false;
  }

  bool Commands(std::string_view list) {
    if (Upper(list) == "ALL" || list == "*") {
      return true;
    }
    rule_.commands = 0;
    while (true) {
      const std::string_view one = list.substr(0, list.find(','));
      const std::string pattern = Upper(one);
      uint32_t hit = 0;
      for (uint8_t i = 0; i < wire::kCommandCount; i++)
        if (GlobMatch(pattern, wire::CommandName(i))) hit |= 1u << i;
      if (hit == 0)
        return Problem("'" + std::string(one) +
                       "' is no command: they are PROBE MAP_BAR MAP_SYSMEM_FD CFG_READ CFG_WRITE "
                       "RESET MMIO_READ MMIO_WRITE MAP_SYSMEM SYSMEM_READ SYSMEM_WRITE RESIZE_BAR "
                       "PING, or all");
      if (pattern.find_first_of("*?") == std::string::npos) exact_ |= hit;
      rule_.commands |= hit;
      if (one.size() == list.size()) return true;
      list.remove_prefix(one.size() + 1);
    }
  }

  bool Part(std::string_view part) {
    const size_t equal = part.find('=');
    const std::string_view key = part.substr(0, equal);
    const bool has_value = equal != std::string_view::npos;
    const std::string_view value = has_value ? part.substr(equal + 1) : std::string_view();
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end())
      return Problem("'" + std::string(key) + "' is given twice");
    seen_.push_back(key);
    const auto number = Number(value);
    if (key == "bar") {
      if (!number || *number > UINT32_MAX) return Problem("bar= takes a number");
      rule_.bar = static_cast<uint32_t>(*number);
      return true;
    }
    if (key == "reg") return Register(value);
    if (key == "when") {
      const auto when = ParseWhen(value, problem_);
      if (!when) return false;
      rule_.when = *when;
      return true;
    }
    if (!actions_)
      return Problem("'" + std::string(part) + "': it takes bar=, reg= and when= behind a command");
    Action& action = rule_.action;
    if (key == "delay") {
      if (!number || *number == 0 || *number > kMaxDelayMs)
        return Problem("delay= takes 1 to " + std::to_string(kMaxDelayMs) + " milliseconds");
      action.delay_ms = *number;
      return true;
    }
    for (const ActionInfo& info : kActions) {
      if (info.name != key) continue;
      if (action.kind != ActionKind::kNone)
        return Problem("one of value=, short=, error=, drop and close at a time");
      action.kind = info.kind;
      const bool wants = info.kind == ActionKind::kValue || info.kind == ActionKind::kShort;
      if (wants && !number) return Problem(std::string(key) + "= takes a number");
      if ((info.kind == ActionKind::kDrop || info.kind == ActionKind::kClose) && has_value)
        return Problem("'" + std::string(key) + "' takes no value");
      if (info.kind == ActionKind::kError && !has_value) return Problem("error= takes a text");
      if (info.kind == ActionKind::kValue) action.value = *number;
      if (info.kind == ActionKind::kShort) action.bytes = *number;
      if (info.kind == ActionKind::kError) action.text = std::string(value);
      return true;
    }
    return Problem(
        "'" + std::string(part) +
        "' is not known: bar=, reg=, when=, value=, short=, error=, drop, close, delay=");
  }

  bool Register(std::string_view value) {
    rule_.has_register = true;
    if (!value.empty() && value[0] >= '0' && value[0] <= '9') {
      const size_t dash = value.find('-');
      const auto low = Number(value.substr(0, dash));
      const auto high = dash == std::string_view::npos ? low : Number(value.substr(dash + 1));
      if (!low || !high || *low > *high)
        return Problem("reg= takes 0xLO-0xHI with LO not above HI, or a name");
      rule_.low = *low;
      rule_.high = *high;
      return true;
    }
    if (!NameLike(value)) return Problem("reg= takes 0xLO-0xHI, or a name with * and ?");
    rule_.name = Upper(value);
    if (AnyRegister(rule_.name)) return true;
    return Problem("no register of the known cards is called " + std::string(value));
  }

  // Leaves only commands that the rule can mean, and complains where one was named that it cannot.
  bool Narrow(bool (*wanted)(const wire::CommandInfo&), const std::string& why) {
    const uint32_t possible = CommandsWhere(wanted);
    if ((exact_ & ~possible) != 0 || (rule_.commands & possible) == 0) return Problem(why);
    rule_.commands &= possible;
    return true;
  }

  bool Finish() {
    if (rule_.has_register) {
      if (!rule_.name.empty()) {
        if (!Narrow(Mmio, "a register's name goes with MMIO_READ and MMIO_WRITE")) return false;
        if (rule_.bar && *rule_.bar != 5)
          return Problem("a register's name is one of BAR 5; give 0xLO-0xHI for BAR " +
                         std::to_string(*rule_.bar));
      } else if (!Narrow(HasOffset, "reg= goes with commands that have an offset")) {
        return false;
      }
    }
    if (!actions_) return true;
    const Action& action = rule_.action;
    if (action.kind == ActionKind::kNone) {
      if (action.delay_ms == 0)
        return Problem("what is to be done? value=, short=, error=, drop, close or delay=");
      return true;
    }
    for (const ActionInfo& info : kActions)
      if (info.kind == action.kind)
        return Narrow(info.applies, std::string(info.name) + " goes with " + std::string(info.to));
    return true;
  }

  const std::string_view option_;
  const std::string_view text_;
  const bool actions_;
  Rule rule_;
  std::string problem_;
  uint32_t exact_ = 0;  // commands named without * and ?
  std::vector<std::string_view> seen_;
};

}  // namespace

std::optional<When> ParseWhen(std::string_view text, std::string& problem) {
  When when;
  const auto fail = [&]() -> std::optional<When> {
    problem =
        "when= takes N, N+, N+S, N..M or N..M+S, counted from 1, not '" + std::string(text) + "'";
    return std::nullopt;
  };
  std::string_view range = text;
  std::optional<std::string_view> step;
  if (const size_t plus = text.find('+'); plus != std::string_view::npos) {
    range = text.substr(0, plus);
    step = text.substr(plus + 1);
  }
  const size_t dots = range.find("..");
  const auto first = Number(range.substr(0, dots));
  if (!first || *first == 0) return fail();
  when.first = *first;
  if (dots != std::string_view::npos) {
    const auto last = Number(range.substr(dots + 2));
    if (!last || *last < *first) return fail();
    when.last = *last;
  } else if (!step) {
    when.last = when.first;
  }
  if (step && !step->empty()) {
    const auto every = Number(*step);
    if (!every || *every == 0) return fail();
    when.step = *every;
  } else if (step && dots != std::string_view::npos) {
    return fail();  // "N..M+" says nothing
  }
  return when;
}

bool GlobMatch(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos, from = 0;  // where to go on when the rest does not fit
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      p++;
      t++;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') p++;
  return p == pattern.size();
}

bool NameMatches(std::string_view pattern, std::string_view register_name) {
  const std::string name = Upper(register_name);
  if (GlobMatch(pattern, name)) return true;
  for (const std::string_view prefix : {"REG", "MM"})
    if (name.starts_with(prefix) &&
        GlobMatch(pattern, std::string_view(name).substr(prefix.size())))
      return true;
  return false;
}

Result<Rule> ParseDeny(std::string_view text) {
  return Parser("--deny", text, false).Parse();
}
Result<Rule> ParseInject(std::string_view text) {
  return Parser("--inject", text, true).Parse();
}

}  // namespace tg::proxy
