#include "decoder/report/copies_section.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"
#include "decoder/model/words.h"
#include "decoder/report/feed.h"

namespace tg::report {
namespace {

using model::Copies;
using model::CopyDirection;
using model::CopyTotals;

constexpr size_t kBar = 40;
constexpr size_t kItems = 1u << 16;
// Reads of the disk path end out of order, but not by this many.
constexpr uint64_t kSureUses = 8;

double PerSecond(uint64_t bytes, uint64_t ns) {
  return ns == 0 ? 0 : static_cast<double>(bytes) * 1e9 / static_cast<double>(ns);
}

Json TotalsJson(const CopyTotals& totals) {
  Json out;
  out["copies"] = totals.copies;
  out["bytes"] = totals.bytes;
  out["smallest"] = totals.smallest;
  out["largest"] = totals.largest;
  out["first_seq"] = totals.first_call;
  out["last_seq"] = totals.last_call;
  // A copy with no other right behind it has no rate.
  out["bytes_per_s"] =
      totals.busy_ns > 0 ? Json(PerSecond(totals.busy_bytes, totals.busy_ns)) : Json(nullptr);
  return out;
}

Json StagingJson(const model::Staging& staging) {
  if (staging.slots == 0) return nullptr;
  Json out;
  out["slots"] = staging.slots;
  out["slot_bytes"] = staging.slot_bytes;
  out["uses"] = staging.uses;
  out["last_slot"] = staging.last_slot ? Json(*staging.last_slot) : Json(nullptr);
  out["next_slot"] =
      staging.last_slot ? Json((*staging.last_slot + 1) % staging.slots) : Json(nullptr);
  out["uses_by_slot"] = staging.uses_by_slot;
  out["left_out"] = Json::array();
  for (const model::StagingSkip& skip : staging.left_out) {
    Json s;
    s["slot"] = skip.slot;
    s["seq"] = skip.call;
    s["uses_since"] = skip.uses_since;
    s["leaked"] = skip.uses_since >= kSureUses;
    out["left_out"].push_back(std::move(s));
  }
  out["copies_out"] = staging.copies_out;
  // Only a file offset inside a page gives the disk path away.
  out["disk_path"] = staging.minor_offsets > 0 ? Json(true) : Json(nullptr);
  out["disk_path_pieces"] = staging.minor_offsets;
  out["first_chunk_offset"] =
      staging.minor_offsets > 0 ? Json(staging.last_minor_offset) : Json(nullptr);
  return out;
}

// Copies that stand in the rings from the read pointers on: told, not known to be done. Null where
// no pointer or no ring content says so.
Json NotDoneJson(const model::Queues& queues) {
  uint64_t copies = 0, bytes = 0;
  for (const model::Queue& queue : queues.queues()) {
    if (!queue.sdma() || queue.submissions_total == 0) continue;
    const model::QueueState state =
        StateOf(queues, queue.index, {.max_items = kItems, .packets_after = std::nullopt});
    if (!state.rptr || (state.kind == model::QueueState::Kind::kBusy && !state.ring_observed) ||
        state.items_left_out > 0)
      return nullptr;
    for (const model::QueueItem& item : state.items) {
      if (item.read || item.kind != amd::WalkItem::Kind::kPacket) continue;
      const auto copy = CopyOf(item.packet);
      if (!copy) continue;
      ++copies;
      bytes = model::SaturatingAdd(bytes, copy->bytes);
    }
  }
  Json out;
  out["copies"] = copies;
  out["bytes"] = bytes;
  return out;
}

std::string RateText(double bytes_per_second) {
  return model::Bytes(static_cast<uint64_t>(bytes_per_second)) + "/s";
}

}  // namespace

Json CopiesJson(const model::DeviceQueues& queues) {
  const Copies& copies = queues.copies();
  if (copies.copies() == 0) return nullptr;
  Json out;
  out["copies"] = copies.copies();
  out["bytes"] = copies.bytes();
  Json by_direction = Json::object();
  for (size_t i = 0; i < model::kCopyDirections; ++i) {
    const auto direction = static_cast<CopyDirection>(i);
    if (copies.totals(direction).copies == 0) continue;
    by_direction[std::string(CopyDirectionName(direction))] = TotalsJson(copies.totals(direction));
  }
  out["by_direction"] = std::move(by_direction);
  out["not_done"] = NotDoneJson(queues.queues());
  out["sizes"] = Json::array();
  for (const auto& [size, count] : copies.common_sizes()) {
    Json s;
    s["size"] = size;
    s["count"] = count;
    out["sizes"].push_back(std::move(s));
  }
  Json throughput;
  throughput["interval_ns"] = copies.rate_interval_ns();
  throughput["points"] = Json::array();
  for (const model::CopyRate& rate : copies.rates()) {
    Json point;
    point["t_ns"] = rate.t_ns;
    for (size_t i = 0; i < model::kCopyDirections; ++i) {
      if (rate.bytes[i] == 0) continue;
      point[std::string(CopyDirectionName(static_cast<CopyDirection>(i)))] = rate.bytes[i];
    }
    throughput["points"].push_back(std::move(point));
  }
  out["throughput"] = std::move(throughput);
  out["staging"] = StagingJson(copies.staging());
  return out;
}

void CopiesText(const Json& copies, Output& out) {
  out.Heading("Copies");
  if (copies.is_null()) {
    out.Line("  none observed");
    return;
  }
  for (size_t i = 0; i < model::kCopyDirections; ++i) {
    const auto direction = static_cast<CopyDirection>(i);
    const auto found = copies["by_direction"].find(std::string(CopyDirectionName(direction)));
    if (found == copies["by_direction"].end()) continue;
    const Json& t = *found;
    std::string line = fmt::format(
        "  {:<17} {:>9} in {} copies of {} to {}", CopyDirectionText(direction),
        model::Bytes(t["bytes"].get<uint64_t>()), model::Thousands(t["copies"].get<uint64_t>()),
        model::Bytes(t["smallest"].get<uint64_t>()), model::Bytes(t["largest"].get<uint64_t>()));
    if (!t["bytes_per_s"].is_null()) line += ", " + RateText(t["bytes_per_s"].get<double>());
    out.Line(line);
  }
  const Json& not_done = copies["not_done"];
  if (not_done.is_null()) {
    out.Line("  how many of them were done: not observed");
  } else if (not_done["copies"].get<uint64_t>() > 0) {
    out.Line(
        out.Paint(Style::kWarn,
                  fmt::format("  not known to be done: {} of them, {}, from the read pointer on",
                              model::Thousands(not_done["copies"].get<uint64_t>()),
                              model::Bytes(not_done["bytes"].get<uint64_t>()))));
  }
  std::string sizes;
  for (const Json& s : copies["sizes"]) {
    if (sizes.size() > 120) break;
    sizes +=
        fmt::format("{}{} x{}", sizes.empty() ? "" : ", ", model::Bytes(s["size"].get<uint64_t>()),
                    model::Thousands(s["count"].get<uint64_t>()));
  }
  out.Line("  sizes: " + sizes);
  const Json& staging = copies["staging"];
  if (!staging.is_null()) {
    std::string line =
        fmt::format("  staging: {} slots of {}, used {} times", staging["slots"].get<uint64_t>(),
                    model::Bytes(staging["slot_bytes"].get<uint64_t>()),
                    model::Thousands(staging["uses"].get<uint64_t>()));
    if (!staging["last_slot"].is_null()) {
      line += fmt::format(", last slot {}, next {}", staging["last_slot"].get<uint64_t>(),
                          staging["next_slot"].get<uint64_t>());
    }
    line += fmt::format("; {} copies back through slot 0",
                        model::Thousands(staging["copies_out"].get<uint64_t>()));
    out.Line(line);
    for (const Json& skip : staging["left_out"]) {
      if (!skip["leaked"].get<bool>()) continue;
      out.Line(out.Paint(
          Style::kWarn,
          fmt::format("  staging slot {} was passed at seq {} and not used since: taken and never "
                      "submitted? The disk path waits for ever when it comes round",
                      skip["slot"].get<uint64_t>(), skip["seq"].get<uint64_t>())));
    }
    if (!staging["first_chunk_offset"].is_null()) {
      out.Line(
          fmt::format("  disk copies took the SDMA path: {} began inside their slot, last at "
                      "offset {:#x}",
                      staging["disk_path_pieces"].get<uint64_t>(),
                      staging["first_chunk_offset"].get<uint64_t>()));
    }
  }
}

Result<int> PrintCopies(trace::TraceReader& reader, bool json, Output& out, uint64_t at) {
  model::Device device;
  model::DeviceQueues queues(device);
  FeedUpTo(reader, device, at);
  queues.Finish();
  const Json document = CopiesJson(queues);
  if (json) {
    out.Line(Dump(document, true));
    return 0;
  }
  CopiesText(document, out);
  if (document.is_null()) return 0;
  // Throughput as bars, the busiest interval full.
  const Json& points = document["throughput"]["points"];
  const uint64_t interval = document["throughput"]["interval_ns"];
  uint64_t most = 1;
  std::vector<std::pair<uint64_t, uint64_t>> rows;
  for (const Json& point : points) {
    uint64_t bytes = 0;
    for (const auto& [name, value] : point.items()) {
      if (name != "t_ns") bytes += value.get<uint64_t>();
    }
    rows.emplace_back(point["t_ns"].get<uint64_t>(), bytes);
    most = std::max(most, bytes);
  }
  constexpr size_t kRows = 48;
  const size_t step = (rows.size() + kRows - 1) / kRows;
  out.Line(fmt::format("  over time (intervals of {}):", model::Duration(interval)));
  for (size_t i = 0; i < rows.size(); i += std::max<size_t>(step, 1)) {
    const auto [t, bytes] = rows[i];
    out.Line(fmt::format("  {:>12} s  {:>9}  {}", model::Seconds(t), model::Bytes(bytes),
                         std::string(static_cast<size_t>(bytes * kBar / most), '#')));
  }
  return 0;
}

}  // namespace tg::report
