// The calls of the process that kill_test kills, as a function of seed and call number: a mix of
// small accesses, bulk transfers, errors, and long polls of periods 1 to 3 that fold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schemas/trace/writer.h"
#include "schemas/wire/bytes.h"

namespace tg::trace::testing {

class VictimCall {
 public:
  VictimCall(uint64_t seed, uint64_t call) {
    // Blocks of 256 calls; every other one is a poll.
    const uint64_t block = Mix(seed, call / 256);
    const uint64_t own = Mix(seed ^ 0x5555, call);
    if (block % 2 == 0) {
      const uint64_t step = call % (1 + block / 2 % 3);
      Small(step == 2, 0x5a0 + 4 * step, static_cast<uint32_t>(block));
      return;
    }
    switch (own % 8) {
      case 0: {
        const size_t size = own / 8 % 20000;
        data_.resize(size);
        for (size_t i = 0; i < size; i++) data_[i] = static_cast<uint8_t>(own + i * call);
        Set(wire::Command::kMmioWrite, own % 1000, size);
        posted_ = true;
        return;
      }
      case 1:
        Set(wire::Command::kCfgRead, own % 4096, 4);
        reply_ = {0, own >> 32, 0};
        return;
      case 2:
        Set(wire::Command::kMmioRead, own % 4096, 4);
        reply_ = {1, 4, 0};
        data_ = {'g', 'o', 'n', 'e'};
        return;
      default:
        Small(own / 8 % 2 == 0, own / 16 % 65536, static_cast<uint32_t>(own >> 32));
    }
  }

  const wire::RequestHeader& header() const { return header_; }
  std::span<const uint8_t> payload() const { return posted_ ? data_ : std::span<const uint8_t>(); }
  bool posted() const { return posted_; }
  const wire::ReplyHeader& reply() const { return reply_; }
  std::span<const uint8_t> body() const { return posted_ ? std::span<const uint8_t>() : data_; }

 private:
  static uint64_t Mix(uint64_t a, uint64_t b) {
    uint64_t z = (a + 0x9e3779b97f4a7c15) * (b | 1) + b * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  void Set(wire::Command command, uint64_t arg0, uint64_t arg1) {
    header_.command = static_cast<uint8_t>(command);
    header_.arg0 = arg0;
    header_.arg1 = arg1;
  }
  void Small(bool write, uint64_t offset, uint32_t value) {
    Set(write ? wire::Command::kMmioWrite : wire::Command::kMmioRead, offset, 4);
    posted_ = write;
    reply_ = {0, 4, 0};
    data_.resize(4);
    StoreLe(data_.data(), value);
  }

  wire::RequestHeader header_;
  wire::ReplyHeader reply_;
  std::vector<uint8_t> data_;
  bool posted_ = false;
};

}  // namespace tg::trace::testing
