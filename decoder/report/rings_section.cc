#include "decoder/report/rings_section.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "decoder/model/queue_state.h"
#include "decoder/model/queue_text.h"
#include "decoder/model/words.h"
#include "decoder/report/feed.h"

namespace tg::report {
namespace {

using model::Queue;
using model::QueueItem;
using model::QueueState;
using model::Submission;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json TextOrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}
Json SeqOrNull(uint64_t call) {
  return call ? Json(call) : Json(nullptr);
}

std::string_view KindText(const Queue& queue) {
  if (!queue.known_format) return "unknown";
  switch (queue.format.format) {
    case amd::RingFormat::kSdma:
      return "sdma";
    case amd::RingFormat::kPm4:
      return "compute_pm4";
    case amd::RingFormat::kAql:
      return "compute_aql";
  }
  return "unknown";
}

std::string_view StateText(QueueState::Kind kind) {
  switch (kind) {
    case QueueState::Kind::kUnused:
      return "unused";
    case QueueState::Kind::kNoPointers:
      return "pointers_not_observed";
    case QueueState::Kind::kIdle:
      return "idle";
    case QueueState::Kind::kBusy:
      return "busy";
    case QueueState::Kind::kNoFence:
      return "fence_not_seen";
  }
  return "";
}

std::string PlaceText(const model::Place& place) {
  using Kind = model::Place::Kind;
  switch (place.kind) {
    case Kind::kNotKnown:
      return "not known";
    case Kind::kUnmapped:
      return "NOT MAPPED";
    case Kind::kVram:
      return fmt::format("VRAM {:#x}", place.offset);
    case Kind::kSysmem:
      return fmt::format("region {}+{:#x}{}", place.region, place.offset,
                         place.assumed ? " (assumed)" : "");
    case Kind::kDma:
      return fmt::format("DMA {:#x} (no region)", place.offset);
  }
  return "";
}

std::string BufferText(model::ReachedBuffer::State state) {
  using State = model::ReachedBuffer::State;
  switch (state) {
    case State::kRead:
      return "read";
    case State::kNotObserved:
      return "not observed";
    case State::kAgain:
      return "was entered before: not followed again";
    case State::kTooDeep:
      return "nested too deep to follow";
    case State::kTooMuch:
      return "too large to follow";
  }
  return "";
}

Json PacketJson(const QueueItem& item, const model::QueueMemory& memory) {
  Json out;
  out["offset"] = item.depth == 0 ? OrNull(item.ring_offset) : Json(item.position);
  const bool packet = item.kind == amd::WalkItem::Kind::kPacket;
  out["op"] = packet ? Json(item.packet.name.empty() ? fmt::format("op {:#x}", item.packet.op)
                                                     : std::string(item.packet.name))
                     : Json(nullptr);
  Json fields = Json::object(), places = Json::object();
  if (packet) {
    for (const amd::PacketField& f : item.packet.fields) {
      const std::string name =
          f.name.empty() ? fmt::format("reg_{:x}", f.reg) : std::string(f.name);
      fields[name] = f.value;
      if (f.kind == amd::FieldKind::kAddress && f.value != 0) {
        places[name] = PlaceText(memory.Locate(f.value));
      }
    }
  }
  out["fields"] = std::move(fields);
  out["places"] = std::move(places);
  out["text"] = packet ? model::PacketText(item.packet)
                       : fmt::format("{} bytes: {}", item.size, amd::WalkKindText(item.kind));
  out["size"] = item.size;
  out["depth"] = item.depth;
  out["here"] = item.here;
  out["read"] = item.read;
  out["memory"] = OrNull(item.memory);
  out["holds"] = item.memory ? Json(item.holds) : Json(nullptr);
  out["submission"] = SeqOrNull(item.submission);
  if (item.buffer) out["buffer"] = BufferText(*item.buffer);
  return out;
}

Json StuckJson(const model::QueueStuck& stuck) {
  Json out;
  out["op"] = stuck.op;
  out["wants"] = stuck.wants;
  out["has"] = TextOrNull(stuck.has);
  out["text"] = stuck.text;
  out["producer"] = TextOrNull(stuck.producer);
  out["satisfied"] = stuck.satisfied;
  return out;
}

Json SubmissionJson(const Queue& queue, const Submission& s, std::optional<uint64_t> rptr) {
  Json out;
  out["number"] = s.number;
  out["offset"] = s.begin ? OrNull(queue.RingOffset(*s.begin)) : Json(nullptr);
  out["end_offset"] = OrNull(queue.RingOffset(s.end));
  out["bytes"] = s.begin ? Json(s.end - *s.begin) : Json(nullptr);
  const bool seen = s.content == Submission::Content::kObserved;
  out["packets"] = seen ? Json(s.packets) : Json(nullptr);
  out["doorbell"] = s.doorbell_value;
  out["doorbell_seq"] = s.doorbell_call;
  out["doorbell_t_ns"] = s.doorbell_ns;
  out["written_seq"] = SeqOrNull(s.written_call);
  Json fence = nullptr;
  if (!s.signals.empty()) {
    fence = Json::object();
    fence["address"] = s.signals.back().va;
    fence["value"] = s.signals.back().value;
  }
  out["fence"] = std::move(fence);
  // The engine never came to the fence: somebody else wrote its value.
  constexpr uint64_t kFenceBytes = 16;
  const bool passed =
      !queue.sdma() || s.epoch != queue.epochs || !rptr || *rptr + kFenceBytes >= s.end;
  const bool forced = s.retired_call && (s.wiped || !passed);
  out["retired_by_host"] = forced;
  out["retired_seq"] = forced ? Json(nullptr) : OrNull(s.retired_call);
  out["retired_t_ns"] = s.retired_call && !forced ? Json(s.retired_ns) : Json(nullptr);
  return out;
}

Json MissingJson(const std::optional<model::MissingFence>& missing) {
  if (!missing) return nullptr;
  Json out;
  out["address"] = missing->fence.va;
  out["value"] = missing->fence.value;
  out["has"] = OrNull(missing->memory);
  out["submission"] = missing->submission;
  out["forced"] = missing->forced;
  return out;
}

Json AbandonedJson(const model::DeviceQueues& all, const Queue& queue) {
  const auto found = all.abandoned().find(queue.index);
  if (found == all.abandoned().end()) return nullptr;
  const QueueState& state = found->second.state;
  Json out;
  out["seq"] = found->second.call;
  out["headline"] = state.headline;
  out["notes"] = state.notes;
  out["rptr"] = state.rptr ? Json(queue.ToRaw(*state.rptr)) : Json(nullptr);
  out["wptr"] = state.wptr ? Json(queue.ToRaw(*state.wptr)) : Json(nullptr);
  out["outstanding_bytes"] = OrNull(state.outstanding_bytes);
  Json packets = nullptr;
  if (state.ring_observed) {
    packets = Json::array();
    for (const QueueItem& item : state.items) packets.push_back(PacketJson(item, all.memory()));
  }
  out["packets"] = std::move(packets);
  out["stuck"] = state.stuck ? StuckJson(*state.stuck) : Json(nullptr);
  out["missing_fence"] = MissingJson(state.missing);
  return out;
}

Json QueueJson(const model::DeviceQueues& all, const Queue& queue, const RingsOptions& options) {
  model::StateOptions wanted;
  if (options.before) wanted.packets_before = *options.before;
  if (options.after) wanted.packets_after = *options.after + 1;
  const QueueState state = StateOf(all.queues(), queue.index, wanted);
  const auto raw = [&](const std::optional<uint64_t>& position) {
    return position ? Json(queue.ToRaw(*position)) : Json(nullptr);
  };
  Json out;
  out["name"] = queue.name;
  out["kind"] = KindText(queue);
  out["ring_va"] = OrNull(queue.ring_va);
  out["ring_size"] = OrNull(queue.ring_bytes);
  out["rptr"] = raw(state.rptr);
  out["wptr"] = raw(state.wptr);
  out["pointer_unit"] = queue.unit();
  out["outstanding_bytes"] = OrNull(state.outstanding_bytes);
  out["outstanding_packets"] = OrNull(state.outstanding_packets);
  // Not observed is not empty.
  Json packets = nullptr;
  if (state.ring_observed) {
    packets = Json::array();
    for (const QueueItem& item : state.items) packets.push_back(PacketJson(item, all.memory()));
  }
  out["packets"] = std::move(packets);
  out["packets_left_out"] = state.items_left_out;
  out["stuck"] = state.stuck ? StuckJson(*state.stuck) : Json(nullptr);
  out["missing_fence"] = MissingJson(state.missing);
  out["before_setup"] = AbandonedJson(all, queue);
  out["state"] = StateText(state.kind);
  out["overrun"] = state.overrun;
  out["headline"] = state.headline;
  out["notes"] = state.notes;
  out["ring_place"] =
      queue.ring_va ? Json(PlaceText(all.memory().Locate(*queue.ring_va))) : Json(nullptr);
  out["rptr_source"] =
      TextOrNull(state.rptr ? std::string(model::SourceText(state.rptr_source)) : std::string());
  out["rptr_seq"] = state.rptr ? SeqOrNull(state.rptr_call) : Json(nullptr);
  out["rptr_address"] = OrNull(queue.rptr_va);
  out["wptr_address"] = OrNull(queue.wptr_va);
  out["wptr_memory"] = queue.wptr_memory ? Json(queue.wptr_memory.raw) : Json(nullptr);
  out["doorbell_offset"] = OrNull(queue.doorbell_offset);
  out["doorbells"] = queue.doorbells;
  Json last = nullptr;
  if (queue.doorbells > 0) {
    last = Json::object();
    last["value"] = queue.last_doorbell_value;
    last["seq"] = queue.last_doorbell_call;
    last["t_ns"] = queue.last_doorbell_ns;
  }
  out["last_doorbell"] = std::move(last);
  out["setup_seq"] = SeqOrNull(queue.setup_call);
  out["setups"] = queue.epochs;
  out["xccs"] = queue.xccs;
  out["warm_start"] = queue.warm_start;
  Json submissions;
  submissions["total"] = queue.submissions_total;
  submissions["bytes"] = queue.bytes_total;
  submissions["listed"] = Json::array();
  const size_t have = queue.submissions.size();
  for (size_t i = have - std::min(have, options.submissions); i < have; ++i) {
    submissions["listed"].push_back(SubmissionJson(queue, queue.submissions[i], state.rptr));
  }
  out["submissions"] = std::move(submissions);
  return out;
}

std::string HexOr(const Json& value, const char* otherwise = "not observed") {
  return value.is_null() ? otherwise : fmt::format("{:#x}", value.get<uint64_t>());
}

std::string Flat(const Json& text) {
  return model::Printable(text.get<std::string>());
}

void PacketLine(const Json& packet, Output& out) {
  const uint64_t depth = packet["depth"].get<uint64_t>();
  const bool here = packet["here"].get<bool>();
  std::string line =
      fmt::format("  {} {:>8}  {}{}", here ? "=>" : "  ", HexOr(packet["offset"], "?"),
                  std::string(depth * 2, ' '), Flat(packet["text"]));
  if (!packet["memory"].is_null()) {
    line += fmt::format("  [memory holds {}{}]", packet["memory"].get<uint64_t>(),
                        packet["holds"].get<bool>() ? "" : ", not reached");
  }
  for (const auto& [name, place] : packet["places"].items()) {
    line += fmt::format("  {}: {}", name, Flat(place));
  }
  if (packet.contains("buffer") && packet["buffer"] != "read") {
    line += fmt::format("  (buffer {})", Flat(packet["buffer"]));
  }
  if (here) line += "  <- the GPU's read pointer";
  out.Line(here                         ? out.Paint(Style::kBold, line)
           : packet["read"].get<bool>() ? out.Paint(Style::kDim, line)
                                        : line);
}

void MissingLine(const Json& missing, Output& out) {
  if (missing.is_null()) return;
  out.Line(fmt::format(
      "    fence missing: [{:#x}] = {} (submission {}), {}", missing["address"].get<uint64_t>(),
      missing["value"].get<uint64_t>(), missing["submission"].get<uint64_t>(),
      missing["has"].is_null() ? std::string("memory not observed")
                               : fmt::format("memory holds {}", missing["has"].get<uint64_t>())));
}

void SubmissionLines(const Json& submissions, Output& out) {
  const Json& listed = submissions["listed"];
  if (listed.empty()) return;
  out.Line(fmt::format("  submissions: {}, {} bytes; the newest:",
                       submissions["total"].get<uint64_t>(), submissions["bytes"].get<uint64_t>()));
  for (const Json& s : listed) {
    std::string line =
        fmt::format("    #{} ring {}..{} doorbell {:#x} (seq {})", s["number"].get<uint64_t>(),
                    HexOr(s["offset"], "?"), HexOr(s["end_offset"], "?"),
                    s["doorbell"].get<uint64_t>(), s["doorbell_seq"].get<uint64_t>());
    if (!s["bytes"].is_null()) line += fmt::format(", {:#x} bytes", s["bytes"].get<uint64_t>());
    line += s["packets"].is_null() ? std::string(", content not observed")
                                   : fmt::format(", {} packets", s["packets"].get<uint64_t>());
    if (!s["written_seq"].is_null()) {
      line += fmt::format(", written by seq {}", s["written_seq"].get<uint64_t>());
    }
    if (!s["fence"].is_null()) {
      line += fmt::format(", fence [{:#x}] = {} ", s["fence"]["address"].get<uint64_t>(),
                          s["fence"]["value"].get<uint64_t>());
      line += s["retired_by_host"].get<bool>() ? std::string("set by the host, not by the engine")
              : s["retired_seq"].is_null()
                  ? std::string("not seen")
                  : fmt::format("seen at seq {}", s["retired_seq"].get<uint64_t>());
    }
    out.Line(line);
  }
}

}  // namespace

