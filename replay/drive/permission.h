// What a recorded request can do to the server it is sent to, and what the user allowed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schemas/wire/commands.h"

namespace tg::replay {

enum class Harm : uint8_t {
  kNone,   // reads
  kWrite,  // changes registers, memory or BARs, or pins memory of the host
  kReset,  // resets the device or writes its configuration space
};
// An unknown command can do anything.
Harm HarmOf(uint8_t command);

struct Permission {
  bool writes = false;     // --allow-writes, or the server proved that it is no real one
  bool reset = false;      // --allow-reset, or the same
  bool read_only = false;  // send reads alone, leave out the rest
};

enum class Ruling : uint8_t { kSend, kLeaveOut, kForbidden };
Ruling Rule(uint8_t command, const Permission& permission);

// "--allow-reset (RESET)": the option that would allow it.
std::string_view OptionFor(Harm harm);

}  // namespace tg::replay
