#include "decoder/explain/observation.h"

#include <algorithm>

#include "schemas/trace/trace.pb.h"

namespace tg::explain {

namespace {

constexpr size_t kMaxEarlier = 32;
constexpr uint64_t kRoundCalls = 8;           // of a poll of the interrupt ring, with some room
constexpr uint64_t kSilence = 2'000'000'000;  // ns: worth noting
constexpr uint64_t kMaxEvaluated = 1000;      // connections; one costs some milliseconds

}  // namespace

Observation::Observation(const model::DeviceOptions& options)
    : device_(options), queues_(device_), shift_(device_) {
  device_.AddObserver(&polls_);
  device_.AddObserver(&shift_);
  device_.AddObserver(&ras_);
}

void Observation::KeepEarlier(const trace::Record& record) {
  if (!record.packet || !record.packet->has_event() ||
      record.packet->event().kind() != tinygpu::trace::SessionEvent::CONNECT)
    return;
  const model::Session& session = session_.session();
  const model::Connection& now = session.connections.back();
  if (now.calls == 0 || session.connections_total > kMaxEvaluated) return;
  const Explanation came_to = ExplainIt({});
  Earlier earlier{.connection = now.number,
                  .last_call = session.last_seq,
                  .small = MakeFacts({}).small,
                  .verdict = came_to.verdict(),
                  .noticed = came_to.noticed,
                  .recovery = came_to.recovery,
                  .next_start = came_to.next_start};
  if (earlier_.size() >= kMaxEarlier) earlier_.erase(earlier_.begin());
  earlier_.push_back(std::move(earlier));
}

void Observation::KeepSilence(const trace::Record& record) {
  using Kind = trace::Record::Kind;
  if (record.kind != Kind::kRequest && record.kind != Kind::kRepeat) return;
  if (last_call_ns_ == 0 || record.time_ns < last_call_ns_ + kSilence || record.call == 0) return;
  // Between two rounds of a wait: they are part of it.
  const uint64_t round = device_.ih().last_round().call;
  if (round > 0 && session_.session().last_seq < round + kRoundCalls) return;
  silence_ = {record.time_ns - last_call_ns_, session_.session().last_seq, record.call, {}};
}

void Observation::Feed(const trace::Record& record) {
  if (record.kind == trace::Record::Kind::kPacket) KeepEarlier(record);
  KeepSilence(record);
  session_.Add(record);
  device_.Feed(record);
  reads_.Feed(record);
  KeepState();
  last_ns_ = std::max({last_ns_, record.time_ns, record.last_time_ns});
  if (record.kind != trace::Record::Kind::kPacket)
    last_call_ns_ = std::max({last_call_ns_, record.time_ns, record.last_time_ns});
}

// Recovery sets the compute queue up again and finish switches the SDMA queue off: what they stood
// at must be kept from before.
void Observation::KeepState() {
  const auto& sessions = device_.boot().sessions();
  if (sessions.empty()) return;
  const model::BootSession& now = sessions.back();
  if (sessions.size() != session_count_) {
    session_count_ = sessions.size();
    phase_count_ = 0;
    kept_.reset();
  }
  if (now.phases.size() == phase_count_) return;
  phase_count_ = now.phases.size();
  const model::Phase phase = now.phases.back().phase;
  if (phase == model::Phase::kRecovery && (!kept_ || Survived(*kept_))) {
    kept_ = Kept{ViewQueues(device_, queues_.queues()), device_.ih().first_round(),
                 device_.ih().last_round(), now.last_recovery.call};
  }
}

bool Observation::Survived(const Kept& kept) const {
  const uint64_t drained = device_.ih().last_drain().call;
  bool worked = false;
  for (const model::Queue& queue : queues_.queues().queues())
    worked |= queue.last_doorbell_call > kept.recovery && queue.last_doorbell_call < drained;
  return worked;
}

void Observation::Finish() {
  session_.Finish();
  queues_.Finish();
}

Facts Observation::MakeFacts(const File& file) const {
  // What a recovery left undone is a hang no more if all that came after it was done.
  std::vector<QueueView> now;
  bool survived = false;
  if (!kept_ || Survived(*kept_)) {
    now = ViewQueues(device_, queues_.queues());
    survived = kept_ && std::none_of(now.begin(), now.end(),
                                     [](const QueueView& view) { return view.unfinished(); });
  }
  const bool keep = kept_ && !survived;
  Facts facts(device_, session_.session(), polls_, shift_, ras_.error(), reads_.run(), queues_,
              keep ? kept_->queues : std::move(now));
  facts.survived = survived ? device_.boot().current()->recoveries : 0;
  facts.wait_first = keep ? kept_->first_round : device_.ih().first_round();
  facts.wait_last = keep ? kept_->last_round : device_.ih().last_round();
  facts.warnings = session_.Warnings();
  facts.earlier = earlier_;
  facts.whole = file.whole;
  facts.file_problem = file.problem;
  facts.lost_calls = file.lost_calls;
  facts.last_call = session_.session().last_seq;
  facts.last_call_ns = last_call_ns_;
  facts.last_time_ns = last_ns_;
  facts.silence = silence_;
  facts.ended_reads = reads_.ended();
  facts.turn = reads_.turn();
  Derive(facts);
  return facts;
}

}  // namespace tg::explain