Result<void> ParseWindow(const std::string& text, RingsOptions& options) {
  std::string_view rest = text;
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  const auto bad = [&] {
    return Fail(Error::Code::kUsage,
                "--window " + text + ": packets around the read pointer are [.-4:.+8]");
  };
  const size_t colon = rest.find(':');
  if (colon == std::string_view::npos) return bad();
  // ".", ".-N" or "" before the colon; ".", ".+N" or "" behind it.
  const auto side = [](std::string_view part, char sign, std::optional<uint32_t>& to) {
    if (part.empty()) return true;
    if (part.front() != '.') return false;
    part.remove_prefix(1);
    uint32_t value = 0;
    if (!part.empty()) {
      if (part.front() != sign) return false;
      const char* end = part.data() + part.size();
      const auto [stop, error] = std::from_chars(part.data() + 1, end, value);
      if (error != std::errc() || stop != end || part.size() < 2) return false;
    }
    to = value;
    return true;
  };
  if (!side(rest.substr(0, colon), '-', options.before)) return bad();
  if (!side(rest.substr(colon + 1), '+', options.after)) return bad();
  return {};
}

Json QueuesJson(const model::DeviceQueues& queues, const RingsOptions& options) {
  Json out = Json::array();
  const auto only =
      options.queue.empty() ? std::nullopt : queues.queues().FindByName(options.queue);
  for (const Queue& queue : queues.queues().queues()) {
    if (!options.queue.empty() && only != queue.index) continue;
    out.push_back(QueueJson(queues, queue, options));
  }
  return out;
}

