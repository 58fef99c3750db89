#include "proxy/capture/collector.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace tg::proxy {
namespace {

constexpr size_t kMaxWords = 256;  // remembered for snapshots
constexpr size_t kMaxWordsOfSubmission = 4096;
constexpr int kTries = 3;
constexpr uint64_t kMaxPointer = 1ull << 56;  // larger ones are damage
// Fallback for doorbells of unknown queues: pages read and pages stored at each.
constexpr uint64_t kScanPages = 256, kScanChanged = 32;
// `full`: the content that copies take from shared memory, in pieces of this size, at most so much
// of one copy (the driver's staging buffers have 2 MiB).
constexpr uint64_t kSourcePiece = 256 * 1024, kMaxSource = 16u << 20;

}  // namespace

bool CapturingMemory::Peek(const model::Place& place, std::span<uint8_t> out, bool& torn) const {
  torn = false;
  if (place.kind != model::Place::Kind::kSysmem) return modelled_.ReadPlace(place, out);
  if (copy_(place.region, place.offset, out) != out.size()) return false;
  if (out.size() <= 8) return true;
  again_.resize(out.size());
  for (int i = 0; i < kTries; ++i) {
    if (copy_(place.region, place.offset, again_) != out.size()) return false;
    if (std::memcmp(again_.data(), out.data(), out.size()) == 0) return true;
    std::copy(again_.begin(), again_.end(), out.begin());
  }
  torn = true;
  return true;
}

std::optional<uint64_t> CapturingMemory::Peek64(uint64_t va) const {
  const model::Place place = Locate(va);
  if (!place.readable() || place.run < 8) return std::nullopt;
  uint8_t b[8];
  bool torn = false;
  if (!Peek(place, b, torn)) return std::nullopt;
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | b[i];
  return value;
}

void CapturingMemory::StoreBytes(const model::Place& place, std::span<const uint8_t> bytes,
                                 bool torn) const {
  if (place.kind != model::Place::Kind::kSysmem) return;
  if (torn) ++torn_;
  store_.Store(place.region, place.offset, bytes, why_, torn);
}

bool CapturingMemory::ReadPlace(const model::Place& place, std::span<uint8_t> out) const {
  bool torn = false;
  if (!Peek(place, out, torn)) return false;
  StoreBytes(place, out, torn);
  return true;
}

Collector::Collector(const model::Queues& queues, CopyFn copy, ChangeStore& store, bool full)
    : queues_(queues),
      memory_(queues.memory(), copy, store),
      pages_(copy, store,
             [this](uint32_t region, uint64_t offset, std::span<uint8_t> page) {
               MaskPointers(region, offset, page);
             }),
      full_(full) {}

void Collector::AddRegion(uint32_t region, uint64_t bytes) {
  pages_.Add(region, bytes);
}

void Collector::Remember(uint64_t va) {
  const auto known = std::find(words_.rbegin(), words_.rend(), va);
  if (known != words_.rend()) return;
  words_.push_back(va);
  if (words_.size() > kMaxWords) words_.pop_front();
}

void Collector::CaptureWords(std::span<const uint64_t> addresses) {
  uint8_t word[8];
  for (const uint64_t va : addresses) {
    // The whole aligned 64-bit word: signals are 64 bits wide where the GPU writes 32.
    (void)memory_.Read(va & ~uint64_t{7}, word);
  }
}

uint64_t Collector::FirstPosition(const model::Queue& queue, uint64_t to) const {
  const uint64_t ring = *queue.ring_bytes;
  const auto fits = [&](uint64_t from) { return from <= to && to - from <= ring; };
  if (queue.epochs > 0 && queue.setup.wptr.known()) {
    const uint64_t start = queue.ToBytes(queue.setup.wptr.value());
    if (fits(start)) return start;
  }
  // Joined late: what the GPU has not read yet.
  const auto rptr = queue.rptr_va ? memory_.Peek64(*queue.rptr_va) : std::nullopt;
  if (rptr && *rptr < kMaxPointer && fits(queue.ToBytes(*rptr))) return queue.ToBytes(*rptr);
  return to;
}

// Copies the ring from position `from` on, which fills `bytes`, and stores it.
bool Collector::CopyRing(const model::Queue& queue, uint64_t from, std::vector<uint8_t>& bytes) {
  struct Piece {
    model::Place place;
    size_t at, size;
    bool torn;
  };
  const uint64_t ring = *queue.ring_bytes;
  std::vector<Piece> pieces;
  for (size_t done = 0; done < bytes.size();) {
    const uint64_t at = (from + done) % ring;
    const model::Place place = memory_.Locate(*queue.ring_va + at);
    if (!place.readable() || place.run == 0) return false;
    const size_t n = std::min({uint64_t{bytes.size() - done}, ring - at, place.run});
    // Pages that follow each other in the region are copied together.
    if (!pieces.empty() && pieces.back().place.region == place.region && at != 0 &&
        pieces.back().place.offset + pieces.back().size == place.offset) {
      pieces.back().size += n;
    } else {
      pieces.push_back({.place = place, .at = done, .size = n, .torn = false});
    }
    done += n;
  }
  for (Piece& piece : pieces) {
    if (!memory_.Peek(piece.place, std::span(bytes).subspan(piece.at, piece.size), piece.torn)) {
      return false;
    }
  }
  // Overwritten meanwhile, if the client has come round: then nothing of it is what it was.
  const auto now = queue.wptr_va ? memory_.Peek64(*queue.wptr_va) : std::nullopt;
  const bool overtaken = now && *now < kMaxPointer && queue.ToBytes(*now) > from + ring;
  for (const Piece& piece : pieces) {
    memory_.StoreBytes(piece.place, std::span(bytes).subspan(piece.at, piece.size),
                       piece.torn || overtaken);
  }
  return true;
}

