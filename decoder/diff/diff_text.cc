// DiffResult as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "decoder/diff/diff.h"

namespace tg::diff {
namespace {

using nlohmann::json;

constexpr size_t kShown = 20;  // events of a difference
constexpr size_t kSummaryLines = 15;

std::string Line(const Event& e) {
  std::string seq =
      e.last_seq > e.seq ? fmt::format("#{}..{}", e.seq, e.last_seq) : fmt::format("#{}", e.seq);
  const char* direction = e.kind == Event::Kind::kCall || e.kind == Event::Kind::kEnd ||
                                  e.kind == Event::Kind::kInterrupt ||
                                  e.kind == Event::Kind::kPacket
                              ? ""
                          : e.write ? "write "
                                    : "read ";
  return fmt::format("{:>12} {}{}{}{}", seq, direction, e.what, e.value.empty() ? "" : " = ",
                     e.value);
}

std::string Cut(std::string text, size_t width) {
  if (text.size() > width) text = text.substr(0, width - 3) + "...";
  return text;
}

class Printer {
 public:
  explicit Printer(const TextOptions& options) : options_(options) {}
  void Add(std::string line, const char* color = nullptr) {
    if (options_.color && color) {
      out_ += fmt::format("\x1b[{}m{}\x1b[0m\n", color, line);
    } else {
      out_ += line + "\n";
    }
  }
  std::string Take() { return std::move(out_); }

