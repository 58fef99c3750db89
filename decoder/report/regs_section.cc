#include "decoder/report/regs_section.h"

#include <algorithm>
#include <cctype>

#include "decoder/report/section_json.h"

namespace tg::report {
namespace {

using model::RegisterState;
using model::Thousands;

char Lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool Glob(std::string_view pattern, std::string_view name) {
  // Iterative, with one place to come back to: linear in practice, quadratic at worst.
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || Lower(pattern[p]) == Lower(name[n]))) {
      ++p;
      ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view ViaName(model::Via via) {
  switch (via) {
    case model::Via::kDirect:
      return "BAR";
    case model::Via::kVramWindow:
      return "MM window";
    case model::Via::kRsmuWindow:
      return "RSMU window";
    case model::Via::kPcieWindow:
      return "PCIE window";
  }
  return "BAR";
}

std::string BlockOf(const RegisterState& state) {
  if (!state.hit || state.hit.hw_id == 0) return "";
  return amd::HwIdName(state.hit.hw_id);
}

Json Fields(const RegisterState& state, uint32_t value) {
  if (!state.hit) return nullptr;
  return TextOrNull(amd::DescribeFields(*state.hit.reg, value));
}

Json SampleJson(const RegisterState& state, const model::Sample& sample) {
  Json j;
  j["seq"] = sample.at.call;
  j["t_ns"] = sample.at.time_ns;
  j["write"] = sample.write;
  j["value"] = sample.value;
  j["fields"] = Fields(state, sample.value);
  return j;
}

Json RegisterJson(const RegisterState& state, bool history) {
  Json j;
  j["name"] = TextOrNull(state.name());
  j["address"] = state.address;
  j["bar"] = state.bar;
  j["block"] = TextOrNull(BlockOf(state));
  j["module"] = state.hit && state.hit.hw_id != 0
                    ? Json(std::string(state.hit.module->prefix) + " " +
                           amd::ToString(state.hit.module->version))
                    : Json(nullptr);
  j["instance"] = state.hit ? Json(state.hit.instance) : Json(nullptr);
  j["die"] = state.die;
  j["via"] = ViaName(state.via);
  j["value"] = state.known ? Json(state.value) : Json(nullptr);
  j["fields"] = state.known ? Fields(state, state.value) : Json(nullptr);
  j["reads"] = state.reads;
  j["writes"] = state.writes;
  j["first_seq"] = SeqOrNull(state.first);
  j["last_read"] = state.reads > 0 ? SampleJson(state, state.last_read) : Json(nullptr);
  j["last_write"] = state.writes > 0 ? SampleJson(state, state.last_write) : Json(nullptr);
  j["history_total"] = state.history.total();
  if (history) {
    size_t gap = 0;
    const auto samples = state.history.All(&gap);
    j["history_gap_after"] = gap < samples.size() ? Json(gap) : Json(nullptr);
    j["history"] = Json::array();
    for (const model::Sample& sample : samples) j["history"].push_back(SampleJson(state, sample));
  }
  return j;
}

}  // namespace

bool MatchesGlob(std::string_view pattern, std::string_view name) {
  if (Glob(pattern, name)) return true;
  for (const std::string_view prefix : {"reg", "mm"}) {
    if (name.starts_with(prefix) && Glob(pattern, name.substr(prefix.size()))) return true;
  }
  return false;
}

Json RegsJson(const model::Device& device, const RegsOptions& options) {
  const model::Registers& registers = device.registers();
  const auto wanted = [&](const RegisterState& state) {
    if (options.unknown_only && state.named()) return false;
    if (!options.glob.empty() && !MatchesGlob(options.glob, state.name())) return false;
    if (!options.block.empty()) {
      const std::string block = BlockOf(state);
      if (!std::equal(block.begin(), block.end(), options.block.begin(), options.block.end(),
                      [](char a, char b) { return Lower(a) == Lower(b); })) {
        return false;
      }
    }
    return true;
  };
  Json out;
  out["accesses"] = registers.accesses();
  out["unnamed_accesses"] = registers.unnamed_accesses();
  out["names"] = device.vendor() == model::Vendor::kNvidia ? "none (NVIDIA)"
                 : registers.map().assumed()               ? "assumed gfx11/12 bases"
                                                           : "from the card's discovery table";
  out["registers"] = Json::array();
  std::vector<const RegisterState*> sorted = registers.Sorted();
  std::stable_partition(sorted.begin(), sorted.end(),
                        [](const RegisterState* state) { return !state->named(); });
  for (const RegisterState* state : sorted) {
    if (wanted(*state)) out["registers"].push_back(RegisterJson(*state, options.history));
  }
  out["pairs"] = Json::array();
  for (const model::RegisterPair& pair : registers.Pairs()) {
    if (!wanted(*pair.low) && !wanted(*pair.high)) continue;
    Json j;
    j["name"] = pair.name;
    j["value"] = pair.value();
    j["low"] = pair.low->name();
    j["high"] = pair.high->name();
    out["pairs"].push_back(std::move(j));
  }
  return out;
}

void RegsText(const Json& regs, Output& out) {
  out.Heading("Registers");
  SectionRow(out, "accesses",
             fmt::format("{}, {} of them to registers without a name",
                         Thousands(regs["accesses"].get<uint64_t>()),
                         Thousands(regs["unnamed_accesses"].get<uint64_t>())));
  SectionRow(out, "names", SectionText(regs["names"]));
  for (const Json& r : regs["registers"]) {
    std::string name = r["name"].is_null() ? fmt::format("bar{}+{}", r["bar"].get<uint32_t>(),
                                                         HexText(r["address"]))
                                           : SectionText(r["name"]);
    if (!r["instance"].is_null() && r["instance"].get<uint32_t>() != 0) {
      name += fmt::format("[{}]", r["instance"].get<uint32_t>());
    }
    if (r["die"].get<uint32_t>() != 0) name += fmt::format(" die {}", r["die"].get<uint32_t>());
    std::string line = fmt::format("  {:<44} {:<10}", name, HexText(r["value"], 8));
    line += fmt::format(" r {:<7} w {:<6}", Thousands(r["reads"].get<uint64_t>()),
                        Thousands(r["writes"].get<uint64_t>()));
    if (r["via"] != "BAR") line += fmt::format(" by {}", SectionText(r["via"]));
    if (!r["fields"].is_null()) line += " " + SectionText(r["fields"]);
    out.Line(r["name"].is_null() ? out.Paint(Style::kWarn, line) : line);
    if (!r.contains("history")) continue;
    size_t index = 0;
    for (const Json& s : r["history"]) {
      if (!r["history_gap_after"].is_null() && index == r["history_gap_after"].get<size_t>()) {
        out.Line(fmt::format("      ... {} more",
                             r["history_total"].get<uint64_t>() - r["history"].size()));
      }
      ++index;
      std::string sample = fmt::format("      {:<8} t={} s  {} {}", SeqText(s["seq"]),
                                       model::Seconds(s["t_ns"].get<uint64_t>()),
                                       s["write"].get<bool>() ? "W" : "R", HexText(s["value"], 8));
      if (!s["fields"].is_null()) sample += "  " + SectionText(s["fields"]);
      out.Line(sample);
    }
  }
  if (regs["pairs"].empty()) return;
  out.Heading("64-bit pairs");
  for (const Json& pair : regs["pairs"]) {
    out.Line(fmt::format("  {:<52} {}", SectionText(pair["name"]), HexText(pair["value"])));
  }
}

}  // namespace tg::report
