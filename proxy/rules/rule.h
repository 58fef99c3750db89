// What a rule of the guard (--deny) or of the fault injection (--inject) says. One grammar, after
// strace's --inject; pure text in, data out.
//
//   RULE    [COMMANDS][:bar=N][:reg=WHAT][:when=WHEN][:ACTION...]
//   COMMANDS  names as tinygrad spells them, with * and ?, several with commas; left out or `all`:
//             every command. MMIO_READ, MMIO_*, CFG_WRITE,RESET
//   bar=N     the BAR (of SYSMEM_* the region's handle, of MAP_BAR and RESIZE_BAR the BAR asked
//   for) reg=WHAT  0xLO-0xHI or 0xADDRESS (hexadecimal or decimal, both ends included), or a
//   register's
//             name with * and ?, with or without "reg"/"mm" in front. See registers.h for what
//             counts as an access to it.
//   when=     which of the matching requests of a connection, counted from 1:
//             N the Nth; N+ from the Nth on; N+S every Sth from the Nth on; N..M; N..M+S
//
//   ACTION (--inject)           request goes to the server   client sees
//     value=V    reads          yes                          V instead of what was read
//     short=N    what has a body yes                         a body that ends after N bytes
//     error=TEXT what is answered no                         status 1 with that text
//     drop       posted writes  no                           nothing
//     close      any            no                           end of the connection
//     delay=MS   any            after MS milliseconds        a late answer
//   delay goes with any other one. error= takes the rest of the rule, colons too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schemas/result.h"
#include "schemas/wire/commands.h"

namespace tg::proxy {

struct When {
  uint64_t first = 1;
  uint64_t last = UINT64_MAX;
  uint64_t step = 1;
  // Is the `count`th match, from 1, one of these?
  bool Holds(uint64_t count) const {
    return count >= first && count <= last && (count - first) % step == 0;
  }
  friend bool operator==(const When&, const When&) = default;
};
// nullopt with a reason in `problem`.
std::optional<When> ParseWhen(std::string_view text, std::string& problem);

enum class ActionKind : uint8_t { kNone, kValue, kShort, kError, kDrop, kClose };

struct Action {
  ActionKind kind = ActionKind::kNone;
  uint64_t value = 0;     // kValue
  uint64_t bytes = 0;     // kShort
  std::string text;       // kError
  uint64_t delay_ms = 0;  // beside any other
};

struct Rule {
  std::string text;       // as given: what logs and traces name it by
  uint32_t commands = 0;  // bit n: command n
  std::optional<uint32_t> bar;
  bool has_register = false;
  std::string name;  // a register by name, upper case; empty: by address
  uint64_t low = 0, high = 0;
  When when;
  Action action;  // --inject

  bool Takes(uint8_t command) const {
    return command < wire::kCommandCount && (commands >> command & 1) != 0;
  }
};

inline constexpr size_t kMaxRuleText = 1024;
inline constexpr uint64_t kMaxDelayMs = 600'000;

// `option` ("--deny") stands in error messages. Whether a register of that name exists is checked
// against all tables there are.
Result<Rule> ParseDeny(std::string_view text);
Result<Rule> ParseInject(std::string_view text);

// Shell pattern of letters, digits, '_', '*' and '?'; both in upper case.
bool GlobMatch(std::string_view pattern, std::string_view text);
// Does the pattern fit the name, or what follows "reg" or "mm" in it? `pattern` in upper case.
bool NameMatches(std::string_view pattern, std::string_view register_name);

}  // namespace tg::proxy
