// How the parts of the proxy speak to the person in front of it. They get a function, so that tests
// can listen; main gives them the real log (see StartLog). Not for the hot path.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "schemas/result.h"

namespace tg::proxy {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };
using LogFn = std::function<void(LogLevel, std::string_view)>;

// Log to stderr from a thread of its own: when stderr blocks, lines are dropped, traffic is not
// held up. `level` as spdlog spells it ("debug", "info", "warn", "error", "off").
Result<LogFn> StartLog(const std::string& level);
// Writes out what is queued. After this the log function does nothing.
void StopLog();

// `text` from a peer, safe to print on a terminal: one line, control bytes as \xNN, at most `limit`
// bytes of it.
std::string Printable(std::string_view text, size_t limit = 400);

}  // namespace tg::proxy
