// SDMA packets: names, lengths and fields of every op of SDMA 4.x, 5.x, 6.x and 7.x.
//
// dw0[7:0] op, dw0[15:8] sub-op. No packet but NOP carries its length, so a reader must know the
// table: an op outside of it means that the reader lost step or that the ring was overwritten. A
// zero dword is a one-dword NOP: tinygrad pads the ring's tail with them.
//
// Field names the queue code relies on: POLL_REGMEM address (or register) / function / reference /
// mask; FENCE address / data; COPY_LINEAR src / dst / bytes; INDIRECT address / dwords.
//
// Facts: SDMA 4.0, 5.0 and 6.0 packet headers as tinygrad's autogen/am/sdma_{4,5,6}_0_0.py carries
// them. tinygrad drives SDMA 7 with the 6.0 packets; on SDMA 7 hardware some packets are said to
// have one more dword when cpv is set, which tinygrad never does: such a packet is given the length
// of 6.0 and problem kBadLength.
#pragma once

#include <cstdint>
#include <span>

#include "schemas/amd/packet.h"

namespace tg::amd {

enum class SdmaGen : uint8_t { k4 = 0, k5 = 1, k6 = 2, k7 = 3 };
// From the SDMA version of the discovery table (4.4.2 -> k4). Below 4: k4, above 7: k7.
SdmaGen SdmaGenOf(unsigned major);

// `bytes` begins at the packet and may go on behind it. Any content.
DecodedPacket DecodeSdma(std::span<const uint8_t> bytes, SdmaGen gen);

}  // namespace tg::amd
