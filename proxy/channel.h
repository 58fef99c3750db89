// One direction of a relayed connection: bytes received from one socket and not yet taken by the
// other, with the descriptors that came among them. Knows nothing of frames; its owner says where
// messages end.
//
//   [ queued messages, to be sent whole | received, not yet cut into messages ]
//
// Invariants: bytes leave in the order they came; a message is never cut by where a send
// begins (TinyGPU.app takes a header with one recv and hangs up on a short one; what may share a
// send says kAtomicSend), and its descriptors go
// with the call that carries its first byte; what a partial send leaves goes without them. Memory
// is bounded: when the buffer is full Read() takes nothing, and the kernel holds the sender back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "proxy/platform.h"

namespace tg::proxy {

class Channel {
 public:
  explicit Channel(size_t capacity);
  ~Channel();  // closes the descriptors it still holds
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  enum class ReadResult : uint8_t { kData, kNothing, kFull, kEof, kError };
  // kBriefly: sleeps for what comes, or for space, as long as the socket's own timeouts allow.
  enum class Wait : uint8_t { kNo, kBriefly };
  // One recvmsg. `exact_descriptors`: find out at which byte a descriptor sits also where the
  // system does not say (costs a second system call; for streams without frames).
  ReadResult Read(int fd, bool exact_descriptors, Wait wait = Wait::kNo);
  int read_errno() const { return read_errno_; }
  // True when the last Read() filled all the space it offered: more may wait.
  bool more_likely() const { return more_likely_; }

  // Received, not yet queued.
  std::span<const uint8_t> unframed() const { return {buffer_.get() + framed_, tail_ - framed_}; }
  // The same up to the next descriptor, for streams without frames: what is queued together is sent
  // together, with its descriptors at the first byte.
  std::span<const uint8_t> UntilDescriptor() const;
  size_t queued_bytes() const { return framed_ - head_; }
  bool queue_empty() const { return queue_count_ == 0; }
  bool queue_full() const { return queue_count_ == kMaxBatch; }
  bool room() const {
    return queued_bytes() < kMaxQueued && tail_ - head_ < capacity_ &&
           held_descriptors() < kMaxHeld;
  }

  // The descriptors that belong to the next message, the first `size` bytes of unframed().
  // `expected`: such a message carries one. They stay the channel's; valid until Queue().
  std::span<const int> ClaimDescriptors(size_t size, bool expected);
  // The kernel dropped descriptors of the bytes since the last claim (MSG_CTRUNC).
  bool TakeControlTruncated();
  // Queues the first `size` bytes of unframed(), with the descriptors claimed.
  void Queue(size_t size);
  // Throws the first `size` bytes of unframed() away, with the descriptors claimed.
  void Drop(size_t size);
  // Queues a message of the owner's own, before what was received and is not queued yet. False when
  // there is no room for it now.
  bool Insert(std::span<const uint8_t> bytes);
  // The first `size` bytes of unframed(), to be altered.
  std::span<uint8_t> Alter(size_t size) { return {buffer_.get() + framed_, size}; }

  enum class SendResult : uint8_t {
    kDone,     // nothing left in the queue
    kBlocked,  // the socket takes no more now
    kRetry,    // the system lacks something that writability does not tell: try in a millisecond
    kClosed,   // nobody reads there any more
  };
  SendResult Send(int fd, Wait wait = Wait::kNo);
  int send_errno() const { return send_errno_; }
  // Throws away what is queued (the receiver is gone); returns its size.
  size_t DropQueue();

  // Descriptors that were sent are closed only when the receiver is known to have them: macOS
  // can lose one whose sender closes it while it is on its way.
  void CloseSent() {
    if (!sent_.empty()) CloseSentNow();
  }

  uint64_t received() const { return received_; }
  uint64_t sent() const { return sent_bytes_; }
  uint64_t descriptors() const { return descriptors_; }

 private:
  struct Message {
    uint32_t size;
    uint32_t descriptors;
  };
  // Descriptors from one recvmsg, which returned stream bytes [begin, end).
  struct Arrived {
    uint64_t begin;
    uint64_t end;
    bool exact;  // they sit at `begin`
    std::vector<int> fds;
  };
  static constexpr size_t kMaxHeld = 512;
  static constexpr size_t kMaxQueued = 512 * 1024;
  static constexpr size_t kMaxSentKept = 8;

  ReadResult Receive(int fd, size_t size, bool exact, Wait wait);
  ReadResult ReceiveExact(int fd, size_t size);
  size_t held_descriptors() const { return arrived_count_ + claimed_.size() + attached_.size(); }
  SendResult SendFailed(int error);
  SendResult SendBytes(int fd, size_t size, Wait wait);
  SendResult SendDescriptors(int fd);
  void Sent(size_t bytes);
  void Compact();
  void CloseSentNow();

  const size_t capacity_;
  std::unique_ptr<uint8_t[]> buffer_;
  size_t head_ = 0, framed_ = 0, tail_ = 0;  // offsets in buffer_
  uint64_t received_ = 0, framed_bytes_ = 0, sent_bytes_ = 0, descriptors_ = 0;
  bool more_likely_ = false;
  bool control_truncated_ = false;
  int read_errno_ = 0, send_errno_ = 0;

  std::array<Message, kMaxBatch> queue_;  // a ring
  size_t queue_first_ = 0, queue_count_ = 0;

  std::vector<Arrived> arrived_;
  size_t arrived_count_ = 0;
  std::vector<int> claimed_;
  std::deque<int> attached_;  // of the queued messages, in order
  std::vector<int> sent_;
};

}  // namespace tg::proxy
