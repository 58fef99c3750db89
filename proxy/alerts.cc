#include "proxy/alerts.h"

#include <fmt/format.h>

#include <algorithm>

namespace tg::proxy {
namespace {

constexpr size_t kMaxErrorText = 4096;
constexpr int kMaxRepeats = 5;
constexpr size_t kMaxKinds = 64;
constexpr size_t kMaxHandles = 4096;
constexpr uint64_t kRegionsWarn = 112;

}  // namespace

std::string DescribeRequest(const wire::RequestHeader& h) {
  const wire::CommandInfo* info = wire::FindCommand(h.command);
  const std::string_view name = wire::CommandName(h.command);
  if (!info) return std::string(name);
  switch (info->command) {
    case wire::Command::kMmioRead:
    case wire::Command::kMmioWrite:
      return fmt::format("{} bar{}+{:#x}", name, h.bar, h.arg0);
    case wire::Command::kSysmemRead:
    case wire::Command::kSysmemWrite:
      return fmt::format("{} region {}+{:#x}", name, h.bar, h.arg0);
    case wire::Command::kMapBar:
    case wire::Command::kResizeBar:
      return fmt::format("{} {}", name, h.bar);
    case wire::Command::kCfgRead:
    case wire::Command::kCfgWrite:
      return fmt::format("{} {:#x}", name, h.arg0);
    case wire::Command::kMapSysmem:
    case wire::Command::kMapSysmemFd:
      return fmt::format("{} of {:#x} bytes", name, h.arg0);
    default:
      return std::string(name);
  }
}

Alerts::Alerts(LogFn log, std::function<void(std::string_view)> poison)
    : log_(std::move(log)), poison_(std::move(poison)) {}

void Alerts::Suspicious(const wire::RequestHeader& h) {
  const wire::CommandInfo* info = wire::FindCommand(h.command);
  if (!info || poisoned_ >= kMaxRepeats) return;
  std::string text;
  if (info->command == wire::Command::kMmioWrite && h.arg1 > wire::kAppBulkLimit) {
    text = fmt::format(
        "{} of {} bytes: over 64 MiB this overruns a static buffer of the macOS server (memory "
        "corruption)",
        DescribeRequest(h), h.arg1);
  } else if (!info->bar_is_handle && h.bar >= 256) {
    text = fmt::format("{}: bar {} (server truncates to {})", info->name, h.bar, h.bar & 0xff);
  } else {
    return;
  }
  if (++poisoned_ == kMaxRepeats) text += "; more of this kind are not reported";
  Say(LogLevel::kWarn, text);
  poison_(text);
}

void Alerts::Reply(const wire::ReplyEvent& event, uint32_t descriptors) {
  const bool starts = event.kind == wire::ReplyEvent::Kind::kReply;
  if (event.reply.status == 0) {
    if (!starts) return;
    last_reply_was_error_ = false;
    const uint8_t command = event.request.header.command;
    if (command == static_cast<uint8_t>(wire::Command::kMmioRead)) return;
    if (command == static_cast<uint8_t>(wire::Command::kMapSysmemFd) ||
        command == static_cast<uint8_t>(wire::Command::kMapSysmem)) {
      Mapped(event, descriptors);
    } else if (command == static_cast<uint8_t>(wire::Command::kProbe) && event.reply.resp0 == 0 &&
               said_["empty PROBE"]++ < kMaxRepeats) {
      Say(LogLevel::kWarn, "PROBE answered with no device: the client will see a phantom one");
    }
    if (descriptors > 0 && command != static_cast<uint8_t>(wire::Command::kMapSysmemFd) &&
        said_["descriptor"]++ < kMaxRepeats)
      Say(LogLevel::kWarn, fmt::format("a descriptor came with the reply to {}, which has none; "
                                       "passed on",
                                       DescribeRequest(event.request.header)));
    return;
  }
  if (starts) {
    errors_++;
    last_reply_was_error_ = true;
    error_text_.clear();
  }
  const size_t room = kMaxErrorText - std::min(kMaxErrorText, error_text_.size());
  error_text_.append(reinterpret_cast<const char*>(event.body.data()),
                     std::min(room, event.body.size()));
  if (event.complete()) Refused(event.request.header, error_text_);
}

void Alerts::Refused(const wire::RequestHeader& request, const std::string& text) {
  const std::string what = DescribeRequest(request);
  const std::string_view name = wire::CommandName(request.command);
  if (said_.size() < kMaxKinds || said_.contains(what)) {
    const int times = ++said_[what];
    if (times > kMaxRepeats) return;
  } else {
    return;
  }
  std::string line;
  if (request.command == static_cast<uint8_t>(wire::Command::kMapSysmemFd)) {
    // The client looks for the descriptor before it looks at the status (field report B01).
    line = fmt::format(
        "MAP_SYSMEM_FD refused by server: {}; expect the client to fail with "
        "IndexError",
        text.empty() ? "no reason given" : Printable(text));
    if (regions_ >= wire::kAppRegionLimit)
      line += fmt::format(" ({} regions are mapped, the server's fixed cap is {})", regions_,
                          wire::kAppRegionLimit);
  } else if (text.empty()) {
    line = fmt::format("{} refused, no reason given", what);
    if (request.command == static_cast<uint8_t>(wire::Command::kResizeBar))
      line += " (apps older than 2026-03-17 do not know it; the client goes on)";
  } else {
    line = fmt::format("{} refused by server: {}", what, Printable(text));
    if (request.command == static_cast<uint8_t>(wire::Command::kResizeBar))
      line += " (the client hides this and may report only a broken pipe)";
  }
  if (said_[what] == kMaxRepeats) line += "; the same again is not reported";
  (void)name;
  Say(LogLevel::kWarn, line);
}

void Alerts::Mapped(const wire::ReplyEvent& event, uint32_t descriptors) {
  const wire::RequestHeader& request = event.request.header;
  if (request.command == static_cast<uint8_t>(wire::Command::kMapSysmem)) {
    if (handle_sizes_.size() < kMaxHandles)
      handle_sizes_[static_cast<uint32_t>(event.reply.resp1)] =
          (request.arg0 + 0xfff) & ~uint64_t{0xfff};
    return;
  }
  regions_++;
  asked_ += request.arg0;
  granted_ += event.reply.resp0;
  Say(LogLevel::kDebug, fmt::format("region {}: asked {:#x}, granted {:#x} bytes",
                                    event.reply.resp1, request.arg0, event.reply.resp0));
  if (descriptors == 0)
    Say(LogLevel::kWarn,
        "MAP_SYSMEM_FD was granted without a descriptor; expect the client to "
        "fail with IndexError");
  if (regions_ == kRegionsWarn || regions_ == wire::kAppRegionLimit)
    Say(LogLevel::kWarn,
        fmt::format(
            "sysmem: {} regions, {} bytes granted ({} asked): {} is the server's fixed cap; "
            "nothing is freed before disconnect",
            regions_, granted_, asked_, wire::kAppRegionLimit));
}

void Alerts::UnknownCommand(uint8_t command) {
  Say(LogLevel::kWarn,
      fmt::format("client sent {}, whose length nobody knows: from here both directions pass "
                  "through unread, descriptors included",
                  wire::CommandName(command)));
}

void Alerts::Unsolicited(size_t bytes) {
  const wire::CommandInfo* info = any_ ? wire::FindCommand(last_.command) : nullptr;
  const std::string last =
      any_ ? DescribeRequest(last_) + (info && !info->reply ? ", posted" : "") : "none";
  Say(LogLevel::kWarn,
      fmt::format("{} bytes from server, but no request is waiting (last request: {}); a modified "
                  "server? From here replies pass through unread, pairing is unreliable",
                  bytes, last));
}

void Alerts::LooksLikeR1(bool proven) {
  Say(LogLevel::kWarn,
      proven
          ? "26 bytes and then silence: looks like R1 frame (a client of January to March 2026); "
            "passed on as R1. A server of today waits for 33 bytes: then both sides wait"
          : "part of a request header and then silence");
}

void Alerts::ShortReply(const wire::RequestHeader& request, uint64_t missing) {
  std::string line = fmt::format("reply short by {} bytes", missing);
  const auto region = handle_sizes_.find(request.bar);
  if (request.command == static_cast<uint8_t>(wire::Command::kSysmemRead) &&
      region != handle_sizes_.end())
    line += fmt::format("; region {} is {:#x} long, read {:#x}..{:#x}", request.bar, region->second,
                        request.arg0, request.arg0 + request.arg1);
  else
    line += fmt::format("; request was {} of {} bytes", DescribeRequest(request), request.arg1);
  Say(LogLevel::kWarn, line + ": the client waits for ever");
}

std::string Alerts::ServerClosed() const {
  return last_reply_was_error_ ? "server closed after error reply" : "server closed";
}

}  // namespace tg::proxy
