#include "decoder/report/discovery_section.h"

#include "decoder/report/section_json.h"
#include "schemas/amd/registers.h"

namespace tg::report {
namespace {

// Blocks shown in the short form: those whose registers the AM driver touches.
bool Matters(uint16_t hw_id) {
  switch (hw_id) {
    case amd::kHwGc:
    case amd::kHwSdma0:
    case amd::kHwMmhub:
    case amd::kHwNbif:
    case amd::kHwMp0:
    case amd::kHwMp1:
    case amd::kHwHdp:
    case amd::kHwOsssys:
      return true;
    default:
      return false;
  }
}

// The register table that names a block's registers.
Json TableOf(const model::Device& device, uint16_t hw_id, amd::IpVersion version) {
  const amd::data::Module* module = nullptr;
  switch (hw_id) {
    case amd::kHwGc:
      module = amd::ChooseModule("gc", version);
      break;
    case amd::kHwSdma0:
      module = version.major == 4 ? amd::ChooseModule("sdma", version)
                                  : amd::ChooseModule("gc", device.gc());
      break;
    case amd::kHwMmhub:
      module = amd::ChooseModule("mmhub", version);
      break;
    case amd::kHwNbif:
      module = amd::ChooseModule(device.gc().major < 12 ? "nbio" : "nbif", version);
      break;
    case amd::kHwMp0:
      module = amd::ChooseModule("mp", version);
      break;
    case amd::kHwMp1:
      module = amd::ChooseModule("mp", {11, 0, 0});
      break;
    case amd::kHwHdp:
      module = amd::ChooseModule("hdp", version);
      break;
    case amd::kHwOsssys:
      module = amd::ChooseModule("osssys", version);
      break;
    default:
      break;
  }
  if (!module) return nullptr;
  return std::string(module->prefix) + " " + amd::ToString(module->version);
}

}  // namespace

Json DeviceJson(const model::Device& device) {
  const amd::Discovery* discovery = device.discovery();
  if (!discovery) return nullptr;
  const auto gc = discovery->Version(amd::kHwGc);
  Json out;
  out["asic"] = gc ? TextOrNull(amd::AsicName(*gc)) : Json(nullptr);
  out["gfx"] = gc ? Json(amd::GfxArch(*gc)) : Json(nullptr);
  const auto props = discovery->Props();
  if (props) {
    for (const auto& [name, value] : props->Items()) out["props"][name] = value;
    out["accepted"] = props->accepted;
  } else {
    out["props"] = nullptr;
    out["accepted"] = nullptr;
  }
  return out;
}

Json IpsJson(const model::Device& device) {
  Json out = Json::array();
  const amd::Discovery* discovery = device.discovery();
  if (!discovery) return out;
  for (const amd::IpBlock& ip : discovery->ips) {
    Json j;
    j["name"] = amd::HwIdName(ip.hw_id);
    j["hw_id"] = ip.hw_id;
    j["version"] = amd::ToString(ip.version);
    j["instance"] = ip.instance;
    j["die"] = ip.die;
    j["harvested"] = ip.harvested;
    j["bases"] = ip.bases;
    j["registers"] = TableOf(device, ip.hw_id, ip.version);
    out.push_back(std::move(j));
  }
  return out;
}

Json DiscoverySectionJson(const model::Device& device) {
  Json out;
  const amd::Discovery* discovery = device.discovery();
  constexpr const char* kSources[] = {nullptr, "one read of VRAM", "VRAM window"};
  const char* source = kSources[static_cast<int>(device.discovery_source())];
  out["source"] = source ? Json(source) : Json(nullptr);
  out["seq"] = SeqOrNull(device.discovery_at());
  out["t_ns"] = TimeOrNull(device.discovery_at());
  // Other cards have neither the table nor these registers.
  const bool other = !discovery && (device.vendor() == model::Vendor::kNvidia ||
                                    device.vendor() == model::Vendor::kOther);
  const bool assumed = !other && device.registers().map().assumed();
  out["assumed"] = assumed;
  out["assumed_gc"] = assumed ? Json(amd::ToString(device.gc())) : Json(nullptr);
  out["device"] = DeviceJson(device);
  out["ips"] = IpsJson(device);
  if (!discovery) return out;
  out["checksum_ok"] = discovery->checksum_ok;
  out["version"] = fmt::format("{}.{}", discovery->version_major, discovery->version_minor);
  out["ip_table_version"] = discovery->ip_table_version;
  out["dies"] = discovery->dies;
  out["harvested"] = Json::array();
  for (const amd::HarvestedIp& h : discovery->harvested) {
    Json j;
    j["name"] = amd::HwIdName(h.hw_id);
    j["instance"] = h.instance;
    out["harvested"].push_back(std::move(j));
  }
  if (discovery->gc) {
    const amd::GcInfo& gc = *discovery->gc;
    Json& j = out["gc_info"];
    j["version"] = fmt::format("{}.{}", gc.version_major, gc.version_minor);
    j["num_se"] = gc.num_se;
    if (gc.version_major == 1) {
      j["num_wgp0_per_sa"] = gc.num_wgp0_per_sa;
      j["num_wgp1_per_sa"] = gc.num_wgp1_per_sa;
      j["num_sa_per_se"] = gc.num_sa_per_se;
    } else {
      j["num_cu_per_sh"] = gc.num_cu_per_sh;
      j["num_sh_per_se"] = gc.num_sh_per_se;
    }
    j["num_rb_per_se"] = gc.num_rb_per_se;
    j["wave_size"] = gc.wave_size;
    j["max_waves_per_simd"] = gc.max_waves_per_simd;
    j["max_scratch_slots_per_cu"] = gc.max_scratch_slots_per_cu;
    j["lds_size"] = gc.lds_size;
  } else {
    out["gc_info"] = nullptr;
  }
  out["problems"] = discovery->problems;
  return out;
}

void DiscoverySectionText(const Json& d, Output& out, bool full) {
  out.Heading("Card");
  if (d["source"].is_null()) {
    if (!d["assumed"].get<bool>()) {
      SectionRow(out, "discovery", "not an AMD card: it has no such table");
      SectionRow(out, "names", "none");
      return;
    }
    SectionRow(out, "discovery", "table not observed");
    SectionRow(out, "names",
               fmt::format("assumed gfx11/12 bases, register tables of gc {}",
                           SectionText(d["assumed_gc"])));
    return;
  }
  const Json& device = d["device"];
  SectionRow(out, "asic",
             fmt::format("{}, {}",
                         device["asic"].is_null() ? std::string("unknown asic")
                                                  : SectionText(device["asic"]),
                         SectionText(device["gfx"])));
  SectionRow(
      out, "discovery",
      fmt::format("{} t={} s, by {}, version {}, {}", SeqText(d["seq"]), model::Seconds(d["t_ns"]),
                  SectionText(d["source"]), SectionText(d["version"]),
                  d["checksum_ok"].get<bool>() ? "checksum good" : "checksum does not match"));
  if (d["assumed"].get<bool>()) {
    SectionRow(out, "names", "bases of blocks behind the kept part of the table are assumed");
  }
  if (device["props"].is_null()) {
    SectionRow(out, "properties", "not observed (gc_info missing)");
  } else {
    const Json& p = device["props"];
    SectionRow(
        out, "properties",
        fmt::format("{} XCC, {} shader engines, {} CUs, {} waves per SIMD, {} KiB LDS, gfx "
                    "target {}",
                    p["num_xcc"].get<uint32_t>(), p["se_cnt"].get<uint32_t>(),
                    p["cu_cnt"].get<uint32_t>(), p["max_waves_per_simd"].get<uint32_t>(),
                    p["lds_size_in_kb"].get<uint32_t>(), p["gfx_target_version"].get<uint32_t>()));
    if (full) {
      for (const auto& [name, value] : p.items()) {
        SectionRow(out, "", fmt::format("{:<24} {}", name, value.get<uint32_t>()));
      }
    }
  }
  if (!d["harvested"].empty()) {
    std::string text;
    for (const Json& h : d["harvested"]) {
      if (!text.empty()) text += ", ";
      text += fmt::format("{}[{}]", SectionText(h["name"]), h["instance"].get<uint32_t>());
    }
    SectionRow(out, "harvested", text);
  }
  // One line per block and version; instances together.
  std::string last_name;
  for (const Json& ip : d["ips"]) {
    const auto hw_id = ip["hw_id"].get<uint16_t>();
    if (!full && !Matters(hw_id)) continue;
    if (!full && ip["instance"].get<uint32_t>() != 0) continue;
    std::string bases;
    // Their place counts; zeros at the end are no bases.
    size_t count = ip["bases"].size();
    while (count > 1 && ip["bases"][count - 1] == 0) --count;
    for (size_t i = 0; i < count; ++i) bases += " " + model::Hex(ip["bases"][i].get<uint64_t>());
    std::string name = SectionText(ip["name"]);
    if (full) name += fmt::format("[{}]", ip["instance"].get<uint32_t>());
    std::string text = fmt::format("{:<8}", SectionText(ip["version"]));
    text += fmt::format("  {:<21}", ip["registers"].is_null()
                                        ? "no register names"
                                        : "names of " + SectionText(ip["registers"]));
    if (ip["harvested"].get<bool>()) text += "  harvested";
    text += "  bases" + bases;
    SectionRow(out, name, text);
  }
  for (const Json& problem : d["problems"]) {
    SectionRow(out, "problem", out.Paint(Style::kWarn, SectionText(problem)));
  }
}

}  // namespace tg::report
