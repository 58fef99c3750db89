// The text report, rendered from the document.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "decoder/model/words.h"
#include "decoder/report/bars_section.h"
#include "decoder/report/boot_section.h"
#include "decoder/report/copies_section.h"
#include "decoder/report/discovery_section.h"
#include "decoder/report/proxy_section.h"
#include "decoder/report/report.h"
#include "decoder/report/rings_section.h"

namespace tg::report {

using model::Bytes;
using model::Count;
using model::Duration;
using model::Hex;
using model::Printable;
using model::Seconds;
using model::Thousands;

namespace {

constexpr size_t kShownEvents = 40;

std::string Text(const Json& value) {
  return Printable(value.get<std::string>());
}

void Row(Output& out, std::string_view name, std::string_view value) {
  out.Line(fmt::format("  {:<12} {}", name, value));
}

// A row of as many lines as it takes; no part of it is cut, so that a search finds it.
void Rows(Output& out, std::string_view name, const std::vector<std::string>& parts) {
  constexpr size_t kRoom = 100 - 15;
  std::string line;
  const auto flush = [&] {
    if (!line.empty()) Row(out, name, line);
    if (!line.empty()) name = "";
    line.clear();
  };
  for (size_t i = 0; i < parts.size(); i++) {
    const std::string part = parts[i] + (i + 1 < parts.size() ? ";" : "");
    if (!line.empty() && line.size() + 1 + part.size() > kRoom) flush();
    if (!line.empty()) line += " ";
    line += part;
  }
  flush();
}

std::string FileText(const Json& file) {
  std::string text =
      fmt::format("{}, {}, {}", Text(file["path"]), Bytes(file["size"].get<uint64_t>()),
                  Count(file["packets"].get<uint64_t>(), "packet"));
  const size_t skipped = file["skipped"].size();
  if (skipped > 0) text += fmt::format(", {} skipped", Count(skipped, "damaged range"));
  return text;
}

std::string ConnectionText(const Json& c) {
  std::string text =
      fmt::format("{} {}",
                  c["connection"].is_null() ? std::string("(no connect event)")
                                            : std::to_string(c["connection"].get<uint64_t>()),
                  OrNotObserved(c["transport"]));
  if (!c["client_pid"].is_null()) {
    text += fmt::format(", client pid {}", c["client_pid"].get<uint64_t>());
    if (!c["client"].is_null()) text += " (" + Text(c["client"]) + ")";
  }
  if (!c["server_pid"].is_null())
    text += fmt::format(", server pid {}", c["server_pid"].get<uint64_t>());
  text += ", " + Count(c["calls"].get<uint64_t>(), "call");
  if (c["t1_ns"].is_null()) {
    text += ", open to the end";
  } else {
    text += ", closed at t=" + Seconds(c["t1_ns"].get<uint64_t>()) + " s";
    if (!c["closed_first"].is_null()) text += ", " + Text(c["closed_first"]) + " first";
  }
  return text;
}

void UnansweredText(const Json& session, Output& out) {
  const uint64_t total = session["unanswered_total"].get<uint64_t>();
  if (total == 0) return;
  out.Heading("Unanswered");
  const Json& list = session["unanswered"];
  if (!session["suspects"].empty()) {
    out.Line(fmt::format("  last {} before (suspects), oldest first:",
                         Count(session["suspects"].size(), "write")));
    for (const Json& write : session["suspects"]) {
      out.Line(fmt::format("    record {:<8} t={} s  {}  {}", write["last_seq"].get<uint64_t>(),
                           Seconds(write["t_ns"].get<uint64_t>()),
                           write["command"].get<std::string>(), Text(write["text"])));
    }
  } else {
    out.Line("  no write before");
  }
  if (list.size() == 1) {
    out.Line(out.Paint(Style::kBad, fmt::format("  {} unanswered: {}", Count(total, "request"),
                                                Text(list[0]["text"]))));
    return;
  }
  out.Line(out.Paint(Style::kBad, fmt::format("  {} unanswered:", Count(total, "request"))));
  for (size_t i = 0; i < list.size() && i < 20; i++) out.Line("    " + Text(list[i]["text"]));
  if (total > 20) out.Line(fmt::format("    and {} more", Thousands(total - 20)));
}

void EventsText(const Json& session, Output& out) {
  const Json& events = session["events"];
  if (events.empty()) return;
  out.Heading("Events");
  for (size_t i = 0; i < events.size() && i < kShownEvents; i++) {
    const Json& e = events[i];
    std::string text = e["text"].get<std::string>();
    for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
      text.replace(at, 1, " | ");
    out.Line(fmt::format("  t={} s  after record {:<8} {:<18} {}",
                         Seconds(e["t_ns"].get<uint64_t>()), e["seq"].get<uint64_t>(),
                         Text(e["kind"]), Printable(text, 1000)));
  }
  const uint64_t total = session["events_total"].get<uint64_t>();
  if (total > kShownEvents) out.Line(fmt::format("  and {} more", Thousands(total - kShownEvents)));
}

}  // namespace

std::string OrNotObserved(const Json& value) {
  if (value.is_null()) return "not observed";
  if (value.is_string()) return Text(value);
  return value.dump();
}

void VerdictText(const Json& verdict, Output& out) {
  const std::string kind = Text(verdict["kind"]);
  const Style style = kind == "healthy"                           ? Style::kGood
                      : kind == "unknown" || kind == "incomplete" ? Style::kWarn
                                                                  : Style::kBad;
  out.Line(fmt::format("{}: {}", out.Paint(style, kind), Text(verdict["summary"])));
  if (!verdict["advice"].is_null()) out.Line("  advice: " + Text(verdict["advice"]));
  if (kind != "healthy") out.Line("  confidence: " + Text(verdict["confidence"]));
  const auto list = [&out](const Json& items, std::string_view title) {
    if (items.empty()) return;
    if (!title.empty()) out.Line(fmt::format("  {}:", title));
    const char* indent = title.empty() ? "  " : "    ";
    for (const Json& item : items) {
      const std::string text = Printable(item["text"].get<std::string>(), 2000);
      if (item["seq"].is_null())
        out.Line(fmt::format("{}{}", indent, text));
      else
        out.Line(fmt::format("{}record {}: {}", indent, item["seq"].get<uint64_t>(), text));
    }
  };
  if (!verdict["noticed"].is_null()) out.Line("  noticed by: " + Text(verdict["noticed"]));
  // The chain holds the evidence in order, with what followed.
  list(verdict["chain"].empty() ? verdict["evidence"] : verdict["chain"], "");
  list(verdict["against"], "not seen, or against it");
  if (!verdict["recovery"].is_null()) out.Line("  recovery: " + Text(verdict["recovery"]));
  if (!verdict["next_start"].is_null()) out.Line("  next start: " + Text(verdict["next_start"]));
  for (const Json& other : verdict["others"]) {
    if (kind == "healthy" || Text(other["confidence"]) == "low") continue;
    out.Line(
        fmt::format("  or ({} confidence): {}", Text(other["confidence"]), Text(other["summary"])));
  }
}

void SessionText(const Json& report, Output& out) {
  const Json& s = report["session"];
  out.Heading("Session");
  Row(out, "trace", FileText(report["file"]));
  std::string transport = OrNotObserved(s["transport"]);
  if (s["transport_inferred"].get<bool>()) transport += " (inferred from the commands)";
  Row(out, "transport", transport);
  std::vector<std::string> revision = {Text(s["revision"])};
  for (size_t i = 0; i < s["evidence"].size(); i++) {
    if (i == 0)
      revision[0] += ", " + Text(s["evidence"][i]);
    else
      revision.push_back(Text(s["evidence"][i]));
  }
  Rows(out, "protocol", revision);
  Row(out, "server", OrNotObserved(s["server"]));
  Row(out, "device", s["vendor"].is_null() ? std::string("not observed") : Text(s["vendor"]));
  Row(out, "calls",
      fmt::format("{} in {}", Count(s["calls"].get<uint64_t>(), "call"),
                  Duration(s["duration_ns"].get<uint64_t>())));
  Row(out, "doorbells", Thousands(s["doorbells"].get<uint64_t>()));
  const uint64_t connections = s["connections_total"].get<uint64_t>();
  for (size_t i = 0; i < s["connections"].size() && i < 10; i++)
    Row(out, i == 0 ? "connection" : "", ConnectionText(s["connections"][i]));
  if (connections > 10) {
    Row(out, "",
        fmt::format("and {} more; the last: {}", Thousands(connections - 10),
                    ConnectionText(s["connections"].back())));
  }
  Row(out, "end", Text(s["end"]));
  if (const uint64_t n = s["injected"].get<uint64_t>())
    Row(out, "injected", Count(n, "message") + " made or altered by the proxy");
  if (const uint64_t n = s["guarded"].get<uint64_t>())
    Row(out, "guarded", Count(n, "request") + " kept from the server");
  const uint64_t raw_client = s["raw_from_client"].get<uint64_t>();
  const uint64_t raw_server = s["raw_from_server"].get<uint64_t>();
  if (raw_client + raw_server > 0) {
    Row(out, "raw",
        fmt::format("{} from the client and {} from the server passed without framing{}",
                    Bytes(raw_client), Bytes(raw_server),
                    s["unreliable_from"].is_null()
                        ? ""
                        : fmt::format("; from record {} on pairing is unreliable",
                                      s["unreliable_from"].get<uint64_t>())));
  }
  for (const Json& loss : s["losses"]) {
    std::string text = fmt::format(
        "{}: {}, {}, {} not recorded between t={} s and t={} s", Text(loss["cause"]),
        Count(loss["calls"].get<uint64_t>(), "call"),
        Count(loss["packets"].get<uint64_t>(), "packet"), Bytes(loss["bytes"].get<uint64_t>()),
        Seconds(loss["t0_ns"].get<uint64_t>()), Seconds(loss["t1_ns"].get<uint64_t>()));
    if (!loss["detail"].is_null()) text += " (" + Text(loss["detail"]) + ")";
    Row(out, "lost", out.Paint(Style::kWarn, text));
  }
  const Json& skipped = report["file"]["skipped"];
  for (size_t i = 0; i < skipped.size() && i < 10; i++) {
    Row(out, "damage",
        out.Paint(Style::kWarn,
                  fmt::format("bytes {}..{} skipped: {}", skipped[i]["offset"].get<uint64_t>(),
                              model::SaturatingAdd(skipped[i]["offset"].get<uint64_t>(),
                                                   skipped[i]["size"].get<uint64_t>()),
                              Text(skipped[i]["reason"]))));
  }
  if (skipped.size() > 10) Row(out, "", fmt::format("and {} more", skipped.size() - 10));
}

void SessionBarsText(const Json& report, Output& out) {
  out.Heading("BARs and shared memory");
  if (report["bars"].empty()) out.Line("  BARs: not observed");
  for (const Json& bar : report["bars"]) {
    const uint64_t dev = bar["dev"].get<uint64_t>();
    out.Line(
        fmt::format("  {}MAP_BAR {}: size {}, addr {} ({}), {}, record {}",
                    dev ? fmt::format("dev {} ", dev) : "", bar["index"].get<uint64_t>(),
                    Hex(bar["size"].get<uint64_t>()), Hex(bar["address"].get<uint64_t>()),
                    bar["address_kind"].is_null() ? "kind not observed" : Text(bar["address_kind"]),
                    Bytes(bar["size"].get<uint64_t>()), bar["seq"].get<uint64_t>()));
  }
  const Json& sysmem = report["sysmem"]["text"];
  out.Line("  " + (sysmem.is_null() ? std::string("sysmem: not observed") : Text(sysmem)));
}

void CallsText(const Json& calls, Output& out) {
  if (calls.empty()) return;
  out.Heading("Calls");
  out.Line(fmt::format("  {:<14} {:>12} {:>8} {:>12}   {}", "command", "calls", "errors", "bytes",
                       "reply time: least, median, most"));
  for (const Json& c : calls) {
    std::string latency;
    if (!c["latency_ns"].is_null()) {
      const Json& l = c["latency_ns"];
      latency = fmt::format(
          "{}, {}, {}", Duration(l["min"].get<uint64_t>()),
          l["median"].is_null() ? std::string("-") : Duration(l["median"].get<uint64_t>()),
          Duration(l["max"].get<uint64_t>()));
    } else if (c["answered"].is_null()) {
      latency = "posted";
    }
    out.Line(fmt::format("  {:<14} {:>12} {:>8} {:>12}   {}", Text(c["command"]),
                         Thousands(c["calls"].get<uint64_t>()),
                         Thousands(c["errors"].get<uint64_t>()), Bytes(c["bytes"].get<uint64_t>()),
                         latency));
  }
}

void WarningsText(const Json& warnings, Output& out) {
  if (warnings.empty()) return;
  out.Heading("Warnings");
  for (const Json& w : warnings) {
    out.Line(fmt::format("  {} record {}: {}", out.Paint(Style::kWarn, "[" + Text(w["rule"]) + "]"),
                         w["seq"].get<uint64_t>(), Printable(w["text"].get<std::string>(), 2000)));
  }
}

void Report::ToText(Output& out) const {
  const Json& d = *document_;
  VerdictText(d["verdict"], out);
  SessionText(d, out);
  SessionBarsText(d, out);
  ProxyText(d["proxy"], out);
  const bool nothing_seen = d["device"].is_null() && d["boot"].is_null();
  if (!nothing_seen) {
    DiscoverySectionText(d["discovery"], out, false);
    BootSectionText(d["boot_detail"], out, false);
  }
  if (!d["queues"].is_null()) QueuesText(d["queues"], out, false);
  if (!d["copies"].is_null()) CopiesText(d["copies"], out);
  CallsText(d["calls"], out);
  if (!d["refusals"].empty()) {
    out.Heading("Refusals");
    for (size_t i = 0; i < d["refusals"].size() && i < 20; i++) {
      const Json& r = d["refusals"][i];
      out.Line(fmt::format("  record {}: {}", r["seq"].get<uint64_t>(),
                           Printable(r["text"].get<std::string>(), 2000)));
    }
    if (d["refusals"].size() > 20)
      out.Line(
          fmt::format("  and more: {} in all", Thousands(d["refusals_total"].get<uint64_t>())));
  }
  UnansweredText(d["session"], out);
  WarningsText(d["warnings"], out);
  if (!d["polls"].empty()) {
    out.Heading("Polls");
    for (const Json& p : d["polls"]) {
      out.Line(fmt::format("  records {}..{}: {}", p["first_seq"].get<uint64_t>(),
                           p["last_seq"].get<uint64_t>(), Text(p["text"])));
    }
    const uint64_t total = d["polls_total"].get<uint64_t>();
    if (total > d["polls"].size()) out.Line(fmt::format("  the longest of {}", Thousands(total)));
  }
  EventsText(d["session"], out);
}

}  // namespace tg::report