// The ring from where it was captured last up to the write pointer, and what its packets name.
// False: the queue cannot be followed.
bool Collector::CaptureRing(const model::Queue& queue) {
  if (!queue.known_format || !queue.ring_va || !queue.ring_bytes || *queue.ring_bytes == 0 ||
      memory_.Locate(*queue.ring_va).kind != model::Place::Kind::kSysmem) {
    return false;
  }
  const uint64_t ring = *queue.ring_bytes;
  // The client stores ring, pointer, doorbell in this order: what the pointer word announces is
  // there already, though its doorbell may still be under way.
  const auto word = queue.wptr_va ? memory_.Peek64(*queue.wptr_va) : std::nullopt;
  uint64_t to = queue.announced.value_or(0);
  if (word && *word < kMaxPointer) {
    const uint64_t bytes = queue.ToBytes(*word);
    if (bytes > to && (bytes - to <= ring || !queue.announced)) to = bytes;
  }
  Progress& progress = progress_[queue.index];
  if (!progress.known || progress.epoch != queue.epochs) {
    progress = {.epoch = queue.epochs, .captured = FirstPosition(queue, to), .known = true};
  }
  uint64_t from = progress.captured;
  if (from > to) from = to;
  if (to - from > ring) from = to - ring;

  std::vector<uint8_t> bytes(to - from);
  // A region that shrank or was never mapped leaves the ring not observed.
  if (!CopyRing(queue, from, bytes)) return true;
  progress.captured = to;

  std::vector<uint64_t> words;
  std::unordered_set<uint64_t> seen;
  model::RingWalk walk(memory_, queue.format);
  walk.Visit(bytes, *queue.ring_va + from % ring, [&](const model::VisitedItem& visited) {
    if (visited.item->kind != amd::WalkItem::Kind::kPacket) return;
    if (full_) CaptureSource(visited.item->packet);
    std::optional<uint64_t> va;
    if (const auto wait = WaitOf(visited.item->packet); wait && wait->memory) va = wait->address;
    if (const auto fence = FenceOf(visited.item->packet)) va = fence->address;
    if (!va || words.size() >= kMaxWordsOfSubmission || !seen.insert(*va).second) return;
    words.push_back(*va);
    Remember(*va);
  });
  CaptureWords(words);
  CapturePointers(queue, word);
  return true;
}

void Collector::CaptureSource(const amd::DecodedPacket& packet) {
  const auto copy = CopyOf(packet);
  if (!copy) return;
  std::vector<uint8_t> bytes;
  const uint64_t size = std::min(copy->bytes, kMaxSource);
  for (uint64_t done = 0; done < size;) {
    const model::Place place = memory_.Locate(copy->src + done);
    if (place.kind != model::Place::Kind::kSysmem || place.run == 0) return;
    bytes.resize(std::min({size - done, place.run, kSourcePiece}));
    if (!memory_.ReadPlace(place, bytes)) return;
    done += bytes.size();
  }
}

void Collector::CapturePointers(const model::Queue& queue, std::optional<uint64_t> wptr_word) {
  uint8_t word[8];
  if (queue.rptr_va) (void)memory_.Read(*queue.rptr_va, word);
  if (!wptr_word) return;
  // Last, and as it was before the ring was copied: it tells a reader how far the ring is complete.
  for (int i = 0; i < 8; ++i) word[i] = static_cast<uint8_t>(*wptr_word >> (8 * i));
  const model::Place place = memory_.Locate(*queue.wptr_va);
  pointers_[{place.region, place.offset}] = *wptr_word;
  memory_.StoreBytes(place, word, false);
}

void Collector::MaskPointers(uint32_t region, uint64_t offset, std::span<uint8_t> page) const {
  for (auto at = pointers_.lower_bound({region, offset});
       at != pointers_.end() && at->first.first == region &&
       at->first.second + 8 <= offset + page.size();
       ++at) {
    for (int i = 0; i < 8; ++i) {
      page[at->first.second - offset + i] = static_cast<uint8_t>(at->second >> (8 * i));
    }
  }
}

void Collector::OnDoorbell(size_t index) {
  memory_.set_why(StoreWhy::kDoorbell);
  if (CaptureRing(queues_.queues()[index])) {
    if (full_) pages_.ScanSome(StoreWhy::kDoorbell, kScanPages, kScanChanged);
    return;
  }
  pages_.ScanSmall(StoreWhy::kDoorbell);
  pages_.ScanSome(StoreWhy::kDoorbell, kScanPages, kScanChanged);
}

void Collector::Snapshot(StoreWhy why) {
  memory_.set_why(why);
  for (const model::Queue& queue : queues_.queues()) CaptureRing(queue);
  const std::vector<uint64_t> words(words_.begin(), words_.end());
  CaptureWords(words);
  pages_.ScanSmall(why);
  if (full_) pages_.ScanAll(why);
}

}  // namespace tg::proxy
