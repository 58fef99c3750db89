// What is known of a piece of memory: its bytes as far as the trace shows them, and which call put
// each one there. "Never observed" is not zero: every query says what it does not know.
//
// Memory is in proportion to what was touched, not to the trace: 4 KiB pages that hold data only if
// it is not all zeros, and one entry for a large fill or a write whose content the trace did not
// keep. Beyond `max_bytes` of data, newer content is dropped and the range marked as not known.
// A page costs twice its size once it has many writers, and a hostile trace makes a page with each
// 30 bytes: so pages and their bookkeeping are counted as well, against a budget that all memory of
// a device shares. Beyond it, pages share one origin, then new ones are "never observed"; or, where
// the budget's owner makes room, old ones that nobody reads are.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "decoder/model/flat_index.h"

namespace tg::model {

enum class Origin : uint8_t {
  kNone = 0,  // never touched
  kWrite,     // the client wrote it
  kRead,      // the client read it (so the device or somebody else had put it there)
  kSnapshot,  // the proxy copied it from shared memory
  kTable,     // the server's address table at the head of a fresh region
};

// Whence a byte is. Granularity 8 bytes: the newest write to any of them.
struct Provenance {
  Origin origin = Origin::kNone;
  uint64_t call = 0;
};

// What all shadows of a device may hold, data and bookkeeping. Must outlive them.
struct ShadowBudget {
  uint64_t limit = UINT64_MAX;
  uint64_t used = 0;
  // Called when `bytes` more would go beyond the limit; may call Forget() of any of them.
  std::function<void(uint64_t bytes)> make_room = {};
};

class Shadow {
 public:
  Shadow() = default;
  explicit Shadow(uint64_t max_bytes, ShadowBudget* budget = nullptr)
      : max_bytes_(max_bytes), held_(budget) {}

  // Offsets past 2^64 are cut off.
  void Write(uint64_t offset, std::span<const uint8_t> data, Provenance by);
  void WriteZeros(uint64_t offset, uint64_t size, Provenance by);
  // Written, but the trace does not say what.
  void WriteUnknown(uint64_t offset, uint64_t size, Provenance by);
  // Bytes seen to be there. Where they are what was known, whoever wrote them stays their origin.
  void Observe(uint64_t offset, std::span<const uint8_t> data, Provenance by);

  // Copies what is known and leaves the rest of `out` as it is. True if all of it was known.
  bool Read(uint64_t offset, std::span<uint8_t> out) const;
  // Known bytes from `offset` on, without a gap, at most `limit`.
  uint64_t KnownBytes(uint64_t offset, uint64_t limit) const;
  std::optional<uint32_t> U32(uint64_t offset) const;
  std::optional<uint64_t> U64(uint64_t offset) const;
  Provenance OriginOf(uint64_t offset) const;

  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  // Makes about `bytes` of pages "never observed", in the order in which they came, but those that
  // are read often stay longer, and the one that is being written stays.
  void Forget(uint64_t bytes);

  // Pages touched in some way, merged, in order; at most `limit` ranges.
  std::vector<Range> Touched(size_t limit = 1000) const;
  uint64_t data_bytes() const { return data_bytes_; }        // stored
  uint64_t held_bytes() const { return held_.bytes(); }      // with bookkeeping
  uint64_t dropped_bytes() const { return dropped_bytes_; }  // not stored: over max_bytes

  static constexpr uint64_t kPage = 4096;

 private:
  // call << 3 | origin
  using Tag = uint64_t;
  struct Page {
    std::unique_ptr<std::array<uint8_t, kPage>> data;         // absent: zeros
    std::unique_ptr<std::array<uint64_t, kPage / 64>> known;  // absent: all known
    std::unique_ptr<std::array<Tag, kPage / 8>> tags;         // absent: `tag` for all
    Tag tag = 0;
    uint64_t number = kNoPage;
    mutable uint8_t reads = 0;  // up to kMaxReads; Forget() takes one each time it passes
  };
  static constexpr uint64_t kNoPage = ~0ull;
  static constexpr uint8_t kMaxReads = 3;
  struct Extent {
    uint64_t last;  // inclusive
    bool zeros;
    Tag tag;
  };
  static Tag Pack(Provenance by) { return by.call << 3 | static_cast<uint64_t>(by.origin); }
  static Provenance Unpack(Tag tag) { return {static_cast<Origin>(tag & 7), tag >> 3}; }

  // What was taken from the budget goes back with it.
  class Held {
   public:
    Held() = default;
    explicit Held(ShadowBudget* budget) : budget_(budget) {}
    Held(Held&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Held& operator=(Held&& other) noexcept {
      if (budget_) budget_->used -= bytes_;
      budget_ = std::exchange(other.budget_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }
    ~Held() {
      if (budget_) budget_->used -= bytes_;
    }
    bool Take(uint64_t bytes, uint64_t own_limit) {
      if (bytes_ + bytes > own_limit) return false;
      if (budget_) {
        if (budget_->used + bytes > budget_->limit && budget_->make_room) budget_->make_room(bytes);
        if (budget_->used + bytes > budget_->limit) return false;
        budget_->used += bytes;
      }
      bytes_ += bytes;
      return true;
    }
    void Give(uint64_t bytes) {
      bytes_ -= bytes;
      if (budget_) budget_->used -= bytes;
    }
    uint64_t bytes() const { return bytes_; }
    uint64_t limit() const { return budget_ ? budget_->limit : UINT64_MAX; }

   private:
    ShadowBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };
  // A page without data and tags: itself, its bits, its place in the index.
  static constexpr uint64_t kPageCost = kPage / 8 + 128;
  static constexpr uint64_t kTagsCost = kPage / 8 * sizeof(Tag);
  bool Take(uint64_t bytes) { return held_.Take(bytes, 3 * max_bytes_); }

  const Page* FindPage(uint64_t number) const;
  Page* MakePage(uint64_t number);
  void Drop(uint64_t number, uint64_t bytes);
  void DropTags(Page& page);
  bool GiveData(Page& page);
  void ForgetPage(uint64_t number);
  void Store(uint64_t offset, std::span<const uint8_t> data, Tag tag, bool observe);
  void StoreInPage(uint64_t number, size_t begin, std::span<const uint8_t> data, Tag tag,
                   bool observe);
  void FillInPage(uint64_t number, size_t begin, size_t end, bool zeros, Tag tag);
  void Fill(uint64_t offset, uint64_t size, bool zeros, Tag tag);
  void CutExtents(uint64_t first, uint64_t last);
  void BoundExtents();
  const Extent* ExtentAt(uint64_t offset) const;
  void SetTags(Page& page, size_t begin, size_t end, Tag tag);
  void SetKnown(Page& page, size_t begin, size_t end, bool known);

  uint64_t max_bytes_ = 512ull << 20;
  uint64_t data_bytes_ = 0;
  uint64_t dropped_bytes_ = 0;
  Held held_;
  FlatIndex index_;         // page number -> position in pages_
  std::deque<Page> pages_;  // a deque: pages stay where they are
  std::vector<uint32_t> free_;
  std::map<uint64_t, Extent> extents_;  // by first byte; no two overlap; pages come before them
  size_t next_to_forget_ = 0;           // in pages_
  uint64_t writing_ = kNoPage;
  mutable uint64_t cached_number_ = kNoPage;
  mutable const Page* cached_ = nullptr;
};

}  // namespace tg::model
