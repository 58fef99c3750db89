#include "decoder/report/bars_section.h"

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

// Field report B03: what the all-ones value makes of the architecture field.
std::string BootRegisterNote(const model::AllOnes& t) {
  if (t.name == "NV_PMC_BOOT_42") {
    return "NV_PMC_BOOT_42 = 0xffffffff -> architecture 0x3f (63) is not a chip, it is an all-ones "
           "read";
  }
  return "";
}

std::string TransitionText(const model::AllOnes& t) {
  std::string name = t.name.empty() ? fmt::format("bar{}+{}", t.bar, Hex(t.address)) : t.name;
  if (const std::string note = BootRegisterNote(t); !note.empty()) name = note + ";";
  std::string text = name;
  if (t.last_good) {
    text += fmt::format(" last good at record {} ({}), all ones from record {} on",
                        t.last_good.call, model::HexPadded(t.last_good_value, 8), t.first_bad.call);
    if (t.writes_between.size() == 1) {
      const model::PostedWrite& w = t.writes_between[0];
      text += fmt::format("; only write in between: bar{}+{}", w.bar, Hex(w.offset));
    } else if (!t.writes_between.empty()) {
      const model::PostedWrite& w = t.writes_between.back();
      text += fmt::format("; {} writes in between, the last: bar{}+{}", t.writes_between.size(),
                          w.bar, Hex(w.offset));
    } else {
      text += "; no write in between";
    }
    // A jump, not noise: at least ten times and a millisecond.
    if (t.bad_latency_ns >= 10 * t.good_latency_ns && t.bad_latency_ns >= 1'000'000) {
      text += fmt::format("; reply time rose from {} to {}", Duration(t.good_latency_ns),
                          Duration(t.bad_latency_ns));
    }
  } else {
    text += fmt::format(" never read as anything else (first at record {})", t.first_bad.call);
  }
  if (t.good_again) text += fmt::format("; good again at record {}", t.good_again->call);
  return text;
}

Json WriteJson(const model::PostedWrite& w) {
  Json out;
  out["seq"] = w.at.call;
  out["bar"] = w.bar;
  out["offset"] = w.offset;
  out["size"] = w.size;
  out["value"] = w.value;
  return out;
}

Json LinkJson(const model::Device& device) {
  constexpr const char* kKinds[] = {"ok", "device_gone", "memory_off", "bar_or_link",
                                    "config_unknown"};
  const model::Link& link = device.link();
  Json out;
  out["verdict"] = kKinds[static_cast<int>(link.verdict())];
  std::string text(model::LinkVerdictText(link.verdict()));
  if (link.verdict() == model::LinkVerdict::kBarOrLink && device.bars().vendor_id() &&
      device.bars().device_id()) {
    text = fmt::format(
        "PCI config still answers (0x{:04x}:0x{:04x}): BAR decode or link problem, "
        "not a lost device",
        *device.bars().vendor_id(), *device.bars().device_id());
  }
  if (link.verdict() == model::LinkVerdict::kMemoryOff) {
    text = fmt::format("command register {}: all ones expected",
                       CommandText(*device.bars().command()));
  }
  out["text"] = text;
  out["all_ones_reads"] = link.all_ones_reads();
  out["transitions"] = Json::array();
  for (const model::AllOnes& t : link.transitions()) {
    Json j;
    j["bar"] = t.bar;
    j["address"] = t.address;
    j["register"] = TextOrNull(t.name);
    j["count"] = t.count;
    j["text"] = TransitionText(t);
    if (t.last_good) {
      j["last_good"]["seq"] = t.last_good.call;
      j["last_good"]["t_ns"] = t.last_good.time_ns;
      j["last_good"]["value"] = t.last_good_value;
    } else {
      j["last_good"] = nullptr;
    }
    j["first_bad"]["seq"] = t.first_bad.call;
    j["first_bad"]["t_ns"] = t.first_bad.time_ns;
    j["good_latency_ns"] = t.last_good ? Json(t.good_latency_ns) : Json(nullptr);
    j["bad_latency_ns"] = t.bad_latency_ns;
    j["writes_between"] = Json::array();
    for (const model::PostedWrite& w : t.writes_between) {
      j["writes_between"].push_back(WriteJson(w));
    }
    out["transitions"].push_back(std::move(j));
  }
  return out;
}

}  // namespace

Json BarsSectionJson(const model::Device& device) {
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
  out["link"] = LinkJson(device);
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
  SectionRow(out, "",
             fmt::format("{} register reads gave all ones",
                         Thousands(link["all_ones_reads"].get<uint64_t>())));
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
