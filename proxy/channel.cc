#include "proxy/channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tg::proxy {
namespace {

// Linux passes at most 253 descriptors a message (SCM_MAX_FD), Darwin 512; credentials may stand
// before them. Room to spare, so that nothing is cut off.
constexpr size_t kControlSize = CMSG_SPACE(512 * sizeof(int)) + CMSG_SPACE(64);
// More at once does not get faster and falls out of the second-level cache.
constexpr size_t kMaxRead = 256 * 1024;
// Byte by byte is for a few messages that hardly ever come, not for streams.
constexpr size_t kMaxSingleBytes = 64 * 1024;
struct Control {
  alignas(cmsghdr) char bytes[kControlSize];
};

template <typename Visit>
void ForEachDescriptor(const msghdr& header, Visit visit) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(const_cast<msghdr*>(&header), c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      visit(fd);
    }
  }
}

ssize_t RecvMessage(int fd, void* data, size_t size, int flags, msghdr& header, iovec& iov,
                    Control& control) {
  iov = {data, size};
  header = {};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes;
  header.msg_controllen = sizeof control.bytes;
  ssize_t n;
  do {
    n = ::recvmsg(fd, &header, flags);
  } while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace

Channel::Channel(size_t capacity) : capacity_(capacity), buffer_(new uint8_t[capacity]) {}

Channel::~Channel() {
  for (const Arrived& arrived : arrived_)
    for (const int fd : arrived.fds) ::close(fd);
  for (const int fd : claimed_) ::close(fd);
  for (const int fd : attached_) ::close(fd);
  CloseSentNow();
}

void Channel::Compact() {
  if (head_ == 0) return;
  std::memmove(buffer_.get(), buffer_.get() + head_, tail_ - head_);
  framed_ -= head_;
  tail_ -= head_;
  head_ = 0;
}

Channel::ReadResult Channel::Read(int fd, bool exact_descriptors, Wait wait) {
  if (!room()) return ReadResult::kFull;
  // Moving is rare: the buffer starts again at its front whenever it runs empty.
  if (capacity_ - tail_ < kMaxRead && capacity_ - tail_ < capacity_ - (tail_ - head_)) Compact();
  size_t size = std::min(capacity_ - tail_, kMaxRead);
  if (exact_descriptors && kDescriptorPlace == DescriptorPlace::kLastMessage)
    return ReceiveExact(fd, size);
  return Receive(fd, size, kDescriptorPlace == DescriptorPlace::kFirstByte, wait);
}

// A look ahead shows whether a descriptor is among the bytes, but not at which: then they are taken
// one by one, until the one that brings it.
Channel::ReadResult Channel::ReceiveExact(int fd, size_t size) {
  Control control;
  msghdr header;
  iovec iov;
  const ssize_t all =
      RecvMessage(fd, buffer_.get() + tail_, size, MSG_PEEK | MSG_DONTWAIT, header, iov, control);
  bool has = false;
  if (all > 0) {
    ForEachDescriptor(header, [&](int copy) {
      has = true;
      ::close(copy);
    });
    size = static_cast<size_t>(all);
  }
  if (!has) return Receive(fd, size, true, Wait::kNo);
  const size_t before = arrived_count_;
  size_t taken = 0;
  for (; taken < std::min(size, kMaxSingleBytes) && arrived_count_ == before; taken++)
    if (const ReadResult result = Receive(fd, 1, true, Wait::kNo); result != ReadResult::kData)
      return result;
  // The look ended where the message with the descriptor ends: keep that message whole.
  return taken < size ? Receive(fd, size - taken, true, Wait::kNo) : ReadResult::kData;
}

Channel::ReadResult Channel::Receive(int fd, size_t size, bool exact, Wait wait) {
  Control control;
  msghdr header;
  iovec iov;
  more_likely_ = false;
  const ssize_t n = RecvMessage(fd, buffer_.get() + tail_, size,
                                wait == Wait::kNo ? MSG_DONTWAIT : 0, header, iov, control);
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return ReadResult::kNothing;
    read_errno_ = errno;
    return ReadResult::kError;
  }
  if (header.msg_flags & MSG_CTRUNC) control_truncated_ = true;
  if (header.msg_controllen > 0) {
    std::vector<int> fds;
    ForEachDescriptor(header, [&](int got) {
      ::fcntl(got, F_SETFD, FD_CLOEXEC);
      fds.push_back(got);
    });
    if (!fds.empty() && n == 0) {
      for (const int got : fds) ::close(got);
    } else if (!fds.empty()) {
      descriptors_ += fds.size();
      arrived_count_ += fds.size();
      arrived_.push_back({received_, received_ + static_cast<uint64_t>(n), exact, std::move(fds)});
    }
  }
  if (n == 0) return ReadResult::kEof;
  tail_ += static_cast<size_t>(n);
  received_ += static_cast<uint64_t>(n);
  more_likely_ = static_cast<size_t>(n) == size;
  return ReadResult::kData;
}

std::span<const uint8_t> Channel::UntilDescriptor() const {
  const auto all = unframed();
  for (const Arrived& arrived : arrived_)
    if (arrived.begin > framed_bytes_)
      return all.first(std::min<uint64_t>(all.size(), arrived.begin - framed_bytes_));
  return all;
}

std::span<const int> Channel::ClaimDescriptors(size_t size, bool expected) {
  const uint64_t end = framed_bytes_ + size;
  while (!arrived_.empty()) {
    Arrived& first = arrived_.front();
    const bool here =
        first.exact ? first.begin < end : (expected && first.begin < end) || first.end <= end;
    if (!here) break;
    claimed_.insert(claimed_.end(), first.fds.begin(), first.fds.end());
    arrived_count_ -= first.fds.size();
    arrived_.erase(arrived_.begin());
  }
  return claimed_;
}

