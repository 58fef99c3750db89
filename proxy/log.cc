#include "proxy/log.h"

#include <spdlog/async.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tg::proxy {
namespace {

constexpr size_t kQueuedLines = 4096;

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

Result<LogFn> StartLog(const std::string& level) {
  const auto wanted = spdlog::level::from_str(level);
  if (wanted == spdlog::level::off && level != "off")
    return Fail(Error::Code::kUsage, "no log level called '" + Printable(level) +
                                         "': use debug, info, warn, error or off");
  spdlog::init_thread_pool(kQueuedLines, 1);
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto logger =
      std::make_shared<spdlog::async_logger>("rpcproxy", std::move(sink), spdlog::thread_pool(),
                                             spdlog::async_overflow_policy::overrun_oldest);
  logger->set_pattern("%H:%M:%S.%e rpcproxy %^%l%$: %v");
  logger->set_level(wanted);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
  std::weak_ptr<spdlog::logger> weak = logger;
  return [weak](LogLevel at, std::string_view text) {
    if (auto live = weak.lock()) live->log(ToSpdlog(at), "{}", text);
  };
}

void StopLog() {
  spdlog::shutdown();
}

std::string Printable(std::string_view text, size_t limit) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned char c : text.substr(0, limit)) {
    if (c == '\n' || c == '\t') {
      out += ' ';
    } else if (c < 0x20 || c == 0x7f) {
      out += "\\x";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
  if (text.size() > limit) out += "...";
  return out;
}

}  // namespace tg::proxy
