#include "decoder/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "decoder/model/words.h"
#include "decoder/report/bars_section.h"
#include "decoder/report/boot_section.h"
#include "decoder/report/copies_section.h"
#include "decoder/report/discovery_section.h"
#include "decoder/report/proxy_section.h"
#include "decoder/report/rings_section.h"
#include "schemas/amd/pte.h"
#include "schemas/trace/trace.pb.h"

namespace tg::report {

using model::CallText;
using model::Session;
using model::TargetText;

namespace {

Json TextOrNull(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json NumberOrNull(uint64_t value) {
  return value == 0 ? Json(nullptr) : Json(value);
}

Json WriteJson(const model::WriteSeen& write) {
  Json out;
  out["seq"] = write.seq;
  out["last_seq"] = write.last_seq;
  out["count"] = write.count;
  out["t_ns"] = write.time_ns;
  out["command"] = wire::CommandName(write.header.command);
  out["target"] = TargetText(write.header);
  out["size"] = write.header.arg1;
  out["value"] = write.value_bytes > 0 ? Json(write.value) : Json(nullptr);
  out["text"] = model::WriteText(write);
  return out;
}

std::string LossCauseText(int cause) {
  using tinygpu::trace::Loss;
  switch (cause) {
    case Loss::DISK_FULL:
      return "disk full";
    case Loss::IO_ERROR:
      return "I/O error";
    case Loss::TOO_SLOW:
      return "disk too slow";
    case Loss::TOO_LARGE:
      return "too large";
    case Loss::LAG:
      return "capture lagged behind";
    case Loss::KEEP_LIMIT:
      return "dropped to keep the size limit";
    default:
      return "unspecified";
  }
}

std::string EventKindText(int kind) {
  const std::string& name = tinygpu::trace::SessionEvent::Kind_IsValid(kind)
                                ? tinygpu::trace::SessionEvent::Kind_Name(
                                      static_cast<tinygpu::trace::SessionEvent::Kind>(kind))
                                : std::string();
  std::string out = name.empty() ? fmt::format("kind {}", kind) : name;
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string RevisionText(wire::Revision revision) {
  switch (revision) {
    case wire::Revision::kUndecided:
      return "undecided";
    case wire::Revision::kR1:
      return "R1";
    case wire::Revision::kR2:
      return "R2+";
  }
  return "undecided";
}

Json ConnectionJson(const model::Connection& c) {
  Json out;
  out["connection"] = NumberOrNull(c.number);
  out["transport"] = TextOrNull(model::TransportText(c.transport));
  out["client_pid"] = NumberOrNull(c.client_pid);
  out["client"] = TextOrNull(c.client_name);
  out["server_pid"] = NumberOrNull(c.server_pid);
  out["calls"] = c.calls;
  out["regions"] = c.regions;
  out["t0_ns"] = c.start_ns;
  out["t1_ns"] = c.closed ? Json(c.end_ns) : Json(nullptr);
  out["closed_first"] = TextOrNull(c.closed_first);
  out["undelivered_to_server"] = c.undelivered_to_server;
  out["undelivered_to_client"] = c.undelivered_to_client;
  return out;
}

}  // namespace

std::string Dump(const Json& json, bool pretty) {
  return json.dump(pretty ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

Json VerdictJson(const Verdict& verdict) {
  Json out;
  out["kind"] = verdict.kind;
  out["summary"] = verdict.summary;
  out["advice"] = TextOrNull(verdict.advice);
  out["confidence"] = verdict.confidence;
  out["certainty"] = verdict.certainty;
  out["rule"] = TextOrNull(verdict.rule);
  for (const auto& [key, list] :
       {std::pair{"evidence", &verdict.evidence}, std::pair{"against", &verdict.against},
        std::pair{"chain", &verdict.chain}}) {
    out[key] = Json::array();
    for (const Evidence& evidence : *list) {
      Json e;
      e["seq"] = evidence.seq == 0 ? Json(nullptr) : Json(evidence.seq);
      e["text"] = evidence.text;
      out[key].push_back(std::move(e));
    }
  }
  out["noticed"] = TextOrNull(verdict.noticed);
  out["recovery"] = TextOrNull(verdict.recovery);
  out["next_start"] = TextOrNull(verdict.next_start);
  out["others"] = Json::array();
  for (const OtherVerdict& other : verdict.others) {
    Json o;
    o["rule"] = other.rule;
    o["kind"] = other.kind;
    o["confidence"] = other.confidence;
    o["summary"] = other.summary;
    out["others"].push_back(std::move(o));
  }
  return out;
}

Json FileJson(const FileFacts& file, const HeaderFacts& header) {
  Json out;
  out["path"] = file.path;
  out["size"] = file.size;
  out["packets"] = file.packets;
  out["end"] = trace::EndStateText(file.end);
  out["good_end"] = file.good_end;
  out["skipped"] = Json::array();
  for (const trace::SkippedRange& range : file.skipped) {
    Json r;
    r["offset"] = range.offset;
    r["size"] = range.size;
    r["reason"] = range.reason;
    out["skipped"].push_back(std::move(r));
  }
  Json h = nullptr;
  if (header.present) {
    h = Json::object();
    h["version"] = header.version;
    h["producer"] = TextOrNull(header.producer);
    h["host"] = TextOrNull(header.host);
    h["os"] = TextOrNull(header.os);
    h["start_wall_ns"] = NumberOrNull(header.start_wall_ns);
    h["bodies"] = TextOrNull(header.body_policy);
    h["durability"] = TextOrNull(header.durability);
    h["listen"] = TextOrNull(header.listen);
    h["upstream"] = TextOrNull(header.upstream);
    h["proxy_pid"] = NumberOrNull(header.proxy_pid);
  }
  out["header"] = std::move(h);
  return out;
}

Json SessionJson(const Analysis& analysis) {
  const Session& s = analysis.session().session();
  Json out;
  out["transport"] = TextOrNull(model::TransportText(s.transport));
  out["transport_inferred"] = s.transport_inferred;
  out["revision"] = RevisionText(s.revision.revision);
  out["evidence"] = s.revision.evidence;
  out["server"] = TextOrNull(s.revision.server);
  out["vendor"] = TextOrNull(model::VendorText(s.link.vendor()));
  out["calls"] = s.calls;
  out["last_seq"] = s.last_seq;
  out["duration_ns"] = s.last_time_ns;
  Json by_command = Json::object();
  for (size_t i = 0; i < s.counts.size(); i++) {
    if (s.counts[i].calls > 0)
      by_command[std::string(wire::CommandName(static_cast<uint8_t>(i)))] = s.counts[i].calls;
  }
  out["by_command"] = std::move(by_command);
  out["unanswered"] = Json::array();
  for (const model::Unanswered& u : s.unanswered) {
    Json j;
    j["seq"] = u.seq;
    j["t_ns"] = u.time_ns;
    j["connection"] = NumberOrNull(u.connection);
    j["command"] = wire::CommandName(u.header.command);
    j["target"] = TextOrNull(TargetText(u.header));
    j["text"] =
        fmt::format("{} (record {}, t={} s)", CallText(u.header), u.seq, model::Seconds(u.time_ns));
    out["unanswered"].push_back(std::move(j));
  }
  out["unanswered_total"] = s.unanswered_total;
  out["suspects"] = Json::array();
  for (const model::WriteSeen& write : s.suspects) out["suspects"].push_back(WriteJson(write));
  std::string end(trace::EndStateText(analysis.file.end));
  if (s.end && !s.end->reason.empty()) end += ": " + s.end->reason;
  out["end"] = std::move(end);
  out["losses"] = Json::array();
  for (const model::LossSeen& loss : s.losses) {
    Json j;
    j["cause"] = LossCauseText(loss.cause);
    j["calls"] = loss.calls;
    j["packets"] = loss.packets;
    j["bytes"] = loss.bytes;
    j["t0_ns"] = loss.first_ns;
    j["t1_ns"] = loss.last_ns;
    j["detail"] = TextOrNull(loss.detail);
    out["losses"].push_back(std::move(j));
  }
  out["damaged_after"] = s.damaged_after ? Json(*s.damaged_after) : Json(nullptr);
  out["connections"] = Json::array();
  for (const model::Connection& c : s.connections) out["connections"].push_back(ConnectionJson(c));
  out["connections_total"] = std::max<uint64_t>(s.connections_total, 1);
  out["events"] = Json::array();
  for (const model::Event& event : s.events) {
    Json j;
    j["seq"] = event.seq;
    j["t_ns"] = event.time_ns;
    j["connection"] = NumberOrNull(event.connection);
    j["kind"] = EventKindText(event.kind);
    j["text"] = event.text;
    out["events"].push_back(std::move(j));
  }
  out["events_total"] = s.events_total;
  out["doorbells"] = s.doorbells;
  out["injected"] = s.injected;
  out["guarded"] = s.guarded;
  out["raw_from_client"] = s.raw_from_client;
  out["raw_from_server"] = s.raw_from_server;
  out["unreliable_from"] = NumberOrNull(s.unreliable_from);
  return out;
}

Json SessionBarsJson(const Session& session) {
  Json out = Json::array();
  for (const model::BarSeen& bar : session.bars) {
    Json j;
    j["index"] = bar.index;
    j["size"] = bar.size;
    j["address"] = bar.address;
    j["address_kind"] = TextOrNull(session.AddressKind());
    j["dev"] = bar.dev;
    j["seq"] = bar.seq;
    j["mapped"] = bar.mapped;
    out.push_back(std::move(j));
  }
  return out;
}

Json CallsJson(const Session& session) {
  Json out = Json::array();
  for (size_t i = 0; i < session.counts.size(); i++) {
    const model::CallCount& count = session.counts[i];
    if (count.calls == 0) continue;
    const wire::CommandInfo* info = wire::FindCommand(static_cast<uint8_t>(i));
    const bool posted = info && !info->reply;
    Json j;
    j["command"] = wire::CommandName(static_cast<uint8_t>(i));
    j["calls"] = count.calls;
    j["answered"] = posted ? Json(nullptr) : Json(count.answered);
    j["errors"] = count.errors;
    j["bytes"] = count.bytes;
    Json latency = nullptr;
    if (count.max_latency_ns > 0) {
      latency = Json::object();
      latency["min"] = count.min_latency_ns;
      latency["median"] = count.histogram
                              ? Json(std::clamp(count.histogram->Quantile(0.5, count.measured),
                                                count.min_latency_ns, count.max_latency_ns))
                              : Json(nullptr);
      latency["max"] = count.max_latency_ns;
    }
    j["latency_ns"] = std::move(latency);
    out.push_back(std::move(j));
  }
  return out;
}

Json RefusalsJson(const Session& session) {
  Json out = Json::array();
  for (const model::Refusal& refusal : session.refusals) {
    Json j;
    j["seq"] = refusal.seq;
    j["t_ns"] = refusal.time_ns;
    j["count"] = refusal.count;
    j["command"] = wire::CommandName(refusal.header.command);
    j["target"] = TextOrNull(TargetText(refusal.header));
    j["status"] = refusal.status;
    j["reason"] = TextOrNull(refusal.text);
    j["harmless"] = refusal.harmless;
    j["text"] = model::RefusalText(refusal);
    out.push_back(std::move(j));
  }
  return out;
}

Json PollsJson(const PollTable& polls, const model::Device& device) {
  Json out = Json::array();
  for (const model::CallRun& run : polls.runs()) {
    Json j;
    j["first_seq"] = run.first_seq;
    j["last_seq"] = run.last_seq;
    j["calls"] = run.count;
    j["rounds"] = run.rounds();
    j["period"] = run.pattern.size();
    j["t0_ns"] = run.first_ns;
    j["t1_ns"] = run.last_ns;
    j["text"] = PollText(run);
    const std::string names = PollNames(run, device);
    j["names"] = TextOrNull(names);
    if (!names.empty()) j["text"] = j["text"].get<std::string>() + ": " + names;
    out.push_back(std::move(j));
  }
  return out;
}

Json WarningsJson(const std::vector<model::Warning>& warnings) {
  Json out = Json::array();
  for (const model::Warning& warning : warnings) {
    Json j;
    j["rule"] = warning.rule;
    j["seq"] = warning.call;
    j["text"] = warning.text;
    out.push_back(std::move(j));
  }
  return out;
}

// Of the session, of the device model and of the queues, in the trace's order. What the session
// says of a call the device need not say again.
std::vector<model::Warning> AllWarnings(const Analysis& analysis) {
  std::vector<model::Warning> all = analysis.session().Warnings();
  std::set<uint64_t> told;
  for (const model::Warning& warning : all) told.insert(warning.call);
  for (const model::Warning& warning : analysis.seen.device().warnings()) {
    if (!told.contains(warning.call)) all.push_back(warning);
  }
  for (const model::QueueWarning& warning : analysis.seen.device_queues().queues().warnings())
    all.push_back({warning.rule, warning.call, warning.text});
  if (const auto cycle = analysis.seen.device().gpuvm().FindCycle()) {
    all.push_back({"page-tables", cycle->call,
                   fmt::format("the page table at VRAM {:#x} is reached through itself (entry {} "
                               "of a {} points at it): addresses below it mean nothing{}",
                               cycle->table, cycle->index, amd::LevelName(cycle->level),
                               analysis.seen.device().gpuvm().root_assumed()
                                   ? "; that the root is at 0 is assumed"
                                   : "")});
  }
  std::stable_sort(all.begin(), all.end(), [](const model::Warning& a, const model::Warning& b) {
    return a.call < b.call;
  });
  return all;
}

Report::Report(const Analysis& analysis) : document_(std::make_unique<Json>()) {
  const Session& session = analysis.session().session();
  const Verdict verdict = FullVerdict(analysis);
  exit_code_ = ExitCode(verdict, analysis.file, session);

  Json& d = *document_;
  d["schema"] = 1;
  d["verdict"] = VerdictJson(verdict);
  d["file"] = FileJson(analysis.file, analysis.header);
  d["session"] = SessionJson(analysis);
  d["bars"] = SessionBarsJson(session);
  const model::Device& device = analysis.seen.device();
  d["pci"] = BarsSectionJson(device, session.link);
  d["device"] = DeviceJson(device);
  Json ips = IpsJson(device);
  d["ips"] = ips.empty() ? Json(nullptr) : std::move(ips);
  d["scratch"] = ScratchJson(device);
  d["boot"] = BootJson(device);
  d["discovery"] = DiscoverySectionJson(device);
  d["boot_detail"] = BootSectionJson(device);
  Json queues = QueuesJson(analysis.seen.device_queues());
  d["queues"] = queues.empty() ? Json(nullptr) : std::move(queues);
  d["copies"] = CopiesJson(analysis.seen.device_queues());
  Json sysmem;
  sysmem["regions"] = session.regions_total;
  sysmem["asked"] = session.sysmem_asked;
  sysmem["granted"] = session.sysmem_granted;
  sysmem["refused"] = session.sysmem_refused;
  sysmem["text"] = TextOrNull(session.SysmemText());
  d["sysmem"] = std::move(sysmem);
  d["calls"] = CallsJson(session);
  d["refusals"] = RefusalsJson(session);
  d["refusals_total"] = session.refusals_total;
  d["polls"] = PollsJson(analysis.polls, device);
  d["polls_total"] = analysis.polls.total();
  d["warnings"] = WarningsJson(AllWarnings(analysis));
  d["proxy"] = ProxyJson(analysis.interventions);
}

Report::~Report() = default;

std::string Report::ToJson() const {
  return Dump(*document_, true) + "\n";
}

}  // namespace tg::report
