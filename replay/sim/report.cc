#include "replay/sim/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tg::sim {
namespace {

struct Named {
  const char* name;
  uint64_t value;
};

std::vector<Named> Flatten(const Counters& c, const ServerStats& s) {
  return {
      {"refused", s.refused},
      {"unknown_commands", s.unknown},
      {"writes_dropped", s.writes_dropped},
      {"short_headers", s.short_headers},
      {"poison", s.poison},
      {"resets", c.resets},
      {"hdp_flushes", c.hdp_flushes},
      {"tlb_flushes", c.tlb_flushes},
      {"psp_commands", c.psp_commands},
      {"psp_rejected", c.psp_rejected},
      {"smu_messages", c.smu_messages},
      {"smu_rejected", c.smu_rejected},
      {"interrupts", c.interrupts},
      {"interrupts_dropped", c.interrupts_dropped},
      {"doorbells", c.doorbells},
      {"doorbells_gated", c.doorbells_gated},
      {"doorbells_unclaimed", c.doorbells_unclaimed},
      {"sdma_packets", c.sdma_packets},
      {"sdma_copies", c.sdma_copies},
      {"sdma_bytes", c.sdma_bytes},
      {"sdma_fences", c.sdma_fences},
      {"sdma_bad_packets", c.sdma_bad_packets},
      {"sdma_skipped", c.sdma_skipped},
      {"compute_packets", c.compute_packets},
      {"compute_dispatches", c.compute_dispatches},
      {"compute_signals", c.compute_signals},
      {"compute_bad_packets", c.compute_bad_packets},
      {"compute_skipped", c.compute_skipped},
      {"page_faults", c.page_faults},
      {"dma_blocked", c.dma_blocked},
      {"dma_unanswered", c.dma_unanswered},
      {"mmio_dropped", c.mmio_dropped},
  };
}

}  // namespace

std::string ReportText(const Gpu& gpu, const ServerStats& stats) {
  const Card& card = gpu.card();
  std::string out = fmt::format("{} ({}, {}): {} client{}\n", card.asic.name, card.asic.product,
                                card.asic.gfx, stats.clients, stats.clients == 1 ? "" : "s");
  out += "requests:";
  for (int i = 0; i < wire::kCommandCount; i++) {
    if (stats.requests[i])
      out += fmt::format(" {} {}", wire::CommandName(static_cast<uint8_t>(i)), stats.requests[i]);
  }
  out += "\ncounters:";
  for (const Named& counter : Flatten(card.counters, stats))
    if (counter.value) out += fmt::format(" {} {}", counter.name, counter.value);
  out += '\n';
  for (const HangPlan::Tally& rule : card.hangs.Tallies())
    out += fmt::format("hang {}: struck {} of {} events\n", rule.name, rule.struck, rule.seen);
  const auto gaps = card.regs.Gaps();
  if (!gaps.empty())
    out += fmt::format("{} registers asked for are not modelled (they read as 0):\n", gaps.size());
  size_t shown = 0;
  for (const RegisterFile::Gap& gap : gaps) {
    if (++shown > 100) {
      out += fmt::format("  ... and {} more\n", gaps.size() - 100);
      break;
    }
    out += fmt::format("  {:#08x} {} read {} written {}\n", gap.dword * 4,
                       gap.name.empty() ? "(no name)" : gap.name, gap.reads, gap.writes);
  }
  return out;
}

std::string ReportJson(const Gpu& gpu, const ServerStats& stats) {
  const Card& card = gpu.card();
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["asic"] = card.asic.name;
  json["clients"] = stats.clients;
  json["requests"] = nlohmann::ordered_json::object();
  for (int i = 0; i < wire::kCommandCount; i++) {
    if (stats.requests[i])
      json["requests"][std::string(wire::CommandName(static_cast<uint8_t>(i)))] = stats.requests[i];
  }
  json["counters"] = nlohmann::ordered_json::object();
  for (const Named& counter : Flatten(card.counters, stats))
    json["counters"][counter.name] = counter.value;
  json["hangs"] = nlohmann::ordered_json::array();
  for (const HangPlan::Tally& rule : card.hangs.Tallies())
    json["hangs"].push_back({{"name", rule.name}, {"seen", rule.seen}, {"struck", rule.struck}});
  json["gaps"] = nlohmann::ordered_json::array();
  for (const RegisterFile::Gap& gap : card.regs.Gaps())
    json["gaps"].push_back(
        {{"dword", gap.dword}, {"name", gap.name}, {"reads", gap.reads}, {"writes", gap.writes}});
  json["missing"] = card.regs.missing();
  return json.dump(2) + "\n";
}

}  // namespace tg::sim
