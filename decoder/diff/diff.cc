#include "decoder/diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "decoder/diff/event.h"
#include "decoder/diff/events.h"
#include "decoder/diff/survey.h"
#include "decoder/model/words.h"

namespace tg::diff {
namespace {

constexpr size_t kMaxRegisters = 200;
constexpr size_t kMaxNames = 5000;     // of by_what
constexpr uint64_t kSlowFactor = 8;    // median reply times that are worth a note
constexpr uint64_t kSlowLeast = 1000;  // ns

EndOfTrace Describe(const std::string& path, const Survey& survey) {
  EndOfTrace end;
  end.path = path;
  end.calls = survey.calls;
  end.asic = survey.asic;
  end.transport = model::TransportText(survey.transport);
  end.problem = survey.problem;
  if (end.problem.empty() && survey.lost > 0)
    end.problem = fmt::format("{} records lost", survey.lost);
  end.verdict = survey.verdict;
  end.queues = survey.queues;
  return end;
}

void CompareRegisters(const Survey& a, const Survey& b, DiffResult& result) {
  using Value = std::optional<uint32_t>;
  std::map<std::string, std::pair<Value, Value>> all;
  for (const FinalRegister& r : a.registers) all[r.name].first = r.value;
  for (const FinalRegister& r : b.registers) all[r.name].second = r.value;
  const auto text = [](const Value& v) {
    return v ? fmt::format("{:#x}", *v) : std::string("not observed");
  };
  for (const auto& [name, pair] : all) {
    if (pair.first == pair.second) continue;
    if (result.registers.size() == kMaxRegisters) break;
    result.registers.push_back({name, text(pair.first), text(pair.second)});
  }
}

bool SomethingOfBoth(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b;
}

void NoteLimits(const Survey& a, const Survey& b, DiffResult& result) {
  auto& notes = result.notes;
  if (SomethingOfBoth(a.asic, b.asic))
    notes.push_back(
        fmt::format("different chips: A {}, B {}; registers are compared by name, and only what "
                    "both have is comparable",
                    a.asic, b.asic));
  if (a.transport != b.transport) {
    const auto name = [](const Survey& s) {
      return s.transport == model::Transport::kUnknown ? "not observed"
                                                       : model::TransportText(s.transport);
    };
    notes.push_back(
        fmt::format("different transports: A {}, B {}; accesses to shared memory show on one of "
                    "them only and are left out",
                    name(a), name(b)));
  }
  for (const auto& [side, survey] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    if (survey->lost > 0)
      notes.push_back(fmt::format("{} lost {} records while recording: gaps are no differences",
                                  side, survey->lost));
  }
  const auto [fast, slow] = std::minmax(a.reply_ns, b.reply_ns);
  if (fast > 0 && slow >= kSlowLeast && slow / kSlowFactor >= fast)
    notes.push_back(fmt::format("{} is slow: half of its reads took {} or more, {} in the other",
                                a.reply_ns > b.reply_ns ? "A" : "B", model::Duration(slow),
                                model::Duration(fast)));
}

// An event that a cut-off trace holds the beginning of: a run of page-table entries, a poll.
bool BeginningOf(const std::vector<Token>& cut, const std::vector<Token>& whole) {
  if (cut.empty()) return true;
  if (cut.size() != 1 || whole.empty()) return false;
  const Event &a = *cut.front().event, &b = *whole.front().event;
  if (a.kind != b.kind || a.write != b.write || a.bar != b.bar || a.address != b.address)
    return false;
  if (a.kind == Event::Kind::kPageTable)
    return a.size < b.size && a.flags == b.flags && a.target == b.target;
  return !a.write && cut.front().key == whole.front().key;
}

class Collector {
 public:
  explicit Collector(DiffResult& result) : result_(result) {}

  void Take(Difference d) {
    result_.total++;
    for (const auto* side : {&d.a, &d.b}) {
      for (const Token& t : *side) {
        Count(*t.event);
        if (!d.part || t.event->packets.size() <= *d.part) continue;
        CountName(t.event->queue + " " + t.event->packets[*d.part].Op());
      }
    }
    if (result_.differences.size() < DiffResult::kKept) result_.differences.push_back(std::move(d));
  }

