#include "replay/script/survey.h"

#include <fmt/format.h>

#include <algorithm>

#include "replay/script/format.h"
#include "schemas/trace/trace.pb.h"

namespace tg::replay {
namespace {

bool SmallRead(const wire::RequestHeader& request) {
  const wire::CommandInfo* info = wire::FindCommand(request.command);
  return info && info->body == wire::BodyRule::kArg1 && request.arg1 <= 8;
}

class Examiner {
 public:
  Examiner(Survey& survey, Script& script) : survey_(survey), script_(script) {}

  void Take(const Step& step) {
    switch (step.kind) {
      case Step::Kind::kCall:
        TakeCall(step.call, 1, step.call.expects_reply && !step.call.answered ? 1 : 0);
        break;
      case Step::Kind::kRun:
        TakeRun(*step.run);
        break;
      case Step::Kind::kMemory:
        survey_.memory[static_cast<size_t>(step.memory.why)]++;
        break;
      case Step::Kind::kRegion:
        TakeRegion(step);
        break;
      case Step::Kind::kConnect:
        SettleRegion();
        Connection(step.connection, step.number + 1).transport = step.text;
        break;
      case Step::Kind::kDisconnect:
        if (!survey_.connections.empty() && survey_.connections.back().id == step.connection)
          survey_.connections.back().closed_first = step.text.empty() ? "unknown" : step.text;
        break;
      case Step::Kind::kGap:
        TakeGap(step);
        break;
      case Step::Kind::kRaw:
        if (!survey_.raw_after) survey_.raw_after = step.number;
        break;
    }
  }

  void Finish() {
    SettleRegion();
    const trace::TraceReader& reader = script_.reader();
    if (reader.header()) survey_.body_policy = reader.header()->body_policy();
    survey_.whole_file = reader.end_state() == trace::EndState::kClean;
    survey_.end_text = trace::EndStateText(reader.end_state());
    survey_.revision = script_.revision();
  }

 private:
  SurveyConnection& Connection(uint32_t id, uint64_t first_call) {
    survey_.connection_count++;
    if (survey_.connections.size() == kMaxConnections) survey_.connections.pop_back();
    SurveyConnection& connection = survey_.connections.emplace_back();
    connection.id = id;
    connection.first_call = first_call;
    return connection;
  }

  void Note(Lack& lack, const Call& call) {
    if (lack.count++ == 0) {
      lack.first = call.number;
      lack.example = FormatCall(call, script_.revision());
    }
  }

  void TakeCall(const Call& call, uint64_t count, uint64_t unanswered) {
    if (survey_.connections.empty()) Connection(0, call.number);
    survey_.calls += count;
    survey_.connections.back().calls += count;
    survey_.unanswered += unanswered;
    if (call.answered && !call.body.came_known()) Note(survey_.bodies, call);
    if (!call.payload.known() && !call.truncated) Note(survey_.payloads, call);
    if (SmallRead(call.request)) {
      uint8_t& seen = survey_.reads[RequestKey(call.request)];
      seen = static_cast<uint8_t>(std::min<uint64_t>(255, seen + count));
    }
    const wire::CommandInfo* info = wire::FindCommand(call.request.command);
    if (info && info->descriptor && call.answered && call.reply.status == 0) {
      SettleRegion();
      region_call_ = call;
      region_seen_ = false;
    }
  }

  void TakeRun(const Run& run) {
    const uint64_t length = run.pattern.size();
    uint64_t replies = 0;
    for (size_t i = 0; i < length; i++) {
      const uint64_t count = run.issued / length + (i < run.issued % length ? 1 : 0);
      TakeCall(run.pattern[i], count, 0);
      if (run.pattern[i].expects_reply) replies += count;
    }
    survey_.unanswered += replies - std::min(replies, run.answered);
  }

  void TakeRegion(const Step& step) {
    survey_.regions++;
    if (step.number == region_call_.number && !step.region.ranges.empty()) region_seen_ = true;
  }

  // The region packet of a call may come a little later than its reply.
  void SettleRegion() {
    if (region_call_.number != 0 && !region_seen_) Note(survey_.unmapped, region_call_);
    region_call_ = Call();
  }

  void TakeGap(const Step& step) {
    survey_.gap_count++;
    if (survey_.gaps.size() < kMaxGaps)
      survey_.gaps.push_back(fmt::format("after call #{}: {}", step.number, step.text));
    if (step.breaks && !survey_.breaks) {
      survey_.breaks = true;
      survey_.first_break = step.number;
    }
  }

  Survey& survey_;
  Script& script_;
  Call region_call_;
  bool region_seen_ = false;
};

}  // namespace

bool Survey::Polled(const wire::RequestHeader& request) const {
  if (!SmallRead(request)) return false;
  const auto found = reads.find(RequestKey(request));
  return found != reads.end() && found->second >= 2;
}

Survey Examine(Script& script) {
  Survey survey;
  Examiner examiner(survey, script);
  while (const Step* step = script.At(0)) {
    examiner.Take(*step);
    script.Pop();
  }
  examiner.Finish();
  return survey;
}

}  // namespace tg::replay
