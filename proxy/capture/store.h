// Writes shared memory into the trace, each byte only when it is not there already.
//
// What the trace holds is asked of the device model, which was fed the same packets: a decoder that
// reads the trace arrives at the same memory. Changed bytes go out in runs; runs closer than the
// cost of a packet are joined.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tg::proxy {

// Why bytes were stored; as SysmemData.Why.
enum class StoreWhy : uint8_t { kMap = 1, kDoorbell = 2, kStall = 3, kSignal = 4, kEnd = 5 };

struct StoredRun {
  uint32_t region = 0;
  uint64_t offset = 0;
  std::span<const uint8_t> data;  // empty: `size` zero bytes
  uint64_t size = 0;
  StoreWhy why = StoreWhy::kDoorbell;
  bool torn = false;
};

class ChangeStore {
 public:
  // Fills `out` with what the trace already says of these bytes; false unless it says all of them.
  using KnownFn = std::function<bool(uint32_t region, uint64_t offset, std::span<uint8_t> out)>;
  using EmitFn = std::function<void(const StoredRun&)>;

  ChangeStore(KnownFn known, EmitFn emit) : known_(std::move(known)), emit_(std::move(emit)) {}

  // Emits what of `bytes` is new at that place. Returns the number of bytes emitted.
  uint64_t Store(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes, StoreWhy why,
                 bool torn = false);

 private:
  void EmitRun(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes, StoreWhy why,
               bool torn);

  KnownFn known_;
  EmitFn emit_;
  std::vector<uint8_t> old_;
};

}  // namespace tg::proxy
