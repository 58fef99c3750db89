// Hands messages from the relay's thread to the capture thread: one writer, one reader, a ring of
// bytes of fixed size. Neither side waits for the other, takes a lock or makes a system call.
//
//   record: header (kRecordHeader bytes) | data, padded to 8 bytes
//   a record never straddles the buffer's end: a skip header fills the rest
//
// When the buffer is full, records are refused and counted; the reader learns how many were lost
// before the next record that got through.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "schemas/wire/commands.h"

namespace tg::proxy {

// Payloads and bodies are handed over up to this size; of larger ones (firmware images, zero fills)
// the model needs no content.
inline constexpr size_t kHandedBytes = 16 * 1024;
// But of SYSMEM_WRITE, which over TCP is how ring bytes come.
inline constexpr size_t kHandedSysmem = 64 * 1024;

struct Handed {
  enum class Kind : uint8_t {
    kSkip,
    kConnect,
    kRequest,
    kReply,       // header and the body, or its first part
    kReplyChunk,  // more of the body
    kRegion,      // header.bar = index, header.arg0 = asked, header.arg1 = granted,
                  // reply.resp0 = bytes mapped; data: u64 pairs (address, length)
    kDisconnect,
    kSnapshot,
  };
  Kind kind = Kind::kSkip;
  uint64_t call = 0;
  uint64_t now = 0;
  wire::RequestHeader header;
  wire::ReplyHeader reply;
  uint64_t size = 0;              // of the whole payload or body
  uint64_t offset = 0;            // of data within it
  std::span<const uint8_t> data;  // may be shorter than the message's: see kHandedBytes
};

class Handover {
 public:
  explicit Handover(size_t bytes);  // rounded up to a power of two

  // Writer's side. False if there was no room.
  bool Put(const Handed& record);
  // Reader's side: the oldest record, `data` pointing into the ring, valid until Release().
  // `dropped_before` counts records refused since the one before.
  bool Take(Handed& record, uint64_t& dropped_before);
  void Release();

  // Records refused that the reader has not been told of yet.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed) - told_; }
  size_t capacity() const { return capacity_; }

 private:
  struct Header {
    uint32_t size = 0;  // of the record with padding, 0: skip to the buffer's start
    Handed::Kind kind{};
    uint8_t command = 0;
    uint8_t status = 0;
    uint32_t data_size = 0;
    uint32_t dev = 0, bar = 0;
    uint64_t call = 0, now = 0, arg0 = 0, arg1 = 0, arg2 = 0;
    uint64_t resp0 = 0, resp1 = 0, total = 0, offset = 0, dropped = 0;
  };

  size_t capacity_;
  std::unique_ptr<uint8_t[]> buffer_;
  alignas(64) std::atomic<uint64_t> head_{0};  // bytes written in all
  std::atomic<uint64_t> dropped_{0};
  uint64_t cached_tail_ = 0;                   // writer's view
  alignas(64) std::atomic<uint64_t> tail_{0};  // bytes read in all
  uint64_t taken_ = 0;                         // size of the record being read
  uint64_t told_ = 0;
};

}  // namespace tg::proxy