 private:
  void Count(const Event& e) {
    if (e.kind == Event::Kind::kGap) return;
    result_.by_phase[std::string(model::PhaseName(e.phase))]++;
    CountName(e.What());
  }
  void CountName(const std::string& name) {
    if (result_.by_what.size() < kMaxNames || result_.by_what.count(name)) result_.by_what[name]++;
  }
  DiffResult& result_;
};

}  // namespace

Result<DiffResult> Diff(const std::string& path_a, const std::string& path_b,
                        const DiffOptions& options) {
  // Surveys are a third of the work each way.
  const auto share = [&options](double from, double to) -> std::function<void(double)> {
    if (!options.progress) return nullptr;
    return [&options, from, to](double done) { options.progress(from + (to - from) * done); };
  };
  auto survey_a = SurveyTrace(path_a, share(0, 0.2));
  if (!survey_a) return tl::unexpected(survey_a.error());
  auto survey_b = SurveyTrace(path_b, share(0.2, 0.4));
  if (!survey_b) return tl::unexpected(survey_b.error());
  auto reader_a = trace::TraceReader::Open(path_a);
  if (!reader_a) return tl::unexpected(reader_a.error());
  auto reader_b = trace::TraceReader::Open(path_b);
  if (!reader_b) return tl::unexpected(reader_b.error());

  DiffResult result;
  NoteLimits(*survey_a, *survey_b, result);
  StreamOptions stream;
  stream.strict = options.strict;
  stream.filter = options.filter;
  stream.other_transport = survey_a->transport != survey_b->transport;
  stream.other_chip = SomethingOfBoth(survey_a->asic, survey_b->asic);
  stream.unfinished = survey_a->unfinished;
  EventStream a(std::move(*reader_a), stream);
  stream.unfinished = survey_b->unfinished;
  EventStream b(std::move(*reader_b), stream);

  const auto progress = share(0.4, 1);
  uint64_t count = 0;
  const auto source = [&](EventStream& from) {
    return [&from, &count, &progress, &a, &b](Token& token) {
      if (progress && ++count % 65536 == 0) {
        const auto done = [](const EventStream& s) {
          return s.reader().file_size() ? static_cast<double>(s.reader().offset()) /
                                              static_cast<double>(s.reader().file_size())
                                        : 1.0;
        };
        progress((done(a) + done(b)) / 2);
      }
      return from.Next(token);
    };
  };

  Aligner aligner(source(a), source(b));
  Collector collector(result);
  Difference difference;
  Difference last;  // held back: it may be the end of a trace that was cut
  bool held = false;
  uint64_t gaps = 0;
  while (aligner.Next(difference)) {
    if (held) collector.Take(std::move(last));
    held = difference.kind != Difference::Kind::kGap;
    if (held)
      last = std::move(difference);
    else
      gaps++;
  }
  if (held) {
    const Difference& d = last;
    const bool to_the_end =
        d.at_a + d.count_a == aligner.events_a() && d.at_b + d.count_b == aligner.events_b();
    const bool a_ends = to_the_end && a.cut() && d.count_a <= 1 && BeginningOf(d.a, d.b);
    const bool b_ends = to_the_end && b.cut() && d.count_b <= 1 && BeginningOf(d.b, d.a);
    if (a_ends || b_ends) {
      // Of two that are cut the one with nothing left ends first.
      const bool of_a = a_ends && (!b_ends || d.count_a == 0);
      result.cut = true;
      result.notes.push_back(fmt::format(
          "{} ends early after event {} ({}): nothing to compare from there on", of_a ? "A" : "B",
          of_a ? d.at_a : d.at_b, of_a ? survey_a->problem : survey_b->problem));
    } else {
      collector.Take(std::move(last));
    }
  }
  if (gaps > 0)
    result.notes.push_back(
        fmt::format("{} left out where records were lost", model::Count(gaps, "place")));
  for (const std::string& pattern : a.unused_patterns()) {
    const std::vector<std::string> other = b.unused_patterns();
    if (std::find(other.begin(), other.end(), pattern) != other.end())
      result.notes.push_back(fmt::format("'{}' matches no event of either trace", pattern));
  }

  result.a = Describe(path_a, *survey_a);
  result.b = Describe(path_b, *survey_b);
  result.a.events = aligner.events_a();
  result.b.events = aligner.events_b();
  if (result.total > 0) CompareRegisters(*survey_a, *survey_b, result);
  return result;
}

}  // namespace tg::diff
