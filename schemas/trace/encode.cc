#include "schemas/trace/encode.h"

#include <atomic>

#include "schemas/trace/crc32c.h"

namespace tg::trace {
namespace {

constexpr size_t kSummed = kRepeatStateSize - pb::kCrcField;
constexpr uint8_t kStateCrcKey = pb::Key(7, pb::kI32);

}  // namespace

void PutRepeatState(uint8_t* p, const RepeatState& state) {
  uint8_t* at = p;
  const uint64_t wide[] = {state.issued, state.answered, state.first_time, state.last_time};
  for (uint32_t i = 0; i < 4; i++, at += 9) {
    at[0] = static_cast<uint8_t>(pb::Key(i + 1, pb::kI64));
    StoreLe(at + 1, wide[i]);
  }
  const uint32_t narrow[] = {state.min_latency, state.max_latency};
  for (uint32_t i = 0; i < 2; i++, at += 5) {
    at[0] = static_cast<uint8_t>(pb::Key(i + 5, pb::kI32));
    StoreLe(at + 1, narrow[i]);
  }
  at[0] = kStateCrcKey;
  // A kill between these stores must leave a checksum that does not hold. (Of a killed process all
  // stores up to some instruction are there: only the compiler must keep their order.)
  std::atomic_signal_fence(std::memory_order_release);
  StoreLe(at + 1, Crc32c({p, kSummed}));
}

bool GetRepeatState(std::span<const uint8_t> bytes, RepeatState& state) {
  if (bytes.size() != kRepeatStateSize) return false;
  const uint8_t* p = bytes.data();
  if (p[kSummed] != kStateCrcKey || LoadLe<uint32_t>(p + kSummed + 1) != Crc32c({p, kSummed}))
    return false;
  for (uint32_t i = 0; i < 4; i++) {
    if (p[9 * i] != pb::Key(i + 1, pb::kI64)) return false;
  }
  if (p[36] != pb::Key(5, pb::kI32) || p[41] != pb::Key(6, pb::kI32)) return false;
  state.issued = LoadLe<uint64_t>(p + 1);
  state.answered = LoadLe<uint64_t>(p + 10);
  state.first_time = LoadLe<uint64_t>(p + 19);
  state.last_time = LoadLe<uint64_t>(p + 28);
  state.min_latency = LoadLe<uint32_t>(p + 37);
  state.max_latency = LoadLe<uint32_t>(p + 42);
  return true;
}

}  // namespace tg::trace
