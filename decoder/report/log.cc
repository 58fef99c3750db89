#include "decoder/report/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "decoder/model/words.h"
#include "decoder/report/json.h"
#include "schemas/trace/trace.pb.h"

namespace tg::report {

namespace pb = tinygpu::trace;
using model::Call;
using model::CallRun;
using wire::Command;

namespace {

constexpr size_t kMaxNotes = 64;

std::string Hex(std::span<const uint8_t> data) {
  std::string out;
  for (const uint8_t byte : data) out += fmt::format("{:02x}", byte);
  return out;
}

std::string PieceText(const model::Piece& piece) {
  if (piece.cut) {
    return fmt::format("{} of {} came {}", model::Thousands(piece.came),
                       model::Count(piece.size, "byte"), Hex(piece.data()));
  }
  if (piece.size == 0) return "nothing";
  if (piece.kept == 0) {
    std::string out = model::Bytes(piece.size);
    if (piece.all_zero) return out + " of zeros";
    if (piece.hash) out += fmt::format(" xxh3={:016x}", piece.hash);
    return out;
  }
  return model::ValueText(piece.data(), piece.size);
}

std::string RequestText(const Call& call, wire::Revision revision) {
  const wire::RequestHeader& h = call.header;
  std::string out = model::CallText(h);
  switch (static_cast<Command>(h.command)) {
    case Command::kMmioRead:
    case Command::kSysmemRead:
      out += fmt::format(" size={}", h.arg1);
      break;
    case Command::kMmioWrite:
    case Command::kSysmemWrite:
      out += fmt::format(" size={} <- {}", h.arg1, PieceText(call.payload));
      break;
    case Command::kCfgRead:
      out += fmt::format(" size={}", h.arg1);
      break;
    case Command::kCfgWrite:
      out += fmt::format(
          " size={} <- {}", h.arg1,
          model::HexPadded(h.arg2, static_cast<int>(std::min<uint64_t>(h.arg1, 8)) * 2));
      break;
    case Command::kMapSysmemFd:
    case Command::kMapSysmem:
      if (revision == wire::Revision::kR1) {
        out += fmt::format(" size={:#x}", h.arg1);
      } else {
        out += fmt::format(" size={:#x}{}", h.arg0, h.arg1 ? " contiguous" : "");
      }
      break;
    case Command::kProbe:
      out += fmt::format(" class={:#x} vendor={:#x}, {}", h.arg0, h.arg2,
                         model::Count(h.arg1 / 8, "device id"));
      break;
    case Command::kReset:
      if (h.arg0 | h.arg1 | h.arg2)
        out += fmt::format(" args {:#x} {:#x} {:#x}", h.arg0, h.arg1, h.arg2);
      break;
    case Command::kMapBar:
    case Command::kResizeBar:
    case Command::kPing:
      break;
    default:
      out += fmt::format(" bar={} args {:#x} {:#x} {:#x}", h.bar, h.arg0, h.arg1, h.arg2);
      break;
  }
  const wire::CommandInfo* info = wire::FindCommand(h.command);
  if (info && !info->bar_is_handle && h.bar >= 256)
    out += fmt::format(" [bar {} (server truncates to {})]", h.bar, h.bar & 0xff);
  return out;
}

std::string AnswerText(const Call& call, wire::Revision revision) {
  if (!call.answered) return call.expects_reply ? "= ? (no answer)" : "";
  const wire::ReplyHeader& r = call.reply;
  if (r.status != 0) {
    if (call.extra && !call.extra->error.empty())
      return fmt::format("= status={} \"{}\"", r.status, model::Printable(call.extra->error));
    return fmt::format("= status={}, no reason given", r.status);
  }
  switch (static_cast<Command>(call.header.command)) {
    case Command::kMapBar: {
      if (revision == wire::Revision::kUndecided) revision = wire::RevisionFromMapBar(r);
      const wire::BarWords words = wire::MapBarWords(r, revision);
      return fmt::format("= size {:#x}, addr {:#x}", words.size, words.address);
    }
    case Command::kMapSysmemFd:
      return fmt::format("= index {}, granted {:#x}, {}", r.resp1, r.resp0,
                         model::Count(call.descriptors, "descriptor"));
    case Command::kMapSysmem:
      return fmt::format("= handle {}, {}", r.resp1, model::Count(r.resp0 / 8, "page"));
    case Command::kCfgRead:
      return fmt::format("= resp0={:#x}", r.resp0);
    case Command::kMmioRead:
    case Command::kSysmemRead:
      return "= " + PieceText(call.body);
    case Command::kProbe: {
      const std::string_view text(reinterpret_cast<const char*>(call.body.bytes.data()),
                                  call.body.kept);
      return fmt::format("= {}{}{}", model::Count(r.resp1, "device"), text.empty() ? "" : ": ",
                         model::Printable(text));
    }
    default:
      if (r.resp0 | r.resp1) return fmt::format("= ok, words {:#x} {:#x}", r.resp0, r.resp1);
      return "= ok";
  }
}

Json PieceJson(const model::Piece& piece) {
  Json out;
  out["size"] = piece.size;
  out["data"] = Hex(piece.data());
  out["value"] = piece.size >= 1 && piece.size <= 8 && piece.kept >= piece.size
                     ? Json(model::LittleEndian(piece.data().first(piece.size)))
                     : Json(nullptr);
  if (piece.cut) out["came"] = piece.came;
  return out;
}

Json CallJson(const Call& call, wire::Revision revision) {
  Json out;
  const wire::RequestHeader& h = call.header;
  if (!call.late) {
    const wire::CommandInfo* info = wire::FindCommand(h.command);
    const bool handle = info && info->bar_is_handle;
    out["command"] = wire::CommandName(h.command);
    out["dev"] = h.dev;
    out[handle ? "handle" : "bar"] = h.bar;
    out["arg0"] = h.arg0;
    out["arg1"] = h.arg1;
    out["arg2"] = h.arg2;
    if (call.payload.size > 0) out["payload"] = PieceJson(call.payload);
  } else {
    out["command"] = nullptr;
  }
  if (call.answered) {
    out["status"] = call.reply.status;
    out["resp0"] = call.reply.resp0;
    out["resp1"] = call.reply.resp1;
    if (call.body.size > 0) out["body"] = PieceJson(call.body);
    if (call.extra && !call.extra->error.empty()) out["error"] = call.extra->error;
    if (call.descriptors) out["descriptors"] = call.descriptors;
  } else {
    out["status"] = nullptr;
  }
  if (call.extra && !call.extra->note.empty()) out["note"] = call.extra->note;
  out["name"] = call.extra && !call.extra->name.empty() ? Json(call.extra->name) : Json(nullptr);
  out["about"] = call.extra && !call.extra->about.empty() ? Json(call.extra->about) : Json(nullptr);
  out["text"] = CallLine(call, revision);
  return out;
}

std::string AboutText(const Call& call) {
  return call.extra ? model::Printable(call.extra->about, 2000) : std::string();
}

std::string LatencyText(uint64_t least, uint64_t most) {
  if (most == 0) return {};
  const std::string a = model::Duration(least), b = model::Duration(most);
  return a == b ? fmt::format("  <{}>", a) : fmt::format("  <{}..{}>", a, b);
}

}  // namespace

std::string CallLine(const Call& call, wire::Revision revision) {
  std::string out;
  if (call.late) {
    out = fmt::format("(answer to record {}) = status={} resp0={:#x} resp1={:#x}", call.seq,
                      call.reply.status, call.reply.resp0, call.reply.resp1);
    if (call.extra && !call.extra->error.empty())
      out += " \"" + model::Printable(call.extra->error) + "\"";
    return out;
  }
  out = RequestText(call, revision);
  const std::string answer = AnswerText(call, revision);
  if (!answer.empty()) out += ' ' + answer;
  if (call.extra && !call.extra->note.empty())
    out += " [" + model::Printable(call.extra->note) + "]";
  return out;
}

LogPrinter::LogPrinter(const LogOptions& options, Output& out)
    : options_(options),
      out_(out),
      printer_(*this),
      folder_(printer_),
      behind_filter_(options.raw ? static_cast<model::CallSink&>(printer_) : folder_),
      assembler_(*this) {
  if (options.names) annotator_ = std::make_unique<Annotator>();
}

void LogPrinter::Add(const trace::Record& record) {
  if (annotator_) annotator_->Feed(record);
  assembler_.Add(record);
  if (record.kind == trace::Record::Kind::kPacket && record.packet) {
    const pb::Packet& p = *record.packet;
    if (p.has_event()) {
      const pb::SessionEvent& e = p.event();
      if (e.revision() == 1) revision_ = wire::Revision::kR1;
      if (e.revision() == 2) revision_ = wire::Revision::kR2;
      const bool boundary =
          e.kind() == pb::SessionEvent::CONNECT || e.kind() == pb::SessionEvent::DISCONNECT;
      if (boundary) assembler_.Flush();
      std::string text = pb::SessionEvent::Kind_IsValid(e.kind())
                             ? pb::SessionEvent::Kind_Name(e.kind())
                             : fmt::format("event {}", static_cast<int>(e.kind()));
      if (e.connection()) text += fmt::format(" connection {}", e.connection());
      if (!e.transport().empty()) text += ' ' + model::Printable(e.transport(), 20);
      if (e.client_pid()) text += fmt::format(", client pid {}", e.client_pid());
      if (!e.closed_first().empty())
        text += ", " + model::Printable(e.closed_first(), 20) + " closed first";
      if (!e.text().empty()) text += ": " + model::Printable(e.text());
      // What frames the connection speaks shows at its first call: that splits no run of calls.
      Note(record, "event", std::move(text), e.kind() != pb::SessionEvent::REVISION);
    } else if (p.has_raw()) {
      const auto* data = reinterpret_cast<const uint8_t*>(p.raw().data().data());
      const size_t shown = std::min<size_t>(p.raw().data().size(), 33);
      std::string text = fmt::format(
          "raw {} from {}: {}{}",
          model::Count(std::max<uint64_t>(p.raw().size(), p.raw().data().size()), "byte"),
          p.raw().from_server() ? "server" : "client", Hex({data, shown}),
          shown < p.raw().data().size() ? "..." : "");
      if (!p.raw().from_server() && shown == wire::kRequestSizeR2 &&
          wire::FindCommand(data[0]) != nullptr) {
        text += " (reads as " + model::CallText(wire::DecodeRequest({data, shown})) + ")";
      }
      if (!p.raw().reason().empty()) text += " [" + model::Printable(p.raw().reason()) + "]";
      Note(record, "raw", std::move(text));
    } else if (p.has_loss()) {
      Note(record, "loss",
           fmt::format("{} and {} not recorded ({}) {}", model::Count(p.loss().calls(), "call"),
                       model::Count(p.loss().packets(), "packet"),
                       pb::Loss::Cause_IsValid(p.loss().cause())
                           ? pb::Loss::Cause_Name(p.loss().cause())
                           : std::string("?"),
                       model::Printable(p.loss().detail())));
    } else if (p.has_end()) {
      Note(record, "end", "end of trace: " + model::Printable(p.end().reason()));
    }
  }
  if (!notes_.empty() && (!assembler_.waiting() || notes_.size() > kMaxNotes)) PrintNotes();
}

void LogPrinter::Skipped(const trace::SkippedRange& range) {
  assembler_.Flush();
  notes_.push_back({0, 0, "damage",
                    fmt::format("bytes {}..{} skipped: {}", range.offset,
                                model::SaturatingAdd(range.offset, range.size),
                                model::Printable(range.reason))});
  PrintNotes();
}

void LogPrinter::Note(const trace::Record& record, std::string kind, std::string text,
                      bool in_order) {
  const bool filtered = !options_.commands.empty() || options_.bar || options_.errors;
  if (filtered || record.call < options_.seq_first || record.call > options_.seq_last ||
      record.time_ns < options_.time_first_ns || record.time_ns > options_.time_last_ns)
    return;
  PendingNote note{record.call, record.time_ns, std::move(kind), std::move(text)};
  if (in_order)
    notes_.push_back(std::move(note));
  else
    PrintNote(note);
}

void LogPrinter::PrintNotes() {
  folder_.Flush();
  for (const PendingNote& note : notes_) PrintNote(note);
  notes_.clear();
}

void LogPrinter::PrintNote(const PendingNote& note) {
  if (options_.json) {
    Json j;
    j["kind"] = note.kind;
    j["seq"] = note.seq;
    j["t_ns"] = note.time_ns;
    j["text"] = note.text;
    out_.Line(Dump(j, false));
    return;
  }
  out_.Line(fmt::format("{:>9}  {:>12}  {}", "--",
                        note.kind == "damage" ? "" : model::Seconds(note.time_ns),
                        out_.Paint(Style::kDim, "-- " + note.text)));
}

bool LogPrinter::Wanted(const Call& call, uint64_t last_seq, uint64_t last_ns,
                        bool unanswered) const {
  if (last_seq < options_.seq_first || call.seq > options_.seq_last) return false;
  if (last_ns < options_.time_first_ns || call.time_ns > options_.time_last_ns) return false;
  if (!options_.commands.empty() &&
      (call.late || std::find(options_.commands.begin(), options_.commands.end(),
                              call.header.command) == options_.commands.end()))
    return false;
  if (options_.bar) {
    const wire::CommandInfo* info = wire::FindCommand(call.header.command);
    const auto command = static_cast<Command>(call.header.command);
    const bool has_bar = info && !info->bar_is_handle &&
                         (command == Command::kMmioRead || command == Command::kMmioWrite ||
                          command == Command::kMapBar || command == Command::kResizeBar);
    if (call.late || !has_bar || call.header.bar != *options_.bar) return false;
  }
  if (options_.errors) {
    const bool refused = call.answered && call.reply.status != 0;
    if (!refused && !unanswered && !call.body.cut && !call.payload.cut) return false;
  }
  return true;
}

void LogPrinter::OnCall(Call&& call) {
  const bool unanswered = call.expects_reply && !call.answered;
  if (!Wanted(call, call.seq, call.time_ns, unanswered)) return;
  if (annotator_) annotator_->Describe(call);
  behind_filter_.OnCall(std::move(call));
}

void LogPrinter::OnRun(CallRun&& run) {
  const uint64_t period = run.pattern.size();
  std::vector<Call> kept;
  uint64_t count = 0, last_place = 0;
  for (uint64_t i = 0; i < period; i++) {
    if (!Wanted(run.pattern[i], run.last_seq, run.last_ns, run.unanswered > 0)) continue;
    count = model::SaturatingAdd(count, run.count / period + (i < run.count % period ? 1 : 0));
    last_place = i;
    if (annotator_) annotator_->Describe(run.pattern[i]);
    kept.push_back(std::move(run.pattern[i]));
  }
  if (count == 0) return;
  if (kept.size() < period) {
    // Its last call may be one that is not wanted.
    const uint64_t whole = run.count - run.count % period;
    const uint64_t last = run.count % period > last_place ? whole + last_place
                          : whole > 0                     ? whole - period + last_place
                                                          : last_place;
    run.last_seq = model::SaturatingAdd(run.first_seq, last);
    run.first_seq = kept.front().seq;
    run.count = count;
  }
  run.pattern = std::move(kept);
  if (run.count == 1)
    behind_filter_.OnCall(std::move(run.pattern.front()));
  else
    behind_filter_.OnRun(std::move(run));
}

void LogPrinter::Print(const Call& first, const CallRun* run) {
  if (options_.json) {
    PrintJson(first, run);
    return;
  }
  std::string line = fmt::format("{:>9}  {:>12}  ", first.seq, model::Seconds(first.time_ns));
  const bool unanswered = run ? run->unanswered > 0 : first.expects_reply && !first.answered;
  if (!run || run->pattern.size() == 1) {
    const bool bad = (first.answered && first.reply.status != 0) || unanswered;
    const std::string text = CallLine(first, revision_);
    line += bad ? out_.Paint(Style::kBad, text) : text;
  } else {
    line += "[";
    for (const Call& call : run->pattern) {
      if (&call != &first) line += " | ";
      line += CallLine(call, revision_);
    }
    line += "]";
  }
  if (run) {
    const uint64_t period = run->pattern.size(), rest = run->count % period;
    std::string count = fmt::format("x{}", run->rounds());
    if (period > 1) count += fmt::format(" rounds of {}", period);
    if (rest > 0) count += fmt::format(" and {}", model::Count(rest, "call"));
    count += " over " + model::Duration(run->last_ns - run->first_ns);
    line += "  " + out_.Paint(Style::kBold, count);
    line += fmt::format(", to record {}", run->last_seq);
    if (run->unanswered > 0) line += fmt::format(", {} unanswered", run->unanswered);
    line += out_.Paint(Style::kDim, LatencyText(run->min_latency_ns, run->max_latency_ns));
  } else {
    line += out_.Paint(Style::kDim, LatencyText(first.latency_ns, first.latency_ns));
  }
  std::string about = AboutText(first);
  for (size_t i = 1; run && i < run->pattern.size(); i++)
    about += " | " + AboutText(run->pattern[i]);
  if (about.find_first_not_of(" |") != std::string::npos)
    line += "  " + out_.Paint(Style::kGood, about);
  if (first.after_damage) line += "  (after damage: record number and time are least values)";
  out_.Line(line);
}

void LogPrinter::PrintJson(const Call& first, const CallRun* run) {
  Json out;
  out["kind"] = run ? "run" : "call";
  out["seq"] = first.seq;
  out["t_ns"] = first.time_ns;
  if (!run) {
    Json call = CallJson(first, revision_);
    for (auto& [key, value] : call.items()) out[key] = std::move(value);
    out["latency_ns"] = first.answered && first.latency_ns ? Json(first.latency_ns) : Json(nullptr);
  } else {
    out["last_seq"] = run->last_seq;
    out["t1_ns"] = run->last_ns;
    out["count"] = run->count;
    out["period"] = run->pattern.size();
    out["unanswered"] = run->unanswered;
    out["min_latency_ns"] = run->min_latency_ns;
    out["max_latency_ns"] = run->max_latency_ns;
    out["calls"] = Json::array();
    for (const Call& call : run->pattern) out["calls"].push_back(CallJson(call, revision_));
  }
  out_.Line(Dump(out, false));
}

void LogPrinter::Flush() {
  assembler_.Flush();
  if (!notes_.empty()) PrintNotes();
  folder_.Flush();
}

void PrintLog(trace::TraceReader& reader, const LogOptions& options, Output& out) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(100);
  constexpr auto kGiveUp = std::chrono::seconds(1);
  LogPrinter printer(options, out);
  trace::Record record;
  size_t skipped = 0;
  auto last_news = Clock::now();
  reader.set_follow(options.follow);
  while (!out.failed()) {
    const bool more = reader.Next(record);
    for (; skipped < reader.skipped().size(); skipped++) printer.Skipped(reader.skipped()[skipped]);
    if (more) {
      printer.Add(record);
      if (options.follow) last_news = Clock::now();
      if (record.time_ns > options.time_last_ns && record.call > options.seq_last) break;
      continue;
    }
    if (!options.follow || reader.end_state() == trace::EndState::kClean) break;
    printer.FlushFolded();
    if (printer.waiting() && Clock::now() - last_news > kGiveUp) printer.Flush();
    out.Flush();
    std::this_thread::sleep_for(kPause);
  }
  printer.Flush();
  out.Flush();
}

bool ParseRange(const std::string& text, double scale, uint64_t& first, uint64_t& last) {
  const auto number = [scale](const std::string& part, uint64_t& value) {
    char* end = nullptr;
    const double parsed = std::strtod(part.c_str(), &end);
    if (part.empty() || *end != '\0' || !std::isfinite(parsed) || parsed < 0) return false;
    const double scaled = parsed * scale;
    value =
        scaled >= 18e18 ? UINT64_MAX : static_cast<uint64_t>(std::llround(std::min(scaled, 9e18)));
    return true;
  };
  const size_t dots = text.find("..");
  if (dots == std::string::npos) {
    if (!number(text, first)) return false;
    last = first;
    return true;
  }
  const std::string a = text.substr(0, dots), b = text.substr(dots + 2);
  if (a.empty() && b.empty()) return false;
  if (!a.empty() && !number(a, first)) return false;
  if (!b.empty() && !number(b, last)) return false;
  return first <= last;
}

}  // namespace tg::report
