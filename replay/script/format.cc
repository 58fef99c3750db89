#include "replay/script/format.h"

#include <fmt/format.h>

#include <algorithm>

namespace tg::replay {
namespace {

using wire::Command;

// Text from a trace or a peer, safe to print.
std::string Printable(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t c : bytes.first(std::min<size_t>(bytes.size(), 200)))
    text += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '.';
  if (bytes.size() > 200) text += "...";
  return text;
}

std::string Place(const wire::RequestHeader& r, bool handle) {
  return fmt::format("{}{}+{:#x}", handle ? "region " : "bar", r.bar, r.arg0);
}

}  // namespace

std::string FormatBytes(std::span<const uint8_t> bytes, uint64_t size) {
  if (size == 0) return "nothing";
  if (bytes.empty()) return fmt::format("{} bytes (contents not recorded)", size);
  if (size == bytes.size() && (size == 1 || size == 2 || size == 4 || size == 8)) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); i++) value |= uint64_t{bytes[i]} << (8 * i);
    return fmt::format("0x{:0{}x}", value, size * 2);
  }
  std::string text;
  for (const uint8_t byte : bytes.first(std::min<size_t>(bytes.size(), 32)))
    text += fmt::format("{:02x}", byte);
  if (size > 32) text += fmt::format("... ({} bytes)", size);
  return text;
}

std::string FormatRequest(const wire::RequestHeader& r, std::span<const uint8_t> payload) {
  std::string text(wire::CommandName(r.command));
  if (r.dev != 0) text += fmt::format(" dev{}", r.dev);
  const wire::CommandInfo* info = wire::FindCommand(r.command);
  if (!info)
    return text +
           fmt::format(" bar={} arg0={:#x} arg1={:#x} arg2={:#x}", r.bar, r.arg0, r.arg1, r.arg2);
  switch (info->command) {
    case Command::kProbe:
      return text + fmt::format(" vendor {:#06x} class {:#x}", r.arg2, r.arg0);
    case Command::kMapBar:
    case Command::kResizeBar:
      return text + fmt::format(" bar{}", r.bar);
    case Command::kMapSysmemFd:
    case Command::kMapSysmem:
      return text + fmt::format(" {:#x} bytes{}", r.arg0, r.arg1 != 0 ? " contiguous" : "");
    case Command::kCfgRead:
      return text + fmt::format(" config+{:#x} {} bytes", r.arg0, r.arg1);
    case Command::kCfgWrite:
      return text + fmt::format(" config+{:#x} {} bytes <- {:#x}", r.arg0, r.arg1, r.arg2);
    case Command::kMmioRead:
    case Command::kSysmemRead:
      return text + fmt::format(" {} {} bytes", Place(r, info->bar_is_handle), r.arg1);
    case Command::kMmioWrite:
    case Command::kSysmemWrite:
      return text +
             fmt::format(" {} <- {}", Place(r, info->bar_is_handle), FormatBytes(payload, r.arg1));
    case Command::kReset:
    case Command::kPing:
      break;
  }
  return text;
}

std::string FormatReply(const wire::RequestHeader& request, const wire::ReplyHeader& reply,
                        std::span<const uint8_t> body, wire::Revision revision) {
  if (reply.status != 0) {
    std::string text = "error";
    if (reply.status != 1) text += fmt::format(" {}", reply.status);
    if (reply.resp0 == 0) return text + ", no reason given";
    if (body.empty()) return text + " (text not recorded)";
    return text + " \"" + Printable(body) + "\"";
  }
  const wire::CommandInfo* info = wire::FindCommand(request.command);
  if (!info) return fmt::format("resp0={:#x} resp1={:#x}", reply.resp0, reply.resp1);
  switch (info->command) {
    case Command::kMapBar:
      return fmt::format("{:#x} bytes", wire::MapBarWords(reply, revision).size);
    case Command::kMapSysmemFd:
      return fmt::format("region {}, {:#x} bytes", reply.resp1, reply.resp0);
    case Command::kMapSysmem:
      return fmt::format("region {}, {} addresses", reply.resp1, reply.resp0 / 8);
    case Command::kProbe:
      return fmt::format("{} devices \"{}\"", reply.resp1, Printable(body));
    case Command::kCfgRead:
      return fmt::format("{:#x}", reply.resp0);
    case Command::kMmioRead:
    case Command::kSysmemRead:
      return FormatBytes(body, request.arg1);
    default:
      break;
  }
  if (reply.resp0 == 0 && reply.resp1 == 0) return "ok";
  return fmt::format("ok, resp0={:#x} resp1={:#x}", reply.resp0, reply.resp1);
}

std::string FormatCall(const Call& call, wire::Revision revision) {
  return fmt::format("#{} {}", call.number, FormatCallText(call, revision));
}

std::string FormatCallText(const Call& call, wire::Revision revision) {
  std::string text = FormatRequest(call.request, call.payload.data);
  if (!call.refused.empty()) text += " [refused by the proxy]";
  if (!call.injected.empty()) text += " [injected by the proxy]";
  if (call.truncated) return text + " [cut off: the client went away]";
  if (!call.expects_reply) return text;
  if (!call.answered) return text + " -> never answered";
  text += " -> " + FormatReply(call.request, call.reply, call.body.data, revision);
  if (call.descriptors != 0)
    text += call.descriptors == 1 ? ", with descriptor"
                                  : fmt::format(", with {} descriptors", call.descriptors);
  return text;
}

}  // namespace tg::replay
