// What the SDMA engines were told to move: bytes by direction, sizes, throughput, and how the
// client used its staging buffers.
//
// tinygrad copies between the program's memory and VRAM through 32 staging buffers of 2 MiB, each a
// shared region of its own. Copies to the card take the next slot in turn (the disk path, too);
// copies from the card always use slot 0. The disk path reads whole pages, so the first piece may
// begin inside its slot: only then can it be told from an ordinary copy. A slot that was taken and
// never submitted (an exception between) shows as one that the rotation left out for good; when it
// comes round again, the client of the disk path spins for ever. With io_uring (Linux) pieces are
// submitted as their reads end, so a slot may be used some turns late.
// Facts: tinygrad support/hcq.py (HCQAllocator), runtime/ops_disk.py.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/model/queues.h"

namespace tg::model {

enum class CopyDirection : uint8_t {
  kHostToVram,
  kVramToHost,
  kVramToVram,
  kHostToHost,
  kUnknown,  // an end whose address leads nowhere known
};
inline constexpr size_t kCopyDirections = 5;
std::string_view CopyDirectionName(CopyDirection direction);  // "sysmem_to_vram", ...
std::string_view CopyDirectionText(CopyDirection direction);  // "sysmem -> VRAM"

inline constexpr uint64_t kCopyPause = 100'000'000;  // ns

struct CopyTotals {
  uint64_t copies = 0;
  uint64_t bytes = 0;
  uint64_t smallest = 0;
  uint64_t largest = 0;
  uint64_t first_call = 0, last_call = 0;
  uint64_t first_ns = 0, last_ns = 0;  // of the doorbells
  // What was copied while one copy followed the other within kCopyPause, and how long that was:
  // throughput without the time in which nobody wanted a copy.
  uint64_t busy_bytes = 0, busy_ns = 0;
  uint64_t last_bytes = 0;  // at last_ns
};

struct CopyRate {
  uint64_t t_ns = 0;  // start of the interval
  std::array<uint64_t, kCopyDirections> bytes{};
};

// A slot that the rotation passed without a copy from it.
struct StagingSkip {
  uint32_t slot = 0;
  uint64_t call = 0;        // of the copy that passed it
  uint64_t uses_since = 0;  // copies from other slots since: the more, the surer
};

struct Staging {
  uint32_t slots = 0;  // regions of the staging size; 0: none known
  uint64_t slot_bytes = 0;
  uint64_t uses = 0;    // copies to the card from slots
  uint64_t rounds = 0;  // times the rotation came round
  std::optional<uint32_t> last_slot;
  std::vector<uint64_t> uses_by_slot;
  std::vector<StagingSkip> left_out;  // passed and not used since
  uint64_t copies_out = 0;            // from the card into slot 0
  // Copies that began inside a slot: the disk path's first piece.
  uint64_t minor_offsets = 0;
  uint64_t last_minor_offset = 0;
};

class Copies {
 public:
  explicit Copies(const QueueMemory& memory) : memory_(memory) {}

  // Every packet of every submission (Queues::SetPacketListener).
  void OnPacket(const QueuePacketEvent& event);
  // A region of shared memory and its size. The staging slots are the longest run of regions of
  // their size that are known at the first copy.
  void OnRegion(uint32_t index, uint64_t bytes);
  // A new client has regions, and a rotation, of its own.
  void OnConnect();

  const CopyTotals& totals(CopyDirection direction) const {
    return totals_[static_cast<size_t>(direction)];
  }
  uint64_t copies() const;
  uint64_t bytes() const;
  // Bytes per interval of rate_interval_ns(), without empty ones; at most 512.
  const std::vector<CopyRate>& rates() const { return rates_; }
  uint64_t rate_interval_ns() const { return interval_ns_; }
  // Copy sizes and how often, the 16 commonest kept.
  std::vector<std::pair<uint64_t, uint64_t>> common_sizes() const;
  const Staging& staging() const { return staging_; }

 private:
  static constexpr uint64_t kStagingBytes = 2u << 20;
  void Count(const Place& from, const Place& to, uint64_t bytes, const QueuePacketEvent& event);
  void Rate(CopyDirection direction, uint64_t bytes, uint64_t ns);
  void FixSlots();
  void UseSlot(uint32_t region, uint64_t offset, uint64_t call);

  const QueueMemory& memory_;
  std::array<CopyTotals, kCopyDirections> totals_{};
  std::vector<CopyRate> rates_;
  uint64_t interval_ns_ = 10'000'000;
  std::map<uint64_t, uint64_t> sizes_;
  std::vector<uint32_t> candidates_;    // regions of the staging size
  std::map<uint32_t, uint32_t> slots_;  // region -> slot
  bool slots_fixed_ = false;
  Staging staging_;
};

}  // namespace tg::model
