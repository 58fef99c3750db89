#include "decoder/diff/stream.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace tg::diff {

using trace::Record;

Hash& Hash::Add(std::string_view text) {
  return Add(XXH3_64bits(text.data(), text.size()));
}
uint64_t HashBytes(std::span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

namespace {

// The answer that ends a run is another one and comes by itself.
bool AllAnswered(const Record& record) {
  const uint64_t length = record.pattern.size();
  uint64_t to_answer = 0;
  for (uint64_t i = 0; i < length; i++) {
    if (record.pattern[i].reply)
      to_answer += record.issued / length + (i < record.issued % length ? 1 : 0);
  }
  return record.answered >= to_answer;
}

}  // namespace

EventStream::Impl::Impl(std::unique_ptr<trace::TraceReader> reader, StreamOptions options)
    : reader_(std::move(reader)),
      options_(std::move(options)),
      strict_(options_.strict),
      filter_(options_.filter),
      queues_(device_) {
  tables_[0].level = 0;
  device_.AddObserver(this);
  queues_.queues().SetPacketListener([this](const model::QueuePacketEvent& e) { OnPacket(e); });
}

bool EventStream::Impl::Next(Token& token) {
  for (;;) {
    while (!ended_ && (ready_.empty() || Held())) {
      Record record;
      if (reader_->Next(record)) {
        Feed(record);
        continue;
      }
      if (reader_->skipped().size() != skipped_)
        Gap(last_seq_, last_time_ns_, "unreadable bytes at the end");
      FlushRuns();
      queues_.Finish();
      End();
      ended_ = true;
    }
    if (ready_.empty()) return false;
    token = std::move(ready_.front());
    ready_.pop_front();
    if (token.event && token.event->kind == Event::Kind::kDoorbell) open_.erase(token.event->seq);
    if (filter_.empty() || !Filtered(token)) return true;
  }
}

// Packets of a doorbell may still come: the proxy's copy of the ring stands behind it in the trace
// by as much as its thread lagged.
bool EventStream::Impl::Held() {
  const Token& front = ready_.front();
  return front.parts && !front.parts->known && ready_.size() < kMaxHeld &&
         open_.count(front.event->seq) > 0;
}

bool EventStream::Impl::Filtered(Token& token) {
  if (token.gap) return false;
  if (token.event->kind != Event::Kind::kDoorbell) return !filter_.Takes(*token.event);
  const Event& event = *token.event;
  const bool itself = filter_.Takes(event);
  auto kept_event = std::make_shared<Event>(event);
  auto kept = std::make_shared<Parts>();
  kept->channel = token.parts->channel;
  kept->known = token.parts->known;
  kept_event->packets.clear();
  for (size_t i = 0; i < event.packets.size(); i++) {
    if (!filter_.TakesPacket(event, event.packets[i])) continue;
    kept->list.push_back(token.parts->list[i]);
    kept_event->packets.push_back(event.packets[i]);
  }
  if (!itself && kept->list.empty()) return true;
  if (!itself) token.softs = 0;
  token.parts = std::move(kept);
  token.event = std::move(kept_event);
  return false;
}

// ---- records ---------------------------------------------------------------------------------

void EventStream::Impl::Feed(const Record& record) {
  if (reader_->skipped().size() != skipped_) {
    skipped_ = reader_->skipped().size();
    Gap(record.call, record.time_ns, "damaged bytes of the file");
  }
  folded_alone_ = record.kind == Record::Kind::kRepeat && record.pattern.size() == 1;
  record_ = &record;
  if (record.kind == Record::Kind::kRequest) OnRequest(record);
  device_.Feed(record);
  switch (record.kind) {
    case Record::Kind::kRequest:
      break;
    case Record::Kind::kReply:
      OnReply(record);
      break;
    case Record::Kind::kRepeat:
      if (record.pattern.empty() || record.issued == 0) break;
      last_seq_ = record.call + record.issued - 1;
      last_time_ns_ = record.last_time_ns;
      last_request_ = record.pattern[(record.issued - 1) % record.pattern.size()].request.header;
      answered_ = AllAnswered(record);
      break;
    case Record::Kind::kPacket:
      OnPacketRecord(record);
      break;
  }
  if (device_.ih().entries_read() != interrupts_ || device_.ih().discarded() != discarded_)
    OnInterrupts();
}

void EventStream::Impl::Gap(uint64_t seq, uint64_t time_ns, std::string text) {
  gap_seen_ = true;
  Draft draft = Make(Event::Kind::kGap, {seq, time_ns}, false);
  draft.event->what_text = "gap";
  draft.event->value_text = std::move(text);
  draft.token.gap = true;
  Emit(std::move(draft));
}

// ---- handing out -----------------------------------------------------------------------------

EventStream::Impl::Draft EventStream::Impl::Make(Event::Kind kind, model::Stamp at,
                                                 bool write) const {
  Draft draft;
  draft.event = std::make_shared<Event>();
  Event& e = *draft.event;
  e.kind = kind;
  e.seq = e.last_seq = at.call;
  e.time_ns = at.time_ns;
  e.write = write;
  if (const model::BootSession* boot = device_.boot().current(); boot && !boot->phases.empty())
    e.phase = boot->phases.back().phase;
  return draft;
}

// The last of a run of reads of one place stands for all: how often it was read depends on time.
void EventStream::Impl::EmitRead(Draft draft) {
  if (poll_ && poll_->token.key == draft.token.key && run_count_ == 0 && !write_ && !strict_) {
    draft.event->seq = poll_->event->seq;
    draft.event->time_ns = poll_->event->time_ns;
    poll_ = std::move(draft);
    return;
  }
  FlushRuns();
  poll_ = std::move(draft);
}

// Equal writes in a row are one event with a count, whether the trace's writer folded them or not.
void EventStream::Impl::EmitWrite(Draft draft) {
  if (write_ && write_->token.SameFixed(draft.token) && run_count_ == 0 && !poll_ && !strict_ &&
      draft.token.plain() && write_->token.plain()) {
    write_->event->times += draft.event->times;
    write_->event->last_seq = draft.event->last_seq;
    return;
  }
  FlushRuns();
  write_ = std::move(draft);
}

void EventStream::Impl::FlushRuns() {
  if (poll_) {
    Draft draft = std::move(*poll_);
    poll_.reset();
    Push(std::move(draft));
  }
  if (write_) {
    Draft draft = std::move(*write_);
    write_.reset();
    if (draft.event->times > 1)
      draft.token.value = Hash().Add(draft.token.value).Add(draft.event->times).Get();
    Push(std::move(draft));
  }
  if (run_count_ > 0) FlushEntries();
}

void EventStream::Impl::Emit(Draft draft) {
  FlushRuns();
  Push(std::move(draft));
}

void EventStream::Impl::Push(Draft draft) {
  draft.token.key += static_cast<uint64_t>(draft.event->kind) * 0x9e3779b97f4a7c15ull;
  draft.token.event = std::move(draft.event);
  ready_.push_back(std::move(draft.token));
}

EventStream::EventStream(std::unique_ptr<trace::TraceReader> reader, StreamOptions options)
    : impl_(std::make_unique<Impl>(std::move(reader), std::move(options))) {}
EventStream::~EventStream() = default;

bool EventStream::Next(Token& token) {
  return impl_->Next(token);
}
bool EventStream::cut() const {
  return impl_->reader().end_state() != trace::EndState::kClean;
}
const trace::TraceReader& EventStream::reader() const {
  return impl_->reader();
}
std::vector<std::string> EventStream::unused_patterns() const {
  return impl_->unused_patterns();
}

}  // namespace tg::diff
