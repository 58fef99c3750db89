#include "decoder/export/chrome.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "decoder/model/calls.h"
#include "decoder/model/words.h"
#include "decoder/report/json.h"
#include "decoder/report/log.h"
#include "schemas/trace/trace.pb.h"

namespace tg::report {

namespace pb = tinygpu::trace;
using model::CallRun;
using wire::Command;

namespace {

constexpr uint32_t kSetupTrack = 1, kConfigTrack = 2, kBarTrack = 10, kSysmemTrack = 20,
                   kEventTrack = 30;

struct Track {
  uint32_t id;
  std::string_view name;
};
constexpr std::array<Track, 11> kTracks = {
    {{kSetupTrack, "set-up (PROBE, MAP, RESIZE, RESET, PING)"},
     {kConfigTrack, "PCI configuration"},
     {kBarTrack + 0, "BAR 0"},
     {kBarTrack + 1, "BAR 1"},
     {kBarTrack + 2, "BAR 2"},
     {kBarTrack + 3, "BAR 3"},
     {kBarTrack + 4, "BAR 4"},
     {kBarTrack + 5, "BAR 5"},
     {kBarTrack + 6, "other BARs"},
     {kSysmemTrack, "shared memory over the socket"},
     {kEventTrack, "proxy"}}};

uint32_t TrackOf(const wire::RequestHeader& header) {
  switch (static_cast<Command>(header.command)) {
    case Command::kCfgRead:
    case Command::kCfgWrite:
      return kConfigTrack;
    case Command::kMmioRead:
    case Command::kMmioWrite:
      return kBarTrack + std::min(header.bar, 6u);
    case Command::kSysmemRead:
    case Command::kSysmemWrite:
      return kSysmemTrack;
    default:
      return kSetupTrack;
  }
}

std::string Microseconds(uint64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::string Quoted(std::string_view text) {
  return Dump(Json(text), false);
}

class Exporter : public model::CallSink {
 public:
  Exporter(bool raw, Output& out)
      : out_(out),
        folder_(*this),
        assembler_(raw ? static_cast<model::CallSink&>(*this) : folder_) {
    out_.Write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    Event(R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"TinyGPU RPC"}})");
    for (const Track& track : kTracks) {
      Event(
          fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
                      track.id, Quoted(track.name)));
    }
  }

  void Add(const trace::Record& record) {
    assembler_.Add(record);
    if (!record.packet || !record.packet->has_event()) return;
    const pb::SessionEvent& event = record.packet->event();
    std::string name = pb::SessionEvent::Kind_IsValid(event.kind())
                           ? pb::SessionEvent::Kind_Name(event.kind())
                           : std::string("event");
    Event(fmt::format(
        R"({{"ph":"i","s":"p","pid":1,"tid":{},"ts":{},"name":{},"args":{{"seq":{},"text":{}}}}})",
        kEventTrack, Microseconds(record.time_ns), Quoted(name), record.call,
        Quoted(event.text())));
  }

  void OnCall(model::Call&& call) override { Print(call, nullptr); }
  void OnRun(CallRun&& run) override { Print(run.pattern.front(), &run); }

  void Finish() {
    assembler_.Flush();
    folder_.Flush();
    out_.Write("\n]}\n");
  }

 private:
  void Event(const std::string& json) {
    if (any_) out_.Write(",\n");
    any_ = true;
    out_.Write(json);
  }

  void Print(const model::Call& first, const CallRun* run) {
    if (first.late) return;
    std::string name = model::CallText(first.header);
    uint64_t duration = first.latency_ns;
    Json args;
    args["seq"] = first.seq;
    args["call"] = CallLine(first, wire::Revision::kUndecided);
    bool unanswered = first.expects_reply && !first.answered;
    if (run) {
      if (run->pattern.size() > 1) name += fmt::format(" and {} more", run->pattern.size() - 1);
      name += fmt::format(" x{}", run->rounds());
      const uint64_t span = run->last_ns - std::min(run->first_ns, run->last_ns);
      duration = model::SaturatingAdd(span, run->max_latency_ns);
      args["calls"] = run->count;
      args["last_seq"] = run->last_seq;
      unanswered = run->unanswered > 0;
    }
    if (unanswered) args["unanswered"] = true;
    if (first.answered) args["status"] = first.reply.status;
    Event(fmt::format(
        R"({{"ph":"X","pid":1,"tid":{},"ts":{},"dur":{},"name":{},"cat":{},"args":{}}})",
        TrackOf(first.header), Microseconds(first.time_ns), Microseconds(duration), Quoted(name),
        Quoted(wire::CommandName(first.header.command)), Dump(args, false)));
  }

  Output& out_;
  bool any_ = false;
  model::CallFolder folder_;
  model::CallAssembler assembler_;
};

}  // namespace

void ExportChrome(trace::TraceReader& reader, bool raw, Output& out) {
  Exporter exporter(raw, out);
  trace::Record record;
  while (!out.failed() && reader.Next(record)) exporter.Add(record);
  exporter.Finish();
  out.Flush();
}

}  // namespace tg::report