 private:
  const TextOptions& options_;
  std::string out_;
};

void ShowFirst(const Difference& d, const TextOptions& options, Printer& out) {
  const auto& before_a = d.before_a;
  const auto& before_b = d.before_b;
  if (options.side_by_side) {
    const size_t half = (options.width - 3) / 2;
    const auto row = [&](const Token* a, const Token* b, const char* color) {
      out.Add(fmt::format("{:<{}} | {}", a ? Cut(Line(*a->event), half) : "", half,
                          b ? Cut(Line(*b->event), half) : ""),
              color);
    };
    const size_t n = std::max(before_a.size(), before_b.size());
    for (size_t i = 0; i < n; i++)
      row(i < before_a.size() ? &before_a[i] : nullptr,
          i < before_b.size() ? &before_b[i] : nullptr, nullptr);
    const size_t m = std::min(kShown, std::max(d.a.size(), d.b.size()));
    for (size_t i = 0; i < m; i++)
      row(i < d.a.size() ? &d.a[i] : nullptr, i < d.b.size() ? &d.b[i] : nullptr, "1");
    return;
  }
  for (const auto& [name, before] : {std::pair{"A", &before_a}, std::pair{"B", &before_b}}) {
    if (before->empty()) continue;
    out.Add(fmt::format("  {}: the {} events before", name, before->size()));
    for (const Token& t : *before) out.Add("   " + Line(*t.event));
  }
  const auto side = [&](const char* mark, const std::vector<Token>& events, uint64_t count,
                        const char* color) {
    for (size_t i = 0; i < std::min(events.size(), kShown); i++)
      out.Add(fmt::format(" {} {}", mark, Line(*events[i].event)), color);
    if (count > kShown)
      out.Add(fmt::format(" {} ... {} more", mark, count - std::min<uint64_t>(kShown, count)),
              color);
  };
  side("-", d.a, d.count_a, "31");
  side("+", d.b, d.count_b, "32");
}

std::vector<std::pair<std::string, uint64_t>> Top(const std::map<std::string, uint64_t>& counts) {
  std::vector<std::pair<std::string, uint64_t>> top(counts.begin(), counts.end());
  std::stable_sort(top.begin(), top.end(),
                   [](const auto& x, const auto& y) { return x.second > y.second; });
  return top;
}

json EventJson(const Token& t) {
  const Event& e = *t.event;
  return {{"seq", e.seq},
          {"t_ns", e.time_ns},
          {"kind", EventKindName(e.kind)},
          {"phase", model::PhaseName(e.phase)},
          {"write", e.write},
          {"what", e.what},
          {"value", e.value}};
}

json SideJson(const EndOfTrace& end) {
  const auto text = [](const std::string& s) { return s.empty() ? json(nullptr) : json(s); };
  return {{"path", end.path},
          {"events", end.events},
          {"calls", end.calls},
          {"asic", text(end.asic)},
          {"transport", text(end.transport)},
          {"problem", text(end.problem)},
          {"verdict", end.verdict},
          {"queues", end.queues}};
}

}  // namespace

std::string DiffText(const DiffResult& result, const TextOptions& options) {
  Printer out(options);
  out.Add(fmt::format("A {}: {} calls, {} events; {}", result.a.path, result.a.calls,
                      result.a.events, result.a.verdict));
  out.Add(fmt::format("B {}: {} calls, {} events; {}", result.b.path, result.b.calls,
                      result.b.events, result.b.verdict));
  for (const std::string& note : result.notes) out.Add("note: " + note, "33");
  if (result.equal()) {
    out.Add("no difference");
    return out.Take();
  }
  const Difference& first = result.differences.front();
  const auto place = [](const std::vector<Token>& side, const std::vector<Token>& before) {
    return !side.empty()     ? fmt::format("#{}", side.front().event->seq)
           : !before.empty() ? fmt::format("after #{}", before.back().event->last_seq)
                             : std::string("at the start");
  };
  out.Add("");
  out.Add(fmt::format("first difference: {}, A {}, B {}", KindName(first.kind),
                      place(first.a, first.before_a), place(first.b, first.before_b)),
          "1");
  ShowFirst(first, options, out);
  out.Add("");
  out.Add(fmt::format("{} difference{}", result.total, result.total == 1 ? "" : "s"), "1");
  for (size_t i = 1; i < std::min<size_t>(result.differences.size(), kSummaryLines); i++) {
    const Difference& d = result.differences[i];
    const std::vector<Token>& shown = d.a.empty() ? d.b : d.a;
    out.Add(Cut(fmt::format("  {:<9} A {} ({}), B {} ({}):{}", KindName(d.kind),
                            place(d.a, d.before_a), d.count_a, place(d.b, d.before_b), d.count_b,
                            shown.empty() ? "" : Line(*shown.front().event)),
                options.width));
  }
  if (result.total > kSummaryLines)
    out.Add(fmt::format("  ... {} more", result.total - kSummaryLines));
  out.Add("by phase:");
  for (const auto& [name, n] : Top(result.by_phase)) out.Add(fmt::format("  {:>8}  {}", n, name));
  out.Add("by register or object:");
  size_t lines = 0;
  for (const auto& [name, n] : Top(result.by_what)) {
    if (lines++ == kSummaryLines) break;
    out.Add(fmt::format("  {:>8}  {}", n, name));
  }
  if (!result.registers.empty()) {
    out.Add("registers whose last value differs:");
    for (size_t i = 0; i < std::min(result.registers.size(), kSummaryLines); i++)
      out.Add(fmt::format("  {}: A {}, B {}", result.registers[i].name, result.registers[i].a,
                          result.registers[i].b));
    if (result.registers.size() > kSummaryLines)
      out.Add(fmt::format("  ... {} more", result.registers.size() - kSummaryLines));
  }
  for (const auto& [name, end] : {std::pair{"A", &result.a}, std::pair{"B", &result.b}})
    for (const std::string& line : end->queues) out.Add(fmt::format("{}: {}", name, line));
  if (result.a.verdict != result.b.verdict)
    out.Add(fmt::format("the ends differ: A {}; B {}", result.a.verdict, result.b.verdict), "1");
  return out.Take();
}

std::string DiffJson(const DiffResult& result) {
  json differences = json::array();
  for (const Difference& d : result.differences) {
    json j = {{"kind", KindName(d.kind)},
              {"at_a", d.at_a},
              {"at_b", d.at_b},
              {"count_a", d.count_a},
              {"count_b", d.count_b}};
    for (const auto& [name, events] :
         {std::pair{"a", &d.a}, std::pair{"b", &d.b}, std::pair{"before_a", &d.before_a},
          std::pair{"before_b", &d.before_b}}) {
      j[name] = json::array();
      for (const Token& t : *events) j[name].push_back(EventJson(t));
    }
    differences.push_back(std::move(j));
  }
  json registers = json::array();
  for (const auto& r : result.registers)
    registers.push_back({{"name", r.name}, {"a", r.a}, {"b", r.b}});
  const json document = {{"schema", 1},
                         {"equal", result.equal()},
                         {"total", result.total},
                         {"a", SideJson(result.a)},
                         {"b", SideJson(result.b)},
                         {"notes", result.notes},
                         {"differences", std::move(differences)},
                         {"by_phase", result.by_phase},
                         {"by_what", result.by_what},
                         {"registers", std::move(registers)}};
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace tg::diff
