#include "decoder/diff/survey.h"

#include <fmt/format.h>

#include "decoder/explain/observation.h"

namespace tg::diff {
namespace {

std::string NameOf(const model::RegisterState& r) {
  std::string text =
      r.named() ? std::string(r.name()) : fmt::format("bar{}+{:#x}", r.bar, r.address);
  if (r.hit && r.hit.instance) text += fmt::format(" instance {}", r.hit.instance);
  return r.die ? text + fmt::format(" die {}", r.die) : text;
}

// Only what memory proves: a fence word that was looked at and has not the value, or a read pointer
// that did not come so far. What nobody looked at may have gone well.
void AddUnfinished(const explain::QueueView& view, Survey& survey) {
  if (!view.open || !view.queue->known_format) return;
  const model::QueueState& state = view.state;
  const bool fence_seen = state.missing && (state.missing->memory || state.missing->forced);
  const bool behind = state.rptr_source != model::PointerSeen::Source::kNone &&
                      state.rptr_source != model::PointerSeen::Source::kSetup &&
                      state.outstanding_bytes.value_or(0) > 0;
  if (!fence_seen && !behind) return;
  std::string text = fmt::format("{} submission {} never finished", view.name(), view.open->number);
  if (state.stuck) text += fmt::format(": at {}", state.stuck->text);
  if (!view.open->signals.empty())
    text += fmt::format("{} fence {} not seen", state.stuck ? "," : ":",
                        view.open->signals.back().value);
  survey.unfinished.emplace(view.open->doorbell_call, std::move(text));
}

}  // namespace

Result<Survey> SurveyTrace(const std::string& path, const std::function<void(double)>& progress) {
  auto reader = trace::TraceReader::Open(path);
  if (!reader) return tl::unexpected(reader.error());
  explain::Observation o;
  trace::Record record;
  uint64_t count = 0;
  while ((*reader)->Next(record)) {
    o.Feed(record);
    if (progress && ++count % 65536 == 0 && (*reader)->file_size() > 0)
      progress(static_cast<double>((*reader)->offset()) /
               static_cast<double>((*reader)->file_size()));
  }
  o.Finish();

  Survey survey;
  const model::Session& session = o.session();
  survey.calls = session.calls;
  survey.transport = session.transport;
  if (o.device().discovery()) {
    const amd::IpVersion gc = o.device().gc();
    survey.asic = fmt::format("gc {}.{}.{}", gc.major, gc.minor, gc.revision);
  }
  explain::Observation::File file;
  file.whole = (*reader)->end_state() == trace::EndState::kClean && (*reader)->skipped().empty();
  if (!file.whole) {
    file.problem = fmt::format("{} at byte {}", trace::EndStateText((*reader)->end_state()),
                               (*reader)->good_end());
  }
  for (const model::LossSeen& loss : session.losses) file.lost_calls += loss.calls + loss.packets;
  survey.problem = file.problem;
  survey.lost = file.lost_calls;
  const explain::Facts facts = o.MakeFacts(file);
  const explain::Explanation said = explain::Explain(facts);
  survey.verdict = said.verdict().kind + ": " + said.verdict().summary;
  for (const explain::QueueView& view : facts.queues) {
    if (view.queue->known_format && view.queue->doorbells > 0)
      survey.queues.push_back(view.state.headline);
    AddUnfinished(view, survey);
  }
  for (const model::RegisterState& r : o.device().registers().all()) {
    // Pointers of the interrupt ring depend on time.
    if (r.known && r.role != model::Role::kIhWptr && r.role != model::Role::kIhRptr)
      survey.registers.push_back({NameOf(r), r.value});
  }
  const model::CallCount& reads = session.counts[static_cast<size_t>(wire::Command::kMmioRead)];
  if (reads.histogram && reads.measured > 0)
    survey.reply_ns = reads.histogram->Quantile(0.5, reads.measured);
  return survey;
}

}  // namespace tg::diff
