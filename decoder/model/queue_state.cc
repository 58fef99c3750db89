#include "decoder/model/queue_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "decoder/model/queue_text.h"

namespace tg::model {
namespace {

using Kind = QueueState::Kind;

std::optional<uint64_t> Word(const QueueMemory& memory, uint64_t va, uint32_t bytes) {
  uint64_t wide = 0;
  uint32_t low = 0;
  if (bytes == 8) {
    return memory.Read64(va, wide) ? std::optional<uint64_t>(wide) : std::nullopt;
  }
  return memory.Read32(va, low) ? std::optional<uint64_t>(low) : std::nullopt;
}

class Builder {
 public:
  Builder(const Queues& queues, const Queue& queue, const StateOptions& options)
      : queues_(queues), memory_(queues.memory()), queue_(queue), options_(options) {
    state_.queue = &queue;
  }

  QueueState Build() {
    Pointers();
    if (!state_.wptr) {
      state_.headline = Headline(state_);
      return std::move(state_);
    }
    FindOldest();
    ReadItems();
    FindForced();
    Decide();
    FindStuck();
    Notes();
    CutWindow();
    state_.headline = Headline(state_);
    return std::move(state_);
  }

 private:
  void Pointers();
  void FindOldest();
  void ReadItems();
  void AddItem(const VisitedItem& visited);
  void FindForced();
  void Decide();
  void FindStuck();
  void TakeStuck(const QueueItem& item);
  void Notes();
  void CutWindow();
  uint64_t WindowStart(uint64_t anchor) const;
  const Submission* Containing(uint64_t position) const;
  std::optional<MissingFence> Unreached(const Submission& submission) const;

