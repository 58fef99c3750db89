// The TinyGPU RPC on the wire: headers, the 13 commands, and which of their parts follow a header.
//
// All integers little-endian, all structs packed.
//
//   request, 33 bytes (revision R2 and later, 2026-03-16):
//     0 cmd u8 | 1 dev_id u32 | 5 bar u32 | 9 arg0 u64 | 17 arg1 u64 | 25 arg2 u64 [payload]
//   request, 26 bytes (revision R1, 2026-01-20 .. 2026-03-16):
//     0 cmd u8 | 1 bar u8 | 2 offset u64 | 10 size u64 | 18 value u64 [payload]
//   reply, 17 bytes:
//     0 status u8 | 1 resp0 u64 | 9 resp1 u64 [body] or, when status != 0, [resp0 bytes of text]
//
// Facts: tinygrad a9069c17, runtime/support/system.py (client), extra/usbgpu/tbgpu/installer/
// Shared/server.c (TinyGPU.app) and extra/remote/serve.py (TCP server).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tg::wire {

enum class Command : uint8_t {
  kProbe = 0,
  kMapBar = 1,
  kMapSysmemFd = 2,
  kCfgRead = 3,
  kCfgWrite = 4,
  kReset = 5,
  kMmioRead = 6,
  kMmioWrite = 7,
  kMapSysmem = 8,
  kSysmemRead = 9,
  kSysmemWrite = 10,
  kResizeBar = 11,
  kPing = 12,
};
inline constexpr int kCommandCount = 13;

// Frame formats. kUndecided: nothing seen yet tells them apart (see framer.h).
enum class Revision : uint8_t { kUndecided = 0, kR1 = 1, kR2 = 2 };

inline constexpr size_t kRequestSizeR1 = 26;
inline constexpr size_t kRequestSizeR2 = 33;
inline constexpr size_t kReplySize = 17;

// Limits of TinyGPU.app (server.c): a larger MMIO_READ is refused, a larger MMIO_WRITE runs over
// the end of its static buffer; regions live until the connection ends.
inline constexpr uint64_t kAppBulkLimit = 64ull << 20;
inline constexpr uint32_t kAppRegionLimit = 128;
inline constexpr uint32_t kAppBarLimit = 6;

// R1 frames are mapped onto the same fields: bar, arg0 = offset, arg1 = size, arg2 = value, dev =
// 0. `command` stays a number: a client may send anything.
struct RequestHeader {
  uint8_t command = 0;
  uint32_t dev = 0;
  uint32_t bar = 0;
  uint64_t arg0 = 0;
  uint64_t arg1 = 0;
  uint64_t arg2 = 0;
  friend bool operator==(const RequestHeader&, const RequestHeader&) = default;
};

struct ReplyHeader {
  uint8_t status = 0;
  uint64_t resp0 = 0;
  uint64_t resp1 = 0;
  friend bool operator==(const ReplyHeader&, const ReplyHeader&) = default;
};

// Where the client takes the length of a reply's body from (status 0).
enum class BodyRule : uint8_t { kNone, kArg1, kResp0 };

struct CommandInfo {
  Command command;
  std::string_view name;  // as tinygrad spells it: "MMIO_READ"
  bool payload;           // arg1 bytes follow the request header
  bool reply;             // false: posted, no answer ever
  BodyRule body;          // what follows a reply with status 0
  bool descriptor;        // a reply with status 0 carries one file descriptor
  bool side_effects;      // changes the device: worth forcing to disk before it is forwarded
  bool bar_is_handle;     // the bar field holds a sysmem handle
};

// nullptr for a command this protocol does not have (13..255), or, for R1, one R1 does not have.
const CommandInfo* FindCommand(uint8_t command, Revision revision = Revision::kR2);
// "MMIO_READ", or "command 200" for an unknown one (a static buffer per value: valid for ever).
std::string_view CommandName(uint8_t command);
// The command called `name` (any case), or nullptr.
const CommandInfo* FindCommandByName(std::string_view name);

constexpr size_t RequestSize(Revision revision) {
  return revision == Revision::kR1 ? kRequestSizeR1 : kRequestSizeR2;
}

// `bytes` must hold RequestSize(revision) bytes; an undecided revision is read as R2.
RequestHeader DecodeRequest(std::span<const uint8_t> bytes, Revision revision = Revision::kR2);
std::array<uint8_t, kRequestSizeR2> EncodeRequest(const RequestHeader& header);
std::array<uint8_t, kRequestSizeR1> EncodeRequestR1(const RequestHeader& header);
ReplyHeader DecodeReply(std::span<const uint8_t> bytes);
std::array<uint8_t, kReplySize> EncodeReply(const ReplyHeader& header);

// Payload bytes after this request header: arg1 where the command has a payload, else 0.
uint64_t PayloadSize(const RequestHeader& header, Revision revision = Revision::kR2);

// Body bytes after this reply to `request`: error text when status != 0, else by the body rule.
uint64_t BodySize(const RequestHeader& request, const ReplyHeader& reply,
                  Revision revision = Revision::kR2);

// The size and address words of a MAP_BAR reply; R1 has them the other way round (size first).
struct BarWords {
  uint64_t size = 0;
  uint64_t address = 0;
};
BarWords MapBarWords(const ReplyHeader& reply, Revision revision);
// What the two words say of the revision by themselves: the one that is a power of two in
// [4 KiB, 64 GiB] and lower than the other is the size. kUndecided when both or neither fit.
Revision RevisionFromMapBar(const ReplyHeader& reply);

}  // namespace tg::wire