void QueuesText(const Json& queues, Output& out, bool full) {
  out.Heading("Queues");
  if (queues.empty()) {
    out.Line("  none observed");
    return;
  }
  for (const Json& q : queues) {
    const std::string state = q["state"];
    const bool bad = state == "busy" || state == "fence_not_seen";
    out.Line("  " + (bad ? out.Paint(Style::kWarn, Flat(q["headline"])) : Flat(q["headline"])));
    for (const Json& note : q["notes"]) out.Line("    " + Flat(note));
    MissingLine(q["missing_fence"], out);
    if (const Json& before = q["before_setup"]; !before.is_null()) {
      out.Line("  " + out.Paint(Style::kWarn, fmt::format("before it was set up again (seq {}): {}",
                                                          before["seq"].get<uint64_t>(),
                                                          Flat(before["headline"]))));
      for (const Json& note : before["notes"]) out.Line("    " + Flat(note));
      MissingLine(before["missing_fence"], out);
      if (full && !before["packets"].is_null()) {
        for (const Json& packet : before["packets"]) PacketLine(packet, out);
      }
    }
    if (!full || q["doorbells"] == 0) continue;
    out.Line(fmt::format(
        "  {} ring {} ({}), size {}, doorbell bar2+{}, {}{}; pointers in units of {} "
        "byte{}, read pointer from {}",
        Flat(q["kind"]), HexOr(q["ring_va"]),
        q["ring_place"].is_null() ? std::string("place not known") : Flat(q["ring_place"]),
        HexOr(q["ring_size"]), HexOr(q["doorbell_offset"]),
        model::Count(q["doorbells"].get<uint64_t>(), "doorbell"),
        q["warm_start"].get<bool>() ? ", warm start" : "", q["pointer_unit"].get<uint64_t>(),
        q["pointer_unit"] == 1 ? "" : "s",
        q["rptr_source"].is_null()
            ? std::string("nowhere (not observed)")
            : fmt::format("{} (seq {})", Flat(q["rptr_source"]),
                          q["rptr_seq"].is_null() ? 0 : q["rptr_seq"].get<uint64_t>())));
    if (q["packets"].is_null()) {
      out.Line("  ring content not observed");
    } else {
      for (const Json& packet : q["packets"]) PacketLine(packet, out);
      if (q["packets_left_out"].get<uint64_t>() > 0) {
        out.Line(fmt::format("  ... {} more", q["packets_left_out"].get<uint64_t>()));
      }
    }
    SubmissionLines(q["submissions"], out);
    out.Line();
  }
}

Result<int> PrintRings(trace::TraceReader& reader, const RingsOptions& options, Output& out) {
  model::Device device;
  model::DeviceQueues queues(device);
  FeedUpTo(reader, device, options.at.value_or(UINT64_MAX));
  if (!options.at) queues.Finish();
  if (!options.queue.empty() && !queues.queues().FindByName(options.queue)) {
    std::string known;
    for (const Queue& queue : queues.queues().queues()) known += ' ' + queue.name;
    return Fail(Error::Code::kUsage, "no queue is called '" + options.queue + "'; there are:" +
                                         (known.empty() ? std::string(" none") : known));
  }
  const Json document = QueuesJson(queues, options);
  if (options.json) {
    out.Line(Dump(document, true));
  } else {
    QueuesText(document, out, true);
    for (const model::QueueWarning& w : queues.queues().warnings()) {
      out.Line(fmt::format("  seq {}: {}", w.call, model::Printable(w.text)));
    }
  }
  for (const Json& q : document) {
    if (q["state"] == "busy" || q["state"] == "fence_not_seen") return 1;
  }
  return 0;
}

}  // namespace tg::report