  const Queues& queues_;
  const QueueMemory& memory_;
  const Queue& queue_;
  const StateOptions& options_;
  QueueState state_;
  const Submission* oldest_ = nullptr;  // first unfinished one
  uint64_t start_ = 0;                  // of the items
  uint32_t packets_left_ = 0;
};

void Builder::Pointers() {
  if (queue_.announced) {
    state_.wptr = queue_.announced;
  } else if (queue_.wptr_register) {
    state_.wptr = queue_.ToBytes(queue_.wptr_register.raw);
  } else if (queue_.wptr_memory && queue_.wptr_memory.raw != 0) {
    state_.wptr = queue_.ToBytes(queue_.wptr_memory.raw);
  }
  state_.rptr = queue_.ReadPosition();
  const PointerSeen& seen = queue_.newest_rptr();
  state_.rptr_source = seen.source;
  state_.rptr_call = seen.call;
  // The driver has AQL queues leave the read pointer in memory as it is (no_update_rptr).
  const bool aql = queue_.format.format == amd::RingFormat::kAql;
  if (state_.rptr && (aql || (queue_.sdma() && seen.by_client))) {
    // Signals come in order: a submission that gave its last one has been read to its end.
    for (auto s = queue_.submissions.rbegin(); s != queue_.submissions.rend(); ++s) {
      if (!s->retired_call || s->wiped) continue;
      if ((aql || *s->retired_call >= seen.call) && s->end > *state_.rptr) {
        state_.rptr = s->end;
        state_.rptr_call = *s->retired_call;
      }
      break;
    }
    state_.rptr_older = seen.by_client && state_.rptr_call < queue_.last_doorbell_call;
  }
  if (state_.rptr && state_.wptr && *state_.rptr > *state_.wptr) {
    state_.notes.push_back(fmt::format("read pointer {} is past the last doorbell {}",
                                       PointerText(queue_, *state_.rptr),
                                       PointerText(queue_, *state_.wptr)));
    state_.rptr = state_.wptr;
  }
  if (state_.rptr && state_.wptr) {
    state_.outstanding_bytes = *state_.wptr - *state_.rptr;
    state_.overrun = queue_.ring_bytes && *state_.outstanding_bytes > *queue_.ring_bytes;
  }
}

std::optional<MissingFence> Builder::Unreached(const Submission& submission) const {
  if (submission.signals.empty() || submission.retired_call) return std::nullopt;
  const FenceRef& last = submission.signals.back();
  const auto value = Word(memory_, last.va, last.bytes);
  if (value && *value >= last.value) return std::nullopt;
  return MissingFence{.fence = last, .memory = value, .submission = submission.number};
}

void Builder::FindOldest() {
  for (auto s = queue_.submissions.rbegin(); s != queue_.submissions.rend(); ++s) {
    if (s->retired_call) break;
    if (s->content != Submission::Content::kObserved) continue;
    const auto missing = Unreached(*s);
    if (!missing) {
      if (!s->signals.empty()) break;
      continue;
    }
    oldest_ = &*s;
    state_.missing = missing;
  }
}

const Submission* Builder::Containing(uint64_t position) const {
  for (auto s = queue_.submissions.rbegin(); s != queue_.submissions.rend(); ++s) {
    if (s->begin && *s->begin <= position && position <= s->end) return &*s;
    if (s->end <= position) break;
  }
  return nullptr;
}

// Where to begin so that enough packets stand before the anchor.
uint64_t Builder::WindowStart(uint64_t anchor) const {
  uint64_t start = anchor;
  uint32_t packets = 0;
  const uint64_t floor = queue_.ring_bytes && *state_.wptr > *queue_.ring_bytes
                             ? *state_.wptr - *queue_.ring_bytes
                             : 0;
  for (auto s = queue_.submissions.rbegin(); s != queue_.submissions.rend(); ++s) {
    if (!s->begin || s->content != Submission::Content::kObserved) {
      if (s->end <= anchor) break;
      continue;
    }
    if (*s->begin >= start) continue;
    if (*s->begin < floor) break;
    start = *s->begin;
    packets += s->packets;
    if (start <= anchor && packets > options_.packets_before + s->packets) break;
  }
  return start;
}

void Builder::ReadItems() {
  uint64_t anchor = 0;
  if (state_.rptr) {
    anchor = *state_.rptr;
  } else if (oldest_ && oldest_->begin) {
    anchor = *oldest_->begin;
  } else {
    // Nothing is known of where the GPU stands: the last submission, if it was seen.
    if (queue_.submissions.empty() || !queue_.submissions.back().begin) return;
    anchor = *queue_.submissions.back().begin;
  }
  if (!queue_.known_format) return;
  uint64_t from = anchor;
  if (oldest_ && oldest_->begin) from = std::min(from, *oldest_->begin);
  std::vector<uint8_t> bytes;
  start_ = WindowStart(from);
  bool read = queues_.ContentReady(queue_, *state_.wptr) &&
              queues_.ReadRing(queue_, start_, *state_.wptr, bytes);
  if (!read && start_ != anchor) {
    start_ = anchor;
    read = queues_.ContentReady(queue_, *state_.wptr) &&
           queues_.ReadRing(queue_, start_, *state_.wptr, bytes);
  }
  if (!read) return;
  state_.ring_observed = true;
  const uint64_t va = queue_.ring_va.value_or(0) + queue_.RingOffset(start_).value_or(0);
  WalkLimits limits;
  if (!options_.into_buffers) limits.max_depth = 0;
  RingWalk walk(memory_, queue_.format, limits);
  walk.Visit(
      bytes, va, [&](const VisitedItem& visited) { AddItem(visited); },
      [&](const ReachedBuffer& reached) {
        if (!state_.items.empty() && state_.items_left_out == 0) {
          state_.items.back().buffer = reached.state;
        }
      });
  if (state_.rptr) state_.outstanding_packets = packets_left_;
}

void Builder::AddItem(const VisitedItem& visited) {
  const amd::WalkItem& from = *visited.item;
  const bool ring = visited.depth == 0;
  QueueItem item;
  item.depth = visited.depth;
  item.position = ring ? start_ + visited.offset : visited.offset;
  item.size = from.size;
  item.kind = from.kind;
  if (ring) {
    item.ring_offset = queue_.RingOffset(item.position);
    if (!item.ring_offset && queue_.guess.readable()) item.ring_offset = item.position;
    const uint64_t end = item.position + item.size;
    item.read = state_.rptr && end <= *state_.rptr;
    item.here = state_.rptr && *state_.rptr < *state_.wptr && item.position <= *state_.rptr &&
                *state_.rptr < end;
    if (!item.read && from.kind != amd::WalkItem::Kind::kPadding) ++packets_left_;
    if (const Submission* s = Containing(item.position); s && item.position < s->end) {
      item.submission = s->number;
    }
  } else if (!state_.items.empty()) {
    item.read = state_.items.back().read;
    item.submission = state_.items.back().submission;
  }
  if (state_.items.size() >= options_.max_items) {
    ++state_.items_left_out;
    return;
  }
  item.va = visited.va;
  if (ring && item.ring_offset && queue_.ring_va) item.va = *queue_.ring_va + *item.ring_offset;
  item.packet = from.packet;
  item.packet.raw = {};
  if (from.kind == amd::WalkItem::Kind::kPacket) {
    if (const auto wait = WaitOf(from.packet); wait && wait->memory) {
      item.memory = Word(memory_, wait->address, 4);
      item.holds =
          item.memory && amd::CompareHolds(wait->function, static_cast<uint32_t>(*item.memory),
                                           wait->reference, wait->mask);
    } else if (const auto fence = FenceOf(from.packet)) {
      item.memory = Word(memory_, fence->address, fence->bytes);
      item.holds = item.memory && *item.memory >= fence->value;
    }
  }
  state_.items.push_back(std::move(item));
}

// Signals that memory shows as given, though the SDMA engine stands before their packets: not the
// engine wrote them. One packet behind the pointer is tolerated, for it may be reported late.
void Builder::FindForced() {
  if (!queue_.sdma() || !state_.rptr || state_.missing) return;
  int ahead = 0;
  for (const QueueItem& item : state_.items) {
    if (item.depth != 0 || item.read || item.kind != amd::WalkItem::Kind::kPacket) continue;
    const auto fence = FenceOf(item.packet);
    if (fence && item.holds && ahead > 0) {
      state_.missing = MissingFence{
          .fence = {.va = fence->address, .value = fence->value, .bytes = fence->bytes},
          .memory = item.memory,
          .submission = item.submission,
          .forced = true};
      state_.notes.push_back(fmt::format(
          "[{:#x}] holds {} though the engine has not reached the FENCE of {}: the host set it "
          "(recovery says \"all done\")",
          fence->address, *item.memory, fence->value));
      return;
    }
    ++ahead;
  }
}

void Builder::Decide() {
  if (queue_.doorbells == 0 && *state_.wptr == 0) {
    state_.kind = Kind::kUnused;
  } else if (!state_.rptr) {
    state_.kind = Kind::kNoPointers;
  } else if (*state_.rptr < *state_.wptr) {
    state_.kind = Kind::kBusy;
  } else if (state_.missing) {
    state_.kind = Kind::kNoFence;
  } else {
    // Everything was read. Whether it was finished, only a signal tells.
    const Submission* last = queue_.submissions.empty() ? nullptr : &queue_.submissions.back();
    const bool unseen = last && !last->retired_call && last->signals.empty() &&
                        last->content != Submission::Content::kObserved;
    state_.kind = unseen ? Kind::kNoFence : Kind::kIdle;
  }
}

void Builder::TakeStuck(const QueueItem& item) {
  QueueStuck stuck;
  stuck.op = item.packet.name.empty() ? fmt::format("op {:#x}", item.packet.op)
                                      : std::string(item.packet.name);
  stuck.text = PacketText(item.packet);
  stuck.ring_offset = item.ring_offset;
  if (const auto wait = WaitOf(item.packet)) {
    stuck.is_wait = wait->memory;
    stuck.wants = WaitText(*wait);
    stuck.satisfied = item.holds;
    if (item.memory) stuck.has = fmt::format("{}", *item.memory);
    if (wait->memory && !item.holds) {
      const auto producer = queues_.FindProducer(wait->address, wait->reference);
      if (producer.queue) {
        stuck.producer =
            fmt::format("{} submission {} (doorbell {:#x}, call {})", producer.queue->name,
                        producer.submission->number, producer.submission->doorbell_value,
                        producer.submission->doorbell_call);
      } else if (const auto highest = queues_.HighestSignal(wait->address)) {
        stuck.producer =
            fmt::format("no submission seen signals it; the highest seen is {}", *highest);
      }
    }
  } else if (const auto fence = FenceOf(item.packet)) {
    stuck.wants = fmt::format("[{:#x}] = {}", fence->address, fence->value);
    if (item.memory) stuck.has = fmt::format("{}", *item.memory);
  } else if (item.packet.role == amd::PacketRole::kDispatch) {
    stuck.wants = "kernel to finish";
  } else if (item.packet.role == amd::PacketRole::kCopy) {
    stuck.wants = "copy to finish";
  } else {
    stuck.wants = "to be executed";
  }
  state_.stuck = std::move(stuck);
}

void Builder::FindStuck() {
  if (!state_.outstanding() && state_.kind != Kind::kNoPointers) return;
  const std::vector<QueueItem>& items = state_.items;
  const auto is_packet = [](const QueueItem& i) { return i.kind == amd::WalkItem::Kind::kPacket; };
  const auto open_wait = [&](const QueueItem& i) {
    const auto wait = is_packet(i) ? WaitOf(i.packet) : std::nullopt;
    return wait && wait->memory && i.memory && !i.holds;
  };
  auto here = std::find_if(items.begin(), items.end(), [](const auto& i) { return i.here; });
  // An older pointer: waits that hold are passed by now.
  while (state_.rptr_older && here != items.end() && here + 1 != items.end() && here->holds &&
         is_packet(*here) && WaitOf(here->packet) && (here + 1)->depth == 0) {
    ++here;
  }

  if (queue_.sdma()) {
    // The reported pointer may be a packet ahead of the one executed.
    if (here != items.end() && here != items.begin() && open_wait(*(here - 1)) &&
        !open_wait(*here) && (here - 1)->submission == here->submission) {
      return TakeStuck(*(here - 1));
    }
    if (here != items.end()) {
      // A buffer's packets follow it: the first wait in it that does not hold.
      for (auto inner = here + 1; inner != items.end() && inner->depth > 0; ++inner) {
        if (open_wait(*inner)) return TakeStuck(*inner);
      }
      if (is_packet(*here)) return TakeStuck(*here);
      if (here->kind == amd::WalkItem::Kind::kPadding) {
        const auto next = std::find_if(here, items.end(), is_packet);
        if (next != items.end()) return TakeStuck(*next);
      }
      return;
    }
  }
  // PM4, or no read pointer: the oldest unfinished submission decides, else what is left.
  const QueueItem* dispatch = nullptr;
  for (const QueueItem& item : items) {
    if (oldest_ ? item.submission != oldest_->number : item.read) continue;
    if (open_wait(item)) return TakeStuck(item);
    if (!dispatch && is_packet(item) && item.packet.role == amd::PacketRole::kDispatch) {
      dispatch = &item;
    }
  }
  if (dispatch) return TakeStuck(*dispatch);
  if (here != items.end() && is_packet(*here)) return TakeStuck(*here);
}

void Builder::Notes() {
  if (state_.rptr_older && state_.kind == Kind::kBusy) {
    state_.notes.push_back(fmt::format(
        "the client read the read pointer at call {}, before the last doorbell: it may be further",
        state_.rptr_call));
  }
  if (queue_.wptr_memory && queue_.announced &&
      queue_.ToBytes(queue_.wptr_memory.raw) != *queue_.announced) {
    state_.notes.push_back(fmt::format(
        "write pointer in memory is {:#x}, the last doorbell {:#x}: the doorbell write was lost or "
        "not sent yet",
        queue_.wptr_memory.raw, queue_.last_doorbell_value));
  }
  if (state_.stuck && state_.stuck->satisfied) {
    state_.notes.push_back(
        "the wait holds in memory but was not seen: engine halted, its reads blocked, or the "
        "address maps elsewhere");
  }
  if (state_.stuck && state_.stuck->is_wait && !state_.stuck->satisfied && queue_.sdma() &&
      state_.rptr) {
    // Its own earlier signal, which the engine has passed: the write did not arrive.
    for (const QueueItem& item : state_.items) {
      const auto fence =
          item.kind == amd::WalkItem::Kind::kPacket ? FenceOf(item.packet) : std::nullopt;
      if (fence && item.read && item.memory && !item.holds) {
        state_.notes.push_back(fmt::format(
            "the engine is past its FENCE [{:#x}] = {}, yet memory holds {}: the write did not "
            "arrive (link, IOMMU or mapping)",
            fence->address, fence->value, *item.memory));
        break;
      }
    }
  }
  if (state_.stuck && !state_.stuck->producer.empty()) {
    state_.notes.push_back(state_.stuck->wants + ": " + state_.stuck->producer);
  }
  if (queue_.guess.readable() && (!queue_.ring_va || !memory_.Locate(*queue_.ring_va).readable())) {
    state_.notes.push_back(
        fmt::format("ring assumed to lie in region {} (written just before the doorbell)",
                    queue_.guess.region));
  }
  if (!queue_.setup.enabled && queue_.epochs > 0 && state_.outstanding()) {
    state_.notes.push_back("the queue was disabled afterwards");
  }
}

// Leaves the packets asked for before and behind the read pointer.
void Builder::CutWindow() {
  std::vector<QueueItem>& items = state_.items;
  size_t first_left = 0;
  while (first_left < items.size() && items[first_left].read) ++first_left;
  size_t begin = first_left;
  uint32_t packets = 0;
  while (begin > 0) {
    if (items[begin - 1].depth == 0 && ++packets > options_.packets_before) break;
    --begin;
  }
  while (begin < first_left && items[begin].depth > 0) ++begin;
  // What is stuck stays visible, wherever the read pointer is.
  if (oldest_) {
    for (size_t i = 0; i < begin; ++i) {
      if (items[i].submission == oldest_->number) begin = i;
    }
  }
  size_t end = items.size();
  if (options_.packets_after) {
    packets = 0;
    for (size_t i = first_left; i < items.size(); ++i) {
      if (items[i].depth == 0 && packets++ >= *options_.packets_after) {
        end = i;
        break;
      }
    }
  }
  state_.items_left_out += items.size() - end;
  items.erase(items.begin() + static_cast<ptrdiff_t>(end), items.end());
  items.erase(items.begin(), items.begin() + static_cast<ptrdiff_t>(begin));
}

}  // namespace

QueueState StateOf(const Queues& queues, size_t index, const StateOptions& options) {
  return Builder(queues, queues.queues()[index], options).Build();
}

}  // namespace tg::model
