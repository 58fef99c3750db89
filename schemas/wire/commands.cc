#include "schemas/wire/commands.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <string>

#include "schemas/wire/bytes.h"

namespace tg::wire {
namespace {

constexpr bool kYes = true, kNo = false;

// Source: tinygrad a9069c17 system.py (what the client sends and awaits).
constexpr std::array<CommandInfo, kCommandCount> kCommands = {{
    // command              name             payload reply body              fd    effects handle
    {Command::kProbe, "PROBE", kYes, kYes, BodyRule::kResp0, kNo, kNo, kNo},
    {Command::kMapBar, "MAP_BAR", kNo, kYes, BodyRule::kNone, kNo, kNo, kNo},
    {Command::kMapSysmemFd, "MAP_SYSMEM_FD", kNo, kYes, BodyRule::kNone, kYes, kNo, kNo},
    {Command::kCfgRead, "CFG_READ", kNo, kYes, BodyRule::kNone, kNo, kNo, kNo},
    {Command::kCfgWrite, "CFG_WRITE", kNo, kYes, BodyRule::kNone, kNo, kYes, kNo},
    {Command::kReset, "RESET", kNo, kYes, BodyRule::kNone, kNo, kYes, kNo},
    {Command::kMmioRead, "MMIO_READ", kNo, kYes, BodyRule::kArg1, kNo, kNo, kNo},
    {Command::kMmioWrite, "MMIO_WRITE", kYes, kNo, BodyRule::kNone, kNo, kYes, kNo},
    {Command::kMapSysmem, "MAP_SYSMEM", kNo, kYes, BodyRule::kResp0, kNo, kNo, kNo},
    {Command::kSysmemRead, "SYSMEM_READ", kNo, kYes, BodyRule::kArg1, kNo, kNo, kYes},
    {Command::kSysmemWrite, "SYSMEM_WRITE", kYes, kNo, BodyRule::kNone, kNo, kNo, kYes},
    {Command::kResizeBar, "RESIZE_BAR", kNo, kYes, BodyRule::kNone, kNo, kYes, kNo},
    {Command::kPing, "PING", kNo, kYes, BodyRule::kNone, kNo, kNo, kNo},
}};

std::string_view UnknownName(uint8_t command) {
  static const auto names = [] {
    std::array<std::string, 256> all;
    for (size_t i = 0; i < all.size(); i++) all[i] = "command " + std::to_string(i);
    return all;
  }();
  return names[command];
}

}  // namespace

const CommandInfo* FindCommand(uint8_t command, Revision revision) {
  // R1 knew commands 1..7 only (tinygrad dc82856084).
  if (revision == Revision::kR1 && (command < 1 || command > 7)) return nullptr;
  return command < kCommandCount ? &kCommands[command] : nullptr;
}

std::string_view CommandName(uint8_t command) {
  return command < kCommandCount ? kCommands[command].name : UnknownName(command);
}

const CommandInfo* FindCommandByName(std::string_view name) {
  for (const CommandInfo& info : kCommands) {
    if (std::equal(name.begin(), name.end(), info.name.begin(), info.name.end(),
                   [](unsigned char a, unsigned char b) { return std::toupper(a) == b; }))
      return &info;
  }
  return nullptr;
}

RequestHeader DecodeRequest(std::span<const uint8_t> bytes, Revision revision) {
  const uint8_t* p = bytes.data();
  RequestHeader h;
  h.command = p[0];
  if (revision == Revision::kR1) {
    h.bar = p[1];
    h.arg0 = LoadLe<uint64_t>(p + 2);
    h.arg1 = LoadLe<uint64_t>(p + 10);
    h.arg2 = LoadLe<uint64_t>(p + 18);
  } else {
    h.dev = LoadLe<uint32_t>(p + 1);
    h.bar = LoadLe<uint32_t>(p + 5);
    h.arg0 = LoadLe<uint64_t>(p + 9);
    h.arg1 = LoadLe<uint64_t>(p + 17);
    h.arg2 = LoadLe<uint64_t>(p + 25);
  }
  return h;
}

std::array<uint8_t, kRequestSizeR2> EncodeRequest(const RequestHeader& h) {
  std::array<uint8_t, kRequestSizeR2> out;
  out[0] = h.command;
  StoreLe(&out[1], h.dev);
  StoreLe(&out[5], h.bar);
  StoreLe(&out[9], h.arg0);
  StoreLe(&out[17], h.arg1);
  StoreLe(&out[25], h.arg2);
  return out;
}

std::array<uint8_t, kRequestSizeR1> EncodeRequestR1(const RequestHeader& h) {
  std::array<uint8_t, kRequestSizeR1> out;
  out[0] = h.command;
  out[1] = static_cast<uint8_t>(h.bar);
  StoreLe(&out[2], h.arg0);
  StoreLe(&out[10], h.arg1);
  StoreLe(&out[18], h.arg2);
  return out;
}

ReplyHeader DecodeReply(std::span<const uint8_t> bytes) {
  const uint8_t* p = bytes.data();
  return {p[0], LoadLe<uint64_t>(p + 1), LoadLe<uint64_t>(p + 9)};
}

std::array<uint8_t, kReplySize> EncodeReply(const ReplyHeader& h) {
  std::array<uint8_t, kReplySize> out;
  out[0] = h.status;
  StoreLe(&out[1], h.resp0);
  StoreLe(&out[9], h.resp1);
  return out;
}

uint64_t PayloadSize(const RequestHeader& header, Revision revision) {
  const CommandInfo* info = FindCommand(header.command, revision);
  return info && info->payload ? header.arg1 : 0;
}

uint64_t BodySize(const RequestHeader& request, const ReplyHeader& reply, Revision revision) {
  if (reply.status != 0) return reply.resp0;  // length of the error text
  const CommandInfo* info = FindCommand(request.command, revision);
  if (!info) return 0;
  switch (info->body) {
    case BodyRule::kArg1:
      return request.arg1;
    case BodyRule::kResp0:
      return reply.resp0;
    case BodyRule::kNone:
      return 0;
  }
  return 0;
}

BarWords MapBarWords(const ReplyHeader& reply, Revision revision) {
  if (revision == Revision::kR1) return {reply.resp0, reply.resp1};
  return {reply.resp1, reply.resp0};
}

Revision RevisionFromMapBar(const ReplyHeader& reply) {
  const auto is_size = [](uint64_t word, uint64_t other) {
    return std::has_single_bit(word) && word >= 4096 && word <= (64ull << 30) && word < other;
  };
  if (reply.status != 0) return Revision::kUndecided;
  const bool first = is_size(reply.resp0, reply.resp1);
  const bool second = is_size(reply.resp1, reply.resp0);
  if (first == second) return Revision::kUndecided;
  return first ? Revision::kR1 : Revision::kR2;
}

}  // namespace tg::wire
