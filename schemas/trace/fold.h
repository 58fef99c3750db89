// Finds runs of equal calls, so that five million polls become one Repeat packet.
//
// A run begins when the last p calls equal the p before them (p from 1 to 8) and the next request
// is the one that the period asks for: two whole periods stand in the file by then, so a reader
// that does not know Repeat still sees what was polled. Equal means the same request, payload,
// status, words and body; calls with more than 64 bytes, descriptors or notes never fold, nor do
// calls that were overtaken by the next request before their reply came.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "schemas/trace/writer.h"

namespace tg::trace {

inline constexpr size_t kMaxPeriod = 8;
inline constexpr size_t kMaxFoldedBytes = 64;  // payload and body together

// One call, kept to compare with and to write into a Repeat's pattern.
struct CallImage {
  wire::RequestHeader header;
  wire::ReplyHeader reply;
  bool posted = false;
  uint8_t payload_size = 0;
  uint8_t body_size = 0;
  std::array<uint8_t, kMaxFoldedBytes> bytes;  // payload, then body

  std::span<const uint8_t> payload() const { return {bytes.data(), payload_size}; }
  std::span<const uint8_t> body() const { return {bytes.data() + payload_size, body_size}; }
  bool SameRequest(const RequestRecord& record) const;
  bool SameReply(const ReplyRecord& record) const;
  bool operator==(const CallImage& other) const;
};

// The last calls that stand in the file one by one.
class CallHistory {
 public:
  // The period of the run that a call with this request would begin, or 0.
  size_t PeriodFor(const RequestRecord& record) const;
  // Call i (0 .. period - 1) of that period.
  const CallImage& Pattern(size_t period, size_t i) const { return Back(period - i).image; }

  void OnRequest(const RequestRecord& record);
  // `newest`: this answers the call that OnRequest saw last.
  void OnReply(const ReplyRecord& record, bool newest);
  // Something else came between: equal calls before and after it are not neighbours.
  void Clear();

 private:
  struct Entry {
    CallImage image;
    uint64_t request_hash = 0;
    uint64_t hash = 0;
  };
  static constexpr size_t kKept = 2 * kMaxPeriod;

  // The n-th newest call, from 1.
  const Entry& Back(size_t n) const { return ring_[(count_ - n) % kKept]; }
  Entry& Newest() { return ring_[(count_ - 1) % kKept]; }
  void Complete();

  std::array<Entry, kKept> ring_;
  size_t count_ = 0;       // calls since Clear()
  bool open_ = false;      // the newest one waits for its reply
  bool periodic_ = false;  // some period may have come twice: worth a closer look
  // equal_[p - 1]: how many of the newest calls in a row equal the one p before them.
  std::array<uint32_t, kMaxPeriod> equal_ = {};
};

}  // namespace tg::trace
