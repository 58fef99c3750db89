// One line per call, for divergence reports and for listing what would be sent.
//
//   #4711 MMIO_READ bar5+0x1a060 4 bytes -> 0x00000001
//   #12 MAP_SYSMEM_FD 0x4000 bytes -> region 3, 0x4000 bytes, with descriptor
//   #9 MAP_BAR bar1 -> error, no reason given
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "replay/script/call.h"

namespace tg::replay {

// The request alone. `payload` may be its first bytes only.
std::string FormatRequest(const wire::RequestHeader& request, std::span<const uint8_t> payload);
// What came back.
std::string FormatReply(const wire::RequestHeader& request, const wire::ReplyHeader& reply,
                        std::span<const uint8_t> body, wire::Revision revision);
// "request -> reply", and the same behind "#N ".
std::string FormatCallText(const Call& call, wire::Revision revision);
std::string FormatCall(const Call& call, wire::Revision revision);

// Up to 8 bytes as a number, more as the first 32 in hex; `size` when more were announced.
std::string FormatBytes(std::span<const uint8_t> bytes, uint64_t size);

}  // namespace tg::replay
