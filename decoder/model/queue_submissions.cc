// Queues: from announced ring bytes to packets, and from fences to retired submissions.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/model/queues.h"

namespace tg::model {
namespace {

constexpr size_t kMaxPending = 1024;  // submissions that wait for one fence word

}  // namespace

bool Queues::ReadRing(const Queue& queue, uint64_t begin, uint64_t end,
                      std::vector<uint8_t>& out) const {
  out.clear();
  if (begin > end || end - begin > kMaxRingBytes) return false;
  if (queue.ring_bytes && end - begin > *queue.ring_bytes) return false;
  const uint64_t ring = queue.ring_bytes.value_or(0);
  if (ring == 0 && !queue.guess.readable()) return false;
  // Look before allocating: most rings that cannot be read fail at their first byte.
  const bool by_va = queue.ring_va && memory_.Locate(*queue.ring_va).readable();
  if (!by_va && !queue.guess.readable()) return false;
  out.resize(end - begin);
  size_t done = 0;
  while (done < out.size()) {
    const uint64_t at = ring ? (begin + done) % ring : begin + done;
    const size_t n = ring ? std::min<uint64_t>(out.size() - done, ring - at) : out.size() - done;
    const std::span<uint8_t> part = std::span(out).subspan(done, n);
    Place place = queue.guess;
    place.offset = at;
    if (by_va ? !memory_.Read(*queue.ring_va + at, part) : !memory_.ReadPlace(place, part)) {
      return false;
    }
    done += n;
  }
  return true;
}

const Queues::Written* Queues::PieceEndingAt(const Queue& queue, uint64_t end) const {
  Place ring = queue.guess;
  if (queue.ring_va) {
    const Place located = memory_.Locate(*queue.ring_va);
    if (located.readable()) ring = located;
  }
  if (ring.kind != Place::Kind::kSysmem) return nullptr;
  const uint64_t offset = queue.RingOffset(end).value_or(end);
  for (auto piece = written_.rbegin(); piece != written_.rend(); ++piece) {
    if (piece->region == ring.region && piece->offset + piece->size == ring.offset + offset) {
      return &*piece;
    }
  }
  return nullptr;
}

bool Queues::ContentReady(const Queue& queue, uint64_t end) const {
  if (queue.wptr_memory) return queue.ToBytes(queue.wptr_memory.raw) >= end;
  if (const Written* piece = PieceEndingAt(queue, end)) {
    if (piece->seen == Seen::kClientWrote) return true;
  }
  if (queue.wptr_va && memory_.Locate(*queue.wptr_va).readable()) return false;
  return queue.ring_bytes && end <= *queue.ring_bytes;
}

Submission* Queues::FindSubmission(size_t queue, uint64_t number) {
  std::deque<Submission>& list = queues_[queue].submissions;
  if (list.empty() || number < list.front().number) return nullptr;
  const uint64_t at = number - list.front().number;
  return at < list.size() ? &list[at] : nullptr;
}

void Queues::Advance(Queue& queue, uint64_t call, uint64_t ns) {
  if (!queue.known_format) return;
  uint64_t& next = next_[queue.index];
  while (next <= queue.submissions_total) {
    Submission* submission = FindSubmission(queue.index, next);
    if (!submission) {
      ++next;
      continue;
    }
    if (!ContentReady(queue, submission->end)) return;
    if (!submission->begin) {
      const Written* piece = PieceEndingAt(queue, submission->end);
      if (piece && piece->size <= submission->end && piece->size % 4 == 0 &&
          (!queue.ring_bytes || piece->size < *queue.ring_bytes)) {
        submission->begin = submission->end - piece->size;
      }
    }
    ++next;
    Decode(queue, *submission, call, ns);
  }
}

void Queues::Decode(Queue& queue, Submission& submission, uint64_t call, uint64_t ns) {
  std::vector<uint8_t> bytes;
  if (!submission.begin || !ReadRing(queue, *submission.begin, submission.end, bytes)) {
    submission.content = Submission::Content::kNotObserved;
    return;
  }
  submission.content = Submission::Content::kObserved;
  submission.written_call = call;
  if (const Written* piece = PieceEndingAt(queue, submission.end)) {
    submission.written_call = piece->call;
  }
  const uint64_t va = queue.ring_va.value_or(0) + queue.RingOffset(*submission.begin).value_or(0);
  RingWalk walk(memory_, queue.format);
  walk.Visit(bytes, va, [&](const VisitedItem& visited) {
    const amd::WalkItem& item = *visited.item;
    if (item.kind == amd::WalkItem::Kind::kPacket) {
      if (visited.depth == 0) ++submission.packets;
      if (const auto fence = FenceOf(item.packet)) {
        if (submission.signals.size() == kMaxSignals) {
          submission.signals.erase(submission.signals.begin());
        }
        submission.signals.push_back(
            {.va = fence->address, .value = fence->value, .bytes = fence->bytes});
      }
    } else if (item.kind != amd::WalkItem::Kind::kPadding && visited.depth == 0) {
      ++submission.not_packets;
    }
    if (listener_) {
      listener_({.queue = &queue,
                 .submission = &submission,
                 .visited = visited,
                 .call = submission.doorbell_call,
                 .ns = submission.doorbell_ns});
    }
  });
  if (submission.not_packets > 0) {
    Warn(queue, "ring-not-packets", submission.doorbell_call,
         fmt::format("submission {} (doorbell {:#x}): {} stretches of its {} bytes are not packets",
                     submission.number, submission.doorbell_value, submission.not_packets,
                     bytes.size()));
  }
  WaitForFence(queue, submission, call, ns);
}

void Queues::WaitForFence(Queue& queue, Submission& submission, uint64_t call, uint64_t ns) {
  if (submission.signals.empty()) return;
  const FenceRef& last = submission.signals.back();
  const Place place = memory_.Locate(last.va);
  if (!place.readable()) return;
  const std::pair<uint64_t, uint64_t> key{
      place.kind == Place::Kind::kSysmem ? place.region + 1ull : 0, place.offset};
  auto found = fences_.find(key);
  if (found == fences_.end()) {
    if (fences_.size() >= kMaxFenceWords) return;
    found =
        fences_.emplace(key, FenceWord{.va = last.va, .bytes = last.bytes, .pending = {}}).first;
  }
  FenceWord& word = found->second;
  word.va = last.va;
  if (word.pending.size() >= kMaxPending) word.pending.pop_front();
  word.pending.push_back(
      {.value = last.value, .queue = queue.index, .submission = submission.number});
  CheckFence(word, call, ns);
}

void Queues::CheckFence(FenceWord& word, uint64_t call, uint64_t ns) {
  if (word.pending.empty()) return;
  uint64_t value = 0;
  uint32_t low = 0;
  if (!memory_.Read32(word.va, low)) return;
  value = low;
  if (word.bytes == 8 && !memory_.Read64(word.va, value)) return;
  std::erase_if(word.pending, [&](const FenceWord::Pending& pending) {
    if (pending.value > value) return false;
    Submission* submission = FindSubmission(pending.queue, pending.submission);
    if (submission && !submission->retired_call) {
      submission->retired_call = call;
      submission->retired_ns = ns;
    }
    return true;
  });
}

Queues::Producer Queues::FindProducer(uint64_t va, uint64_t value) const {
  Producer best;
  uint64_t best_value = ~0ull;
  for (const Queue& queue : queues_) {
    for (const Submission& submission : queue.submissions) {
      for (const FenceRef& signal : submission.signals) {
        if (signal.va == va && signal.value >= value && signal.value < best_value) {
          best = {.queue = &queue, .submission = &submission};
          best_value = signal.value;
        }
      }
    }
  }
  return best;
}

std::optional<uint64_t> Queues::HighestSignal(uint64_t va) const {
  std::optional<uint64_t> highest;
  for (const Queue& queue : queues_) {
    for (const Submission& submission : queue.submissions) {
      for (const FenceRef& signal : submission.signals) {
        if (signal.va == va && (!highest || signal.value > *highest)) highest = signal.value;
      }
    }
  }
  return highest;
}

}  // namespace tg::model
