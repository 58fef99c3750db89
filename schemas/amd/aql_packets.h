// AQL packets: 64 bytes each, of the compute queue when tinygrad runs more than one XCC (MI3xx).
//
// +0 u16 header: [7:0] type, [8] barrier, [10:9] acquire scope, [12:11] release scope. tinygrad
// writes dispatches (0x1502) and vendor packets (0x1500) whose body is a PM4 INDIRECT_BUFFER; the
// latter have the role kIndirect and fields address / dwords.
//
// Facts: HSA 1.2 AQL layouts; the vendor packet as tinygrad's AMDComputeAQLQueue writes it.
#pragma once

#include <cstdint>
#include <span>

#include "schemas/amd/packet.h"

namespace tg::amd {

inline constexpr uint32_t kAqlPacketSize = 64;

// Always 16 dwords long. A slot of zeros, and one whose type is INVALID, is kNotAPacket: not
// written yet, or already taken by the packet processor.
DecodedPacket DecodeAql(std::span<const uint8_t> bytes);

// The 64-byte kernel descriptor that a dispatch's kernel_object points at.
struct KernelDescriptor {
  uint32_t lds_bytes = 0;
  uint32_t private_bytes = 0;
  uint32_t kernarg_bytes = 0;
  int64_t entry_offset = 0;  // of the code, from the descriptor
  uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  uint16_t properties = 0;  // bit 10: wave32
};
// `bytes` must hold 64 bytes.
KernelDescriptor DecodeKernelDescriptor(std::span<const uint8_t> bytes);

}  // namespace tg::amd
