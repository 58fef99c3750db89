#include "decoder/diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "decoder/explain/explain.h"

namespace tg::diff {
namespace {

constexpr size_t kMaxRegisters = 200;
constexpr size_t kMaxNames = 5000;  // of by_what

EndOfTrace Describe(const std::string& path, const EventStream& stream, uint64_t events) {
  const explain::Observation& o = stream.observation();
  EndOfTrace end;
  end.path = path;
  end.events = events;
  end.calls = o.session().calls;
  if (const amd::Discovery* discovery = o.device().discovery(); discovery)
    end.asic = fmt::format("gc {}.{}.{}", o.device().gc().major, o.device().gc().minor,
                           o.device().gc().revision);
  end.transport = model::TransportText(o.session().transport);
  const explain::Observation::File file = stream.file();
  end.problem = file.problem;
  if (end.problem.empty() && file.lost_calls > 0)
    end.problem = fmt::format("{} records lost", file.lost_calls);
  const explain::Explanation e = o.ExplainIt(file);
  end.verdict = e.verdict().kind + ": " + e.verdict().summary;
  for (const explain::QueueView& view : o.MakeFacts(file).queues) {
    if (view.queue->known_format && view.queue->doorbells > 0)
      end.queues.push_back(view.state.headline);
  }
  return end;
}

void CompareRegisters(const explain::Observation& a, const explain::Observation& b,
                      DiffResult& result) {
  std::map<std::string, std::pair<const model::RegisterState*, const model::RegisterState*>> all;
  const auto name = [](const model::RegisterState& r) {
    std::string text =
        r.named() ? std::string(r.name()) : fmt::format("bar{}+{:#x}", r.bar, r.address);
    if (r.hit && r.hit.instance) text += fmt::format(" instance {}", r.hit.instance);
    return r.die ? text + fmt::format(" die {}", r.die) : text;
  };
  for (const model::RegisterState& r : a.device().registers().all())
    if (r.known) all[name(r)].first = &r;
  for (const model::RegisterState& r : b.device().registers().all())
    if (r.known) all[name(r)].second = &r;
  for (const auto& [text, pair] : all) {
    const auto& [left, right] = pair;
    if (left && right && left->value == right->value) continue;
    const auto role = (left ? left : right)->role;
    if (role == model::Role::kIhWptr || role == model::Role::kIhRptr) continue;  // depends on time
    if (result.registers.size() == kMaxRegisters) break;
    const auto value = [](const model::RegisterState* r) {
      return r ? fmt::format("{:#x}", r->value) : std::string("not observed");
    };
    result.registers.push_back({text, value(left), value(right)});
  }
}

}  // namespace

Result<DiffResult> Diff(const std::string& path_a, const std::string& path_b,
                        const DiffOptions& options) {
  auto reader_a = trace::TraceReader::Open(path_a);
  if (!reader_a) return tl::unexpected(reader_a.error());
  auto reader_b = trace::TraceReader::Open(path_b);
  if (!reader_b) return tl::unexpected(reader_b.error());
  EventStream a(std::move(*reader_a), options.strict, options.filter);
  EventStream b(std::move(*reader_b), options.strict, options.filter);
  uint64_t count = 0;
  const auto source = [&](EventStream& stream) {
    return [&stream, &count, &options, &a, &b](Token& token) {
      if (options.progress && ++count % 65536 == 0) {
        const auto share = [](const EventStream& s) {
          return s.reader().file_size() ? static_cast<double>(s.reader().offset()) /
                                              static_cast<double>(s.reader().file_size())
                                        : 1.0;
        };
        options.progress((share(a) + share(b)) / 2);
      }
      auto event = stream.Next();
      if (!event) return false;
      token.key = event->key;
      token.value = event->hash;
      token.event = std::make_shared<const Event>(std::move(*event));
      return true;
    };
  };

  DiffResult result;
  Aligner aligner(source(a), source(b));
  Difference difference;
  std::vector<Difference> last;  // the newest, held back: it may be the end of a cut trace
  const auto take = [&result](Difference d) {
    result.total++;
    for (const auto* side : {&d.a, &d.b}) {
      for (const Token& t : *side) {
        result.by_phase[std::string(model::PhaseName(t.event->phase))]++;
        if (result.by_what.size() < kMaxNames || result.by_what.count(t.event->what))
          result.by_what[t.event->what]++;
      }
    }
    if (result.differences.size() < DiffResult::kKept) result.differences.push_back(std::move(d));
  };
  while (aligner.Next(difference)) {
    if (!last.empty()) take(std::move(last.back()));
    last.assign(1, std::move(difference));
  }
  if (!last.empty()) {
    Difference& d = last.back();
    const bool a_ends = d.count_a == 0 && d.at_a == aligner.events_a() && a.incomplete();
    const bool b_ends = d.count_b == 0 && d.at_b == aligner.events_b() && b.incomplete();
    if (a_ends || b_ends) {
      const EventStream& cut = a_ends ? a : b;
      result.notes.push_back(
          fmt::format("{} ends early after event {} ({}): nothing to compare from there on",
                      a_ends ? "A" : "B", a_ends ? d.at_a : d.at_b,
                      cut.file().problem.empty() ? "records lost" : cut.file().problem));
    } else {
      take(std::move(d));
    }
  }

  result.a = Describe(path_a, a, aligner.events_a());
  result.b = Describe(path_b, b, aligner.events_b());
  if (!result.a.asic.empty() && !result.b.asic.empty() && result.a.asic != result.b.asic)
    result.notes.push_back(
        fmt::format("different chips: A {}, B {}; only what both have is comparable", result.a.asic,
                    result.b.asic));
  if (result.a.transport != result.b.transport)
    result.notes.push_back(
        fmt::format("different transports: A {}, B {}",
                    result.a.transport.empty() ? "not observed" : result.a.transport,
                    result.b.transport.empty() ? "not observed" : result.b.transport));
  for (const auto& [side, stream] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    if (stream->file().lost_calls > 0)
      result.notes.push_back(fmt::format(
          "{} lost {} records while recording: gaps there are no differences of the device", side,
          stream->file().lost_calls));
  }
  if (result.total > 0) CompareRegisters(a.observation(), b.observation(), result);
  return result;
}

}  // namespace tg::diff
