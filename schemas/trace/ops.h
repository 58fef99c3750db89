// The Op numbers of trace.proto: small accesses that have a number each.
#pragma once

#include <cstdint>

#include "schemas/wire/commands.h"

namespace tg::trace {

struct OpShape {
  wire::Command command = wire::Command::kPing;
  uint8_t size = 0;     // 4 or 8 bytes
  uint8_t bar = 0;      // MMIO
  bool sysmem = false;  // the bar field of the request is Packet.handle
  bool read = false;    // has an answer, in place
};

inline constexpr uint32_t kOpCount = 29;  // 0 is OP_NONE

// nullptr for 0 and for numbers this version does not know.
const OpShape* FindOp(uint64_t op);
// 0 when no Op describes this request. For a write the payload must be there whole as well.
uint32_t OpFor(const wire::RequestHeader& header);

}  // namespace tg::trace
