#include "decoder/explain/observation.h"

#include <algorithm>

namespace tg::explain {

Observation::Observation() : queues_(device_) {
  device_.AddObserver(&polls_);
}

void Observation::Feed(const trace::Record& record) {
  session_.Add(record);
  device_.Feed(record);
  last_ns_ = std::max({last_ns_, record.time_ns, record.last_time_ns});
  if (record.kind != trace::Record::Kind::kPacket)
    last_call_ns_ = std::max({last_call_ns_, record.time_ns, record.last_time_ns});
}

void Observation::Finish() {
  session_.Finish();
  queues_.Finish();
}

Facts Observation::MakeFacts(const File& file) const {
  Facts facts(device_, session_.session(), polls_, queues_.queues());
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
