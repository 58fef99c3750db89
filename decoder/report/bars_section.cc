#include "decoder/report/bars_section.h"

#include "decoder/model/words.h"
#include "decoder/report/section_json.h"

namespace tg::report {
namespace {

using model::Bytes;
using model::Duration;
using model::Hex;
using model::Seconds;
using model::Thousands;
using model::Vendor;

std::string_view VendorName(Vendor vendor) {
  switch (vendor) {
    case Vendor::kAmd:
      return "AMD";
    case Vendor::kNvidia:
      return "NVIDIA";
    case Vendor::kOther:
      return "other";
    case Vendor::kUnknown:
      break;
  }
  return "";
}

std::string_view BarUse(Vendor vendor, uint32_t index) {
  if (vendor == Vendor::kAmd) {
    if (index == 0) return "VRAM";
    if (index == 2) return "doorbells";
    if (index == 5) return "registers";
  }
  if (vendor == Vendor::kNvidia) {
    if (index == 0) return "registers";
    if (index == 1) return "VRAM";
  }
  return "";
}

std::string CommandText(uint16_t command) {
  std::string text =
      fmt::format("0x{:04x}: memory {}, bus master {}", command, (command & 2) != 0 ? "on" : "off",
                  (command & 4) != 0 ? "on" : "off");
  if ((command & 0x400) != 0) text += ", INTx off";
  return text;
}

// Of the AMD tables, or one that is known without; empty: none.
std::string RegisterName(const model::Device& device, const model::LinkWatch& link,
                         const wire::RequestHeader& header) {
  if (device.vendor() != Vendor::kNvidia && header.bar == 5) {
    const model::RegisterState* state = device.registers().Find(header.arg0);
    if (state && state->named()) return std::string(state->name());
  }
  const std::string name = link.RegisterName(header, true);
  return name == model::TargetText(header) ? std::string() : name;
}

std::string TransitionText(const model::LinkWatch::OnesRegister& r, const std::string& name) {
  std::string text = name.empty() ? model::TargetText(r.first.header) : name;
  // Field report B03: what the all-ones value makes of the architecture field.
  if (name == "NV_PMC_BOOT_42")
    text += " = 0xffffffff -> architecture 0x3f (63) is not a chip, it is an all-ones read;";
  if (r.good) {
    text += fmt::format(" last good at record {} ({}), all ones from record {} on", r.good->seq,
                        model::HexPadded(r.good->value, static_cast<int>(r.first.header.arg1) * 2),
                        r.first.seq);
    if (r.writes_between == 0) {
      text += "; no write in between";
    } else if (!r.writes.empty()) {
      const model::WriteSeen& w = r.writes.back();
      text += r.writes_between == 1
                  ? "; only write in between: "
                  : fmt::format("; {} writes in between, the last: ", Thousands(r.writes_between));
      text += model::TargetText(w.header);
    }
    // A jump, not noise: at least ten times and a millisecond.
    if (r.first.latency_ns >= 10 * r.good->latency_ns && r.first.latency_ns >= 1'000'000) {
      text += fmt::format("; reply time rose from {} to {}", Duration(r.good->latency_ns),
                          Duration(r.first.latency_ns));
    }
  } else {
    text += fmt::format(" never read as anything else (first at record {})", r.first.seq);
  }
  if (r.good_again) text += fmt::format("; good again at record {}", r.good_again);
  return text;
}

Json WriteJson(const model::WriteSeen& w) {
  Json out;
  out["seq"] = w.last_seq;
  out["bar"] = w.header.bar;
  out["offset"] = w.header.arg0;
  out["size"] = w.header.arg1;
  out["value"] = w.value_bytes > 0 ? Json(w.value) : Json(nullptr);
  return out;
}

std::string_view LinkKind(const model::LinkWatch& link) {
  switch (link.state()) {
    case model::LinkState::kDeviceGone:
      return "device_gone";
    case model::LinkState::kMemoryOff:
      return "memory_off";
    case model::LinkState::kAllOnes:
      return link.config_answers() ? "bar_or_link" : "config_unknown";
    case model::LinkState::kAnswering:
    case model::LinkState::kUnknown:
      break;
  }
  return "ok";
}

Json LinkJson(const model::Device& device, const model::LinkWatch& link) {
  Json out;
  const std::string_view kind = LinkKind(link);
  out["verdict"] = kind;
  if (kind != "ok") {
    out["text"] = link.Conclusion();
  } else if (link.ones_reads() == 0) {
    out["text"] = "no register read as all ones";
  } else {
    out["text"] =
        link.last_good_read() == 0
            ? std::string("no register was read as anything else")
            : fmt::format("registers answer, the newest at record {}", link.last_good_read());
  }
  out["all_ones_reads"] = link.ones_reads();
  out["transitions"] = Json::array();
  for (const model::LinkWatch::OnesRegister& r : link.ones()) {
    const std::string name = RegisterName(device, link, r.first.header);
    Json j;
    j["bar"] = r.first.header.bar;
    j["address"] = r.first.header.arg0;
    j["register"] = TextOrNull(name);
    j["count"] = r.count;
    j["text"] = TransitionText(r, name);
    if (r.good) {
      j["last_good"]["seq"] = r.good->seq;
      j["last_good"]["t_ns"] = r.good->time_ns;
      j["last_good"]["value"] = r.good->value;
    } else {
      j["last_good"] = nullptr;
    }
    j["first_bad"]["seq"] = r.first.seq;
    j["first_bad"]["t_ns"] = r.first.time_ns;
    j["good_again"] = r.good_again ? Json(r.good_again) : Json(nullptr);
    j["good_latency_ns"] = r.good ? Json(r.good->latency_ns) : Json(nullptr);
    j["bad_latency_ns"] = r.first.latency_ns;
    j["writes_between"] = Json::array();
    for (const model::WriteSeen& w : r.writes) j["writes_between"].push_back(WriteJson(w));
    j["writes_between_total"] = r.good ? Json(r.writes_between) : Json(nullptr);
    out["transitions"].push_back(std::move(j));
  }
  return out;
}

}  // namespace

Json BarsSectionJson(const model::Device& device, const model::LinkWatch& link) {
  const model::Bars& bars = device.bars();
  Json out;
  out["vendor"] = TextOrNull(VendorName(device.vendor()));
  out["vendor_id"] = OrNull(bars.vendor_id());
  out["device_id"] = OrNull(bars.device_id());
  if (const auto command = bars.command()) {
    out["command"]["value"] = *command;
    out["command"]["memory"] = (*command & 2) != 0;
    out["command"]["bus_master"] = (*command & 4) != 0;
    out["command"]["text"] = CommandText(*command);
  } else {
    out["command"] = nullptr;
  }
  out["bus_master"] = Json::array();
  for (const model::BusMasterToggle& toggle : bars.bus_master()) {
    Json j;
    j["seq"] = toggle.at.call;
    j["t_ns"] = toggle.at.time_ns;
    j["on"] = toggle.on;
    out["bus_master"].push_back(std::move(j));
  }
  out["bars"] = Json::array();
  for (const model::Bar& bar : bars.all()) {
    Json j;
    j["index"] = bar.index;
    j["size"] = bar.mapped ? Json(bar.size) : Json(nullptr);
    j["address"] = bar.mapped ? Json(bar.address) : Json(nullptr);
    j["address_kind"] = bar.mapped ? Json(model::AddressKindName(bar.kind)) : Json(nullptr);
    j["use"] = TextOrNull(BarUse(device.vendor(), bar.index));
    j["seq"] = SeqOrNull(bar.mapped);
    j["refused"] = TextOrNull(bar.refused);
    j["reads"] = bar.reads;
    j["writes"] = bar.writes;
    j["bytes_read"] = bar.bytes_read;
    j["bytes_written"] = bar.bytes_written;
    j["highest"] = bar.highest;
    out["bars"].push_back(std::move(j));
  }
  out["vram_size"] = OrNull(device.vram_size());
  out["large_bar"] = OrNull(device.large_bar());
  const model::Sysmem::Lag& lag = device.sysmem().lag();
  out["capture"] = nullptr;
  if (lag.copies > 0) {
    out["capture"] = {{"copies", lag.copies}, {"most_calls_late", lag.most_calls}};
    out["capture"]["seq"] = lag.most_calls > 0 ? Json(lag.call) : Json(nullptr);
  }
  out["resizes"] = Json::array();
  for (const model::Bars::Resize& resize : bars.resizes()) {
    Json j;
    j["seq"] = resize.at.call;
    j["bar"] = resize.bar;
    j["ok"] = resize.ok;
    j["text"] = TextOrNull(resize.text);
    out["resizes"].push_back(std::move(j));
  }
  out["resets"] = Json::array();
  for (const model::Bars::ResetCall& reset : bars.resets()) {
    Json j;
    j["seq"] = reset.at.call;
    j["ok"] = reset.ok;
    j["text"] = TextOrNull(reset.text);
    out["resets"].push_back(std::move(j));
  }
  out["link"] = LinkJson(device, link);
  return out;
}

void BarsSectionText(const Json& bars, Output& out) {
  out.Heading("PCI and BARs");
  std::string device = SectionText(bars["vendor"]);
  if (!bars["vendor_id"].is_null() && !bars["device_id"].is_null()) {
    device += fmt::format(" {:04x}:{:04x}", bars["vendor_id"].get<uint32_t>(),
                          bars["device_id"].get<uint32_t>());
  } else {
    device += " (configuration space: identity not read)";
  }
  SectionRow(out, "device", device);
  SectionRow(out, "command",
             bars["command"].is_null() ? "not observed" : SectionText(bars["command"]["text"]));
  for (const Json& bar : bars["bars"]) {
    std::string text;
    if (bar["size"].is_null()) {
      text = bar["refused"].is_null() ? "not mapped in this trace"
                                      : fmt::format("refused, {}", SectionText(bar["refused"]));
    } else {
      text =
          fmt::format("{:>10}  {} {} ({})", Bytes(bar["size"].get<uint64_t>()), SeqText(bar["seq"]),
                      Hex(bar["address"].get<uint64_t>()), SectionText(bar["address_kind"]));
    }
    if (!bar["use"].is_null()) text += ", " + SectionText(bar["use"]);
    text += fmt::format("; {} reads ({}), {} writes ({})", Thousands(bar["reads"]),
                        Bytes(bar["bytes_read"]), Thousands(bar["writes"]),
                        Bytes(bar["bytes_written"]));
    SectionRow(out, fmt::format("BAR {}", bar["index"].get<uint32_t>()), text);
  }
  if (!bars["vram_size"].is_null()) {
    std::string text = Bytes(bars["vram_size"].get<uint64_t>());
    if (!bars["large_bar"].is_null()) {
      text += bars["large_bar"].get<bool>() ? ", all of it in BAR 0 (large BAR)"
                                            : ", more than BAR 0 shows (small BAR)";
    }
    SectionRow(out, "VRAM", text);
  }
  if (const Json& capture = bars["capture"]; !capture.is_null()) {
    std::string text = fmt::format("{} copies of shared memory by the proxy, ",
                                   Thousands(capture["copies"].get<uint64_t>()));
    const uint64_t late = capture["most_calls_late"].get<uint64_t>();
    text += late == 0 ? std::string("each before the next call")
                      : fmt::format("at most {} after the one that it had come to ({})",
                                    model::Count(late, "call"), SeqText(capture["seq"]));
    SectionRow(out, "capture", text);
  }
  for (const Json& resize : bars["resizes"]) {
    std::string text =
        fmt::format("{} BAR {}: ", SeqText(resize["seq"]), resize["bar"].get<uint32_t>());
    text += resize["ok"].get<bool>() ? "accepted" : "refused, " + SectionText(resize["text"]);
    SectionRow(out, "RESIZE_BAR", text);
  }
  for (const Json& reset : bars["resets"]) {
    SectionRow(out, "RESET",
               SeqText(reset["seq"]) +
                   (reset["ok"].get<bool>() ? " done" : " refused, " + SectionText(reset["text"])));
  }
  for (const Json& toggle : bars["bus_master"]) {
    SectionRow(out, "bus master",
               fmt::format("{} t={} s  {}", SeqText(toggle["seq"]), Seconds(toggle["t_ns"]),
                           toggle["on"].get<bool>() ? "on" : "off"));
  }
  const Json& link = bars["link"];
  if (link["all_ones_reads"].get<uint64_t>() == 0) return;
  const bool bad = link["verdict"] != "ok";
  SectionRow(out, "link", out.Paint(bad ? Style::kBad : Style::kWarn, SectionText(link["text"])));
  SectionRow(
      out, "",
      model::Count(link["all_ones_reads"].get<uint64_t>(), "register read") + " gave all ones");
  size_t shown = 0;
  for (const Json& t : link["transitions"]) {
    if (++shown > 8) {
      SectionRow(out, "", fmt::format("and {} more registers", link["transitions"].size() - 8));
      break;
    }
    SectionRow(out, "", SectionText(t["text"]));
  }
}

}  // namespace tg::report
