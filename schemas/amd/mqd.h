// The compute queue's descriptor (MQD, 0x800 bytes) and the queue page beside each ring.
//
// Dwords 0x80 + k of the MQD mirror register regCP_MQD_BASE_ADDR + k, k = 0..55, on gfx9, 11
// and 12. Facts: kernel v9_structs.h, v11_structs.h, v12_structs.h; values: tinygrad
// AM_GFX.setup_ring.
#pragma once

#include <cstdint>

namespace tg::amd {

inline constexpr uint32_t kMqdSize = 0x800;
inline constexpr uint32_t kMqdHeader = 0xC0310800;
inline constexpr uint32_t kMqdRegisterBytes = 0x200;  // where the register mirror begins
inline constexpr uint32_t kMqdRegisterCount = 56;

// Byte offsets in the MQD.
inline constexpr uint32_t kMqdBaseAddr = 0x200;  // and +4 high
inline constexpr uint32_t kMqdHqdActive = 0x208;
inline constexpr uint32_t kMqdPqBase = 0x220;          // ring VA >> 8, and +4
inline constexpr uint32_t kMqdRptrReportAddr = 0x22c;  // queue page + 0x80, and +4
inline constexpr uint32_t kMqdWptrPollAddr = 0x234;    // queue page + 0x38, and +4
inline constexpr uint32_t kMqdDoorbellControl = 0x23c;
inline constexpr uint32_t kMqdPqControl = 0x244;
inline constexpr uint32_t kMqdEopBase = 0x294;  // >> 8, and +4
inline constexpr uint32_t kMqdEopControl = 0x29c;
inline constexpr uint32_t kMqdAqlControl = 0x2d4;

// regCP_HQD_PQ_CONTROL.queue_size and EOP size: bytes = 4 << (n + 1). SDMA and IH RB_CNTL.rb_size:
// 4 << n. 0 where no 64-bit size can say it.
constexpr uint64_t RingBytes(uint32_t log2_dwords) {
  return log2_dwords > 61 ? 0 : 4ull << log2_dwords;
}
constexpr uint64_t PqRingBytes(uint32_t pq_control) {
  return RingBytes((pq_control & 0x3f) + 1);
}
constexpr uint64_t RbRingBytes(uint32_t rb_size) {
  return RingBytes(rb_size & 0x3f);
}

// The queue page ("gart"), one per queue, in host memory; shaped like amd_queue_t.
// Units: SDMA bytes, PM4 dwords, AQL packets; never wrapped for SDMA and AQL.
inline constexpr uint32_t kQueuePageWptr = 0x38;  // u64, the host writes it
inline constexpr uint32_t kQueuePageRptr = 0x80;  // u64, the GPU writes it

}  // namespace tg::amd
