// DiffResult as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "decoder/diff/diff.h"
#include "decoder/diff/event.h"
#include "decoder/model/words.h"

namespace tg::diff {
namespace {

using nlohmann::json;

constexpr size_t kShown = 20;         // events of a difference
constexpr size_t kShownPackets = 12;  // of one doorbell
constexpr size_t kSummaryLines = 15;

// A doorbell comes with the packets it announced, one a line, before it.
std::vector<std::string> Lines(const Event& e) {
  std::vector<std::string> lines;
  const size_t shown = std::min(e.packets.size(), kShownPackets);
  for (size_t i = 0; i < shown; i++)
    lines.push_back(fmt::format("{:>12} {}{} {}", fmt::format("#{}", e.seq),
                                e.packets[i].depth ? "  " : "", e.queue, e.packets[i].Text()));
  if (shown < e.packets.size())
    lines.push_back(fmt::format("{:>12} ... {} more packets", "", e.packets.size() - shown));
  lines.push_back(EventLine(e));
  return lines;
}

std::vector<std::string> Lines(const std::vector<Token>& events, size_t limit) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(events.size(), limit); i++)
    for (std::string& line : Lines(*events[i].event)) lines.push_back(std::move(line));
  return lines;
}

std::string Cut(std::string text, size_t width) {
  if (text.size() > width && width > 3) text = text.substr(0, width - 3) + "...";
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

// The packet that differs, by itself: the doorbell's lines say the rest.
std::string PartText(const Difference& d, const std::vector<Token>& side) {
  const Event& e = *side.front().event;
  return *d.part < e.packets.size() ? e.queue + " " + e.packets[*d.part].Text()
                                    : std::string("no such packet");
}

// Runs of page-table entries, where they part.
std::string EntryText(const Difference& d) {
  if (d.a.empty() || d.b.empty()) return {};
  const Event &a = *d.a.front().event, &b = *d.b.front().event;
  const auto entries = [](const Event& e) {
    return e.kind == Event::Kind::kPageTable && !e.entry_read;
  };
  if (!entries(a) || !entries(b) || a.address != b.address) return {};
  const bool same = a.flags == b.flags && a.target == b.target && a.index == b.index &&
                    (a.number == b.number || a.target == Event::Target::kDma);
  const uint64_t n = same ? std::min(a.size, b.size) : 0;
  return fmt::format("the first entry that differs is {:#x} (A about #{}, B about #{})",
                     a.address + 8 * n, a.seq + n, b.seq + n);
}

void ShowFirst(const Difference& d, const TextOptions& options, Printer& out) {
  if (options.side_by_side) {
    const size_t half = (options.width - 3) / 2;
    const auto rows = [&](const std::vector<std::string>& a, const std::vector<std::string>& b,
                          const char* color) {
      // The last lines stand beside each other before a difference, the first ones in it.
      const size_t n = std::max(a.size(), b.size());
      const auto at = [&](const std::vector<std::string>& lines, size_t i) {
        const size_t skip = color ? 0 : n - lines.size();
        return i >= skip && i - skip < lines.size() ? Cut(lines[i - skip], half) : std::string();
      };
      for (size_t i = 0; i < n; i++)
        out.Add(fmt::format("{:<{}} | {}", at(a, i), half, at(b, i)), color);
    };
    rows(Lines(d.before_a, kContext), Lines(d.before_b, kContext), nullptr);
    out.Add(fmt::format("{:-<{}}-+-{:-<{}}", "", half, "", half));
    rows(Lines(d.a, kShown), Lines(d.b, kShown), "1");
  } else {
    for (const auto& [name, before] : {std::pair{"A", &d.before_a}, std::pair{"B", &d.before_b}}) {
      if (before->empty()) continue;
      out.Add(fmt::format("  {}: the {} before", name, model::Count(before->size(), "event")));
      for (const std::string& line : Lines(*before, kContext)) out.Add("   " + line);
    }
    const auto side = [&](const char* mark, const std::vector<Token>& events, uint64_t count,
                          const char* color) {
      for (const std::string& line : Lines(events, kShown))
        out.Add(fmt::format(" {} {}", mark, line), color);
      if (count > kShown) out.Add(fmt::format(" {} ... {} more", mark, count - kShown), color);
    };
    side("-", d.a, d.count_a, "31");
    side("+", d.b, d.count_b, "32");
  }
  if (d.part && !d.a.empty() && !d.b.empty())
    out.Add(fmt::format("packet {} differs: A {}; B {}", *d.part + 1, PartText(d, d.a),
                        PartText(d, d.b)),
            "1");
  if (const std::string entry = EntryText(d); !entry.empty()) out.Add(entry, "1");
}

std::vector<std::pair<std::string, uint64_t>> Top(const std::map<std::string, uint64_t>& counts) {
  std::vector<std::pair<std::string, uint64_t>> top(counts.begin(), counts.end());
  std::stable_sort(top.begin(), top.end(),
                   [](const auto& x, const auto& y) { return x.second > y.second; });
  return top;
}

json EventJson(const Token& t) {
  const Event& e = *t.event;
  json j = {{"seq", e.seq},
            {"last_seq", e.last_seq},
            {"t_ns", e.time_ns},
            {"kind", EventKindName(e.kind)},
            {"phase", model::PhaseName(e.phase)},
            {"write", e.write},
            {"what", e.What()},
            {"value", e.Value()}};
  if (e.kind != Event::Kind::kDoorbell) return j;
  j["queue"] = e.queue.empty() ? json(nullptr) : json(e.queue);
  j["packets"] = e.packets_known ? json::array() : json(nullptr);
  for (const PacketSeen& packet : e.packets) j["packets"].push_back(packet.Text());
  return j;
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
    out.Add(result.cut ? "no difference up to there" : "no difference");
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
                            shown.empty() ? "" : EventLine(*shown.front().event)),
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
  if (!result.a.queues.empty() || !result.b.queues.empty()) {
    out.Add("queues at the end:");
    for (const auto& [name, end] : {std::pair{"A", &result.a}, std::pair{"B", &result.b}})
      for (const std::string& line : end->queues) out.Add(fmt::format("  {} {}", name, line));
  }
  if (result.a.verdict != result.b.verdict)
    out.Add(fmt::format("the ends differ: A {}; B {}", result.a.verdict, result.b.verdict), "1");
  return out.Take();
}

std::string DiffJson(const DiffResult& result) {
  json differences = json::array();
  for (const Difference& d : result.differences) {
    json j = {{"kind", KindName(d.kind)}, {"at_a", d.at_a},
              {"at_b", d.at_b},           {"count_a", d.count_a},
              {"count_b", d.count_b},     {"packet", d.part ? json(*d.part) : json(nullptr)}};
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
                         {"cut", result.cut},
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
