#include "decoder/explain/observation.h"

#include <algorithm>

namespace tg::explain {

Observation::Observation() : queues_(device_) {
  device_.AddObserver(&polls_);
}

void Observation::Feed(const trace::Record& record) {
  session_.Add(record);
  device_.Feed(record);
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
  if (!kept_ && phase == model::Phase::kRecovery) {
    kept_ = Kept{ViewQueues(device_, queues_.queues()), device_.ih().first_round(),
                 device_.ih().last_round()};
  }
}

void Observation::Finish() {
  session_.Finish();
  queues_.Finish();
}

Facts Observation::MakeFacts(const File& file) const {
  Facts facts(device_, session_.session(), polls_, queues_.queues(),
              kept_ ? kept_->queues : ViewQueues(device_, queues_.queues()));
  facts.wait_first = kept_ ? kept_->first_round : device_.ih().first_round();
  facts.wait_last = kept_ ? kept_->last_round : device_.ih().last_round();
  facts.warnings = session_.Warnings();
  facts.whole = file.whole;
  facts.file_problem = file.problem;
  facts.lost_calls = file.lost_calls;
  facts.last_call = session_.session().last_seq;
  facts.last_call_ns = last_call_ns_;
  facts.last_time_ns = last_ns_;
  Derive(facts);
  return facts;
}

}  // namespace tg::explain