bool Channel::TakeControlTruncated() {
  return std::exchange(control_truncated_, false);
}

void Channel::Queue(size_t size) {
  queue_[(queue_first_ + queue_count_++) % kMaxBatch] = {static_cast<uint32_t>(size),
                                                         static_cast<uint32_t>(claimed_.size())};
  if (!claimed_.empty()) {
    attached_.insert(attached_.end(), claimed_.begin(), claimed_.end());
    claimed_.clear();
  }
  framed_ += size;
  framed_bytes_ += size;
}

void Channel::Drop(size_t size) {
  for (const int fd : claimed_) ::close(fd);
  claimed_.clear();
  // Only from an empty queue is the front of the buffer free to be given up.
  if (queue_count_ == 0) {
    head_ = framed_ + size;
  } else {
    std::memmove(buffer_.get() + framed_, buffer_.get() + framed_ + size, tail_ - framed_ - size);
    tail_ -= size;
    framed_ -= size;
  }
  framed_ += size;
  framed_bytes_ += size;
  if (head_ == tail_) head_ = framed_ = tail_ = 0;
}

bool Channel::Insert(std::span<const uint8_t> bytes) {
  if (queue_full()) return false;
  if (capacity_ - tail_ < bytes.size()) Compact();
  if (capacity_ - tail_ < bytes.size()) return false;
  uint8_t* at = buffer_.get() + framed_;
  std::memmove(at + bytes.size(), at, tail_ - framed_);
  std::memcpy(at, bytes.data(), bytes.size());
  queue_[(queue_first_ + queue_count_++) % kMaxBatch] = {static_cast<uint32_t>(bytes.size()), 0};
  framed_ += bytes.size();
  tail_ += bytes.size();
  return true;
}

// `bytes` were taken by the socket: strike them off the queue.
void Channel::Sent(size_t bytes) {
  sent_bytes_ += bytes;
  head_ += bytes;
  while (bytes > 0) {
    Message& front = queue_[queue_first_];
    if (bytes < front.size) {
      front.size -= static_cast<uint32_t>(bytes);
      break;
    }
    bytes -= front.size;
    queue_first_ = (queue_first_ + 1) % kMaxBatch;
    queue_count_--;
  }
  if (head_ == tail_) head_ = framed_ = tail_ = 0;
}

Channel::SendResult Channel::SendFailed(int error) {
  send_errno_ = error;
  switch (error) {
    case EAGAIN:
#if EWOULDBLOCK != EAGAIN
    case EWOULDBLOCK:
#endif
      return SendResult::kBlocked;
    case ENOBUFS:
    case ENOMEM:
    case EMSGSIZE:  // Darwin, when too many descriptors are on their way
#ifdef ETOOMANYREFS
    case ETOOMANYREFS:  // Linux, the same
#endif
      return SendResult::kRetry;
    default:
      return SendResult::kClosed;
  }
}

Channel::SendResult Channel::SendBytes(int fd, size_t size, Wait wait) {
  ssize_t n;
  do {
    n = ::send(fd, buffer_.get() + head_, size,
               MSG_NOSIGNAL | (wait == Wait::kNo ? MSG_DONTWAIT : 0));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return SendFailed(errno);
  Sent(static_cast<size_t>(n));
  return SendResult::kDone;
}

// Sends the first message, which has descriptors.
Channel::SendResult Channel::SendDescriptors(int fd) {
  Message& front = queue_[queue_first_];
  ssize_t n;
  Control control;
  std::vector<int> fds(attached_.begin(), attached_.begin() + front.descriptors);
  iovec iov{buffer_.get() + head_, front.size};
  msghdr header{};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes;
  header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  std::memset(control.bytes, 0, header.msg_controllen);
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  do {
    n = ::sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return SendFailed(errno);
  // The descriptors went with the first byte, whatever part of the rest did.
  front.descriptors = 0;
  attached_.erase(attached_.begin(), attached_.begin() + static_cast<ptrdiff_t>(fds.size()));
  if (sent_.size() + fds.size() > kMaxSentKept) CloseSentNow();
  sent_.insert(sent_.end(), fds.begin(), fds.end());
  Sent(static_cast<size_t>(n));
  return SendResult::kDone;
}

Channel::SendResult Channel::Send(int fd, Wait wait) {
  while (queue_count_ > 0) {
    const Message& front = queue_[queue_first_];
    size_t size = front.size;
    for (size_t i = 1; i < queue_count_ && front.descriptors == 0; i++) {
      const Message& next = queue_[(queue_first_ + i) % kMaxBatch];
      if (next.descriptors > 0 || size + next.size > kAtomicSend) break;
      size += next.size;
    }
    const SendResult result =
        front.descriptors > 0 ? SendDescriptors(fd) : SendBytes(fd, size, wait);
    wait = Wait::kNo;  // once is enough for one call
    if (result != SendResult::kDone) return result;
  }
  return SendResult::kDone;
}

size_t Channel::DropQueue() {
  const size_t dropped = framed_ - head_;
  for (const int fd : attached_) ::close(fd);
  attached_.clear();
  queue_count_ = 0;
  head_ = framed_;
  if (head_ == tail_) head_ = framed_ = tail_ = 0;
  return dropped;
}

void Channel::CloseSentNow() {
  for (const int fd : sent_) ::close(fd);
  sent_.clear();
}

}  // namespace tg::proxy
