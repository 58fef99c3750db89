#include "decoder/report/boot_section.h"

#include "decoder/report/section_json.h"
#include "schemas/amd/scratch.h"
#include "schemas/amd/smu.h"

namespace tg::report {
namespace {

using model::Duration;
using model::Hex;
using model::Seconds;
using model::Thousands;

Json SessionJson(const model::BootSession& session) {
  Json out;
  out["kind"] = model::BootKindName(session.kind);
  out["reason"] = TextOrNull(session.reason);
  out["phases"] = Json::array();
  for (const model::PhaseSpan& span : session.phases) {
    if (span.calls == 0) continue;
    Json j;
    j["name"] = session.NameOf(span);
    j["first"] = span.first.call;
    j["last"] = span.last.call;
    j["calls"] = span.calls;
    j["t0_ns"] = span.first.time_ns;
    j["t1_ns"] = span.last.time_ns;
    out["phases"].push_back(std::move(j));
  }
  out["connection"] = session.connection;
  out["joined_seq"] = SeqOrNull(session.joined);
  out["booted_seq"] = SeqOrNull(session.booted);
  out["mode1_reset_seq"] = SeqOrNull(session.mode1_reset);
  out["recoveries"] = session.recoveries;
  out["last_recovery_seq"] = SeqOrNull(session.last_recovery);
  out["sdma_soft_resets"] = session.soft_resets_sdma;
  out["end"] = model::SessionEndName(session.end);
  out["end_seq"] = SeqOrNull(session.ended);
  return out;
}

// Of lists that keep their two ends.
template <typename List, typename F>
Json EndsJson(const List& list, F&& one) {
  Json out = Json::array();
  for (const auto& item : list.first()) out.push_back(one(item));
  for (const auto& item : list.last()) out.push_back(one(item));
  return out;
}

Json SmuJson(const model::SmuExchange& e) {
  Json j;
  j["seq"] = e.sent.call;
  j["message"] = e.message;
  j["argument"] = e.argument;
  j["name"] = e.name;
  j["text"] = fmt::format("{}({})", e.name, e.argument_text);
  j["response"] = OrNull(e.response);
  if (e.response) {
    j["response_text"] = amd::SmuResponseText(*e.response);
  } else if (e.polls > 0) {
    j["response_text"] = fmt::format("SMU message {} unanswered", Hex(e.message));
  } else {
    j["response_text"] = nullptr;
  }
  j["result"] = OrNull(e.result);
  j["polls"] = e.polls;
  const model::Stamp end = e.response ? e.answered : e.last_poll;
  j["duration_ns"] = end ? Json(end.time_ns - e.sent.time_ns) : Json(nullptr);
  return j;
}

Json PspJson(const model::PspExchange& e) {
  constexpr const char* kKinds[] = {"bootloader", "ring", "command"};
  Json j;
  j["seq"] = e.sent.call;
  j["kind"] = kKinds[static_cast<int>(e.kind)];
  j["text"] = e.text;
  j["image_size"] = e.image_size == 0 ? Json(nullptr) : Json(e.image_size);
  j["polls"] = e.polls;
  j["done"] = e.done;
  j["status"] = OrNull(e.status);
  j["tmr_size"] = OrNull(e.tmr_size);
  const model::Stamp end = e.done ? e.done_at : e.last_poll;
  j["duration_ns"] = end ? Json(end.time_ns - e.sent.time_ns) : Json(nullptr);
  return j;
}

Json InterruptJson(const model::Interrupt& i) {
  constexpr const char* kEffects[] = {"ignored", "error", "page fault", "shader error"};
  Json j;
  j["seq"] = i.at.call;
  j["text"] = i.meaning.text;
  j["client"] = i.entry.client;
  j["source"] = i.entry.source;
  j["vmid"] = i.entry.vmid;
  j["effect"] = kEffects[static_cast<int>(i.meaning.effect)];
  j["context"] = i.entry.context;
  return j;
}

Json InterruptsJson(const model::Device& device) {
  const model::Ih& ih = device.ih();
  Json out;
  out["read"] = ih.entries_read();
  out["errors"] = ih.errors();
  out["discarded"] = ih.discarded();
  out["last_discard_seq"] = SeqOrNull(ih.last_discard());
  out["overflows"] = ih.overflows();
  out["waits"] = ih.handler_rounds();
  out["last_wait_seq"] = SeqOrNull(ih.last_round());
  out["drains"] = ih.drains();
  out["wptr"] = OrNull(ih.wptr_raw());
  out["rptr"] = OrNull(ih.rptr_raw());
  out["entries"] = Json::array();
  for (const model::Interrupt& i : ih.interrupts()) out["entries"].push_back(InterruptJson(i));
  for (const model::Interrupt& i : ih.recent()) out["entries"].push_back(InterruptJson(i));
  return out;
}

Json FaultsJson(const model::Device& device) {
  Json out = Json::array();
  for (const model::Fault& f : device.faults().all()) {
    Json j;
    j["seq"] = f.first.call;
    j["t_ns"] = f.first.time_ns;
    j["hub"] = f.gc_hub ? "GC" : "MM";
    j["raw"] = f.raw;
    j["text"] = f.text;
    j["va"] = OrNull(f.va());
    j["va_text"] = f.va() ? Json(device.gpuvm().Describe(*f.va())) : Json(nullptr);
    j["cleared_seq"] = SeqOrNull(f.cleared);
    out.push_back(std::move(j));
  }
  return out;
}

}  // namespace

Json BootJson(const model::Device& device) {
  const model::BootSession* session = device.boot().current();
  if (!session || device.vendor() == model::Vendor::kNvidia) return nullptr;
  Json out = SessionJson(*session);
  out["next_start"] = TextOrNull(device.boot().NextStart());
  return out;
}

Json ScratchJson(const model::Device& device) {
  if (device.vendor() == model::Vendor::kNvidia) {
    Json out;
    out["reg6"] = out["reg7"] = out["am_version"] = nullptr;
    out["meaning"] = "no scratch convention";
    return out;
  }
  const model::RegisterState* reg7 = device.registers().Find("regSCRATCH_REG7");
  const model::RegisterState* reg6 = device.registers().Find("regSCRATCH_REG6");
  if ((!reg7 || !reg7->known) && (!reg6 || !reg6->known)) return nullptr;
  const auto value = [](const model::RegisterState* reg) {
    return reg && reg->known ? Json(reg->value) : Json(nullptr);
  };
  Json out;
  out["reg6"] = value(reg6);
  out["reg7"] = value(reg7);
  const bool known7 = reg7 && reg7->known;
  const amd::AmVersion* version = known7 ? amd::FindAmVersion(reg7->value) : nullptr;
  out["am_version"] = version ? Json(version->value & 0xff) : Json(nullptr);
  out["meaning"] = known7 ? Json(amd::DescribeReg7(reg7->value)) : Json(nullptr);
  out["reg6_meaning"] =
      reg6 && reg6->known
          ? Json(amd::DescribeReg6(known7 ? reg7->value : amd::kAmVersionCurrent, reg6->value))
          : Json(nullptr);
  // After its own boot the driver has set REG6 to 1: it then says "running", not how one ended.
  const model::BootSession* session = device.boot().current();
  if (reg6 && reg6->writes > 0 && reg6->value == 1 && session && session->booted &&
      session->end == model::SessionEnd::kRunning) {
    out["reg6_meaning"] = "set by this session's boot, not cleared since";
  }
  out["reg6_seq"] =
      reg6 ? SeqOrNull(reg6->writes > 0 ? reg6->last_write.at : reg6->last_read.at) : Json(nullptr);
  out["reg7_seq"] =
      reg7 ? SeqOrNull(reg7->writes > 0 ? reg7->last_write.at : reg7->last_read.at) : Json(nullptr);
  out["assumed"] = device.registers().map().assumed();
  return out;
}

Json BootSectionJson(const model::Device& device) {
  Json out;
  out["sessions"] = Json::array();
  if (device.vendor() != model::Vendor::kNvidia) {
    for (const model::BootSession& session : device.boot().sessions()) {
      out["sessions"].push_back(SessionJson(session));
    }
  }
  out["next_start"] = TextOrNull(device.boot().NextStart());
  out["scratch"] = ScratchJson(device);
  out["psp_total"] = device.psp().exchanges().total();
  out["psp_alive"] = OrNull(device.psp().alive());
  out["psp"] = EndsJson(device.psp().exchanges(), PspJson);
  out["smu_total"] = device.smu().exchanges().total();
  out["smu"] = EndsJson(device.smu().exchanges(), SmuJson);
  out["interrupts"] = InterruptsJson(device);
  out["faults"] = FaultsJson(device);
  out["fault_status"]["gc"] = OrNull(device.faults().status(true));
  out["fault_status"]["mm"] = OrNull(device.faults().status(false));
  return out;
}

namespace {

void ScratchText(const Json& scratch, Output& out) {
  if (scratch.is_null()) {
    SectionRow(out, "scratch", "REG6 and REG7 not observed");
    return;
  }
  if (!scratch["reg7"].is_null()) {
    SectionRow(out, "SCRATCH_REG7",
               fmt::format("{} {}", HexText(scratch["reg7"]), SectionText(scratch["meaning"])));
  } else if (!scratch["meaning"].is_null()) {
    SectionRow(out, "scratch", SectionText(scratch["meaning"]));
  }
  if (!scratch["reg6"].is_null()) {
    SectionRow(out, "SCRATCH_REG6",
               fmt::format("{} {}", scratch["reg6"].get<uint32_t>(),
                           SectionText(scratch["reg6_meaning"])));
  }
  if (scratch.contains("assumed") && scratch["assumed"].get<bool>()) {
    SectionRow(out, "", "addresses: assumed gfx11/12 base 0xA000 (no discovery table seen)");
  }
}

void PhasesText(const Json& session, Output& out) {
  for (const Json& p : session["phases"]) {
    const uint64_t t0 = p["t0_ns"].get<uint64_t>();
    const uint64_t t1 = p["t1_ns"].get<uint64_t>();
    out.Line(fmt::format("    {:<14} {:>9} calls  #{}..#{}  t={} s  {}", SectionText(p["name"]),
                         Thousands(p["calls"].get<uint64_t>()), p["first"].get<uint64_t>(),
                         p["last"].get<uint64_t>(), Seconds(t0), Duration(t1 - t0)));
  }
}

// A mailbox message on a line; `bad` ones are painted.
void MessageText(Output& out, const Json& e, std::string_view text, bool bad) {
  std::string line = fmt::format("    {:<8} {}", SeqText(e["seq"]), text);
  if (!e["duration_ns"].is_null()) {
    line += fmt::format("  <{}>", Duration(e["duration_ns"].get<uint64_t>()));
  }
  out.Line(bad ? out.Paint(Style::kBad, line) : line);
}

void PspText(const Json& boot, Output& out, bool full) {
  size_t failed = 0;
  for (const Json& e : boot["psp"]) {
    failed += !e["done"].get<bool>() || (!e["status"].is_null() && e["status"] != 0) ? 1 : 0;
  }
  SectionRow(out, "PSP",
             fmt::format("{} exchanges, {} without a good end", boot["psp_total"].get<uint64_t>(),
                         failed));
  for (const Json& e : boot["psp"]) {
    const bool status_bad = !e["status"].is_null() && e["status"] != 0;
    const bool bad = !e["done"].get<bool>() || status_bad;
    if (!full && !bad) continue;
    std::string text = SectionText(e["text"]);
    if (!e["image_size"].is_null()) {
      text += ", image of " + model::Bytes(e["image_size"].get<uint64_t>());
    }
    if (!e["done"].get<bool>()) {
      text += fmt::format(": no answer in {} polls", Thousands(e["polls"].get<uint64_t>()));
    } else if (status_bad) {
      text += ": failed, status " + HexText(e["status"]);
    }
    MessageText(out, e, text, bad);
  }
}

// "GetDpmFreqByIndex(GFXCLK level " of a good query for one level; empty: something else.
std::string_view LevelQuery(const Json& e) {
  if (e["response"] != 1 || e["result"].is_null() || !e["text"].is_string()) return {};
  const std::string_view text = e["text"].get_ref<const std::string&>();
  const size_t level = text.find(" level ");
  return level == std::string_view::npos ? std::string_view() : text.substr(0, level + 7);
}

// A clock can have hundreds of levels, each asked for: one line. Gives how many were taken.
size_t LevelsText(const Json& smu, size_t first, Output& out) {
  const std::string_view query = LevelQuery(smu[first]);
  size_t end = first;
  while (!query.empty() && end < smu.size() && LevelQuery(smu[end]) == query) ++end;
  if (end - first < 4) return 0;
  const auto level = [&](size_t i) {
    return SectionText(smu[i]["text"]).substr(query.size());  // "254)"
  };
  std::string low = level(first);
  low.pop_back();
  out.Line(fmt::format("    {:<8} {}{}..{} = {} to {}, to {}", SeqText(smu[first]["seq"]),
                       SectionText(query), low, level(end - 1), smu[first]["result"].dump(),
                       smu[end - 1]["result"].dump(), SeqText(smu[end - 1]["seq"])));
  return end - first;
}

void SmuText(const Json& boot, Output& out, bool full) {
  size_t failed = 0;
  for (const Json& e : boot["smu"]) failed += e["response"] == 1 ? 0 : 1;
  SectionRow(
      out, "SMU",
      fmt::format("{} messages, {} not answered ok", boot["smu_total"].get<uint64_t>(), failed));
  for (size_t i = 0; i < boot["smu"].size(); ++i) {
    const Json& e = boot["smu"][i];
    const bool bad = e["response"] != 1;
    if (!full && !bad) continue;
    if (const size_t taken = LevelsText(boot["smu"], i, out); taken > 0) {
      i += taken - 1;
      continue;
    }
    std::string text = SectionText(e["text"]);
    if (!e["result"].is_null()) text += " = " + std::to_string(e["result"].get<uint32_t>());
    if (e["response"].is_null() && !e["response_text"].is_null()) {
      text += fmt::format(": {} ({} polls)", SectionText(e["response_text"]),
                          Thousands(e["polls"].get<uint64_t>()));
    } else if (bad) {
      text += e["response"].is_null() ? std::string(": answer not observed")
                                      : ": " + SectionText(e["response_text"]);
    }
    MessageText(out, e, text, bad && !e["response_text"].is_null());
  }
}

void InterruptsText(const Json& boot, Output& out, bool full) {
  const Json& ih = boot["interrupts"];
  // The handler runs in rounds while the driver waits for longer than 200 ms, and once as it ends.
  std::string text = fmt::format(
      "{} read, {} of them errors; ring polled in {}, emptied {} times by a finished wait",
      ih["read"].get<uint64_t>() == 1 ? "1 entry"
                                      : Thousands(ih["read"].get<uint64_t>()) + " entries",
      ih["errors"].get<uint64_t>(), model::Count(ih["waits"].get<uint64_t>(), "round"),
      Thousands(ih["drains"].get<uint64_t>()));
  SectionRow(out, "interrupts", text);
  if (ih["discarded"].get<uint64_t>() > 0) {
    SectionRow(out, "",
               out.Paint(Style::kWarn, fmt::format("{} interrupts discarded unread (last at {})",
                                                   ih["discarded"].get<uint64_t>(),
                                                   SeqText(ih["last_discard_seq"]))));
  }
  if (ih["overflows"].get<uint64_t>() > 0) {
    SectionRow(out, "", out.Paint(Style::kWarn, "the ring overflowed: entries were lost"));
  }
  const size_t total = ih["entries"].size();
  size_t index = 0;
  for (const Json& e : ih["entries"]) {
    if (!full && ++index > 8) {
      SectionRow(out, "", fmt::format("and {} more", total - 8));
      break;
    }
    out.Line(fmt::format("    {:<8} {}", SeqText(e["seq"]), SectionText(e["text"])));
  }
  for (const Json& f : boot["faults"]) {
    std::string fault = fmt::format("{} hub: {}", SectionText(f["hub"]), SectionText(f["text"]));
    if (!f["va"].is_null()) {
      fault += fmt::format(", address {} ({})", HexText(f["va"]), SectionText(f["va_text"]));
    }
    fault += f["cleared_seq"].is_null() ? ", still latched"
                                        : ", cleared at " + SeqText(f["cleared_seq"]);
    SectionRow(out, "page fault", out.Paint(Style::kBad, SeqText(f["seq"]) + " " + fault));
  }
  if (boot["faults"].empty() && !boot["fault_status"]["gc"].is_null()) {
    SectionRow(out, "page fault", "none latched when the status was last read");
  }
}

}  // namespace

void BootSectionText(const Json& boot, Output& out, bool full) {
  out.Heading("Boot");
  const size_t count = boot["sessions"].size();
  size_t index = 0;
  for (const Json& session : boot["sessions"]) {
    ++index;
    if (!full && index < count) continue;
    std::string title = SectionText(session["kind"]);
    if (session["kind"] == "unknown") title = "decision between full and partial boot not observed";
    if (count > 1) title = fmt::format("{} (start {} of {})", title, index, count);
    SectionRow(out, "kind", title);
    if (!session["joined_seq"].is_null())
      SectionRow(out, "",
                 "the start of this session is not in the trace: seen from " +
                     SeqText(session["joined_seq"]) + " on");
    SectionRow(out, "reason", SectionText(session["reason"]));
    PhasesText(session, out);
    if (!session["mode1_reset_seq"].is_null()) {
      SectionRow(out, "mode-1 reset", "asked for at " + SeqText(session["mode1_reset_seq"]));
    }
    if (session["recoveries"].get<uint64_t>() > 0) {
      SectionRow(out, "recovery",
                 out.Paint(Style::kWarn,
                           fmt::format("{} (last at {}): compute queue and MEC only, SDMA is not "
                                       "reset",
                                       session["recoveries"].get<uint64_t>(),
                                       SeqText(session["last_recovery_seq"]))));
    }
    std::string end = SectionText(session["end"]);
    if (!session["end_seq"].is_null()) end += " at " + SeqText(session["end_seq"]);
    SectionRow(out, "end", end);
  }
  if (count == 0) SectionRow(out, "kind", "no start of the AM driver observed");
  if (!boot["next_start"].is_null()) SectionRow(out, "next start", SectionText(boot["next_start"]));
  ScratchText(boot["scratch"], out);
  if (boot["psp_total"].get<uint64_t>() > 0) PspText(boot, out, full);
  if (boot["smu_total"].get<uint64_t>() > 0) SmuText(boot, out, full);
  if (count > 0) InterruptsText(boot, out, full);
}

}  // namespace tg::report
