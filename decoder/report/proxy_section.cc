#include "decoder/report/proxy_section.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "decoder/model/words.h"
#include "decoder/report/section_json.h"

namespace tg::report {
namespace {

using model::Intervention;

constexpr size_t kShown = 40;

// A header that was not recorded has command 255.
std::string What(const wire::RequestHeader& header) {
  return header.command == UINT8_MAX ? "a request" : model::CallText(header);
}

}  // namespace

Json ProxyJson(const model::Interventions& interventions) {
  Json out;
  out["guarded"] = interventions.total(Intervention::Kind::kGuard);
  out["injected"] = interventions.total(Intervention::Kind::kInject);
  out["autopsy"] = interventions.total(Intervention::Kind::kAutopsy);
  out["entries"] = Json::array();
  for (const Intervention& entry : interventions.all()) {
    Json j;
    j["kind"] = model::InterventionName(entry.kind);
    j["first_seq"] = entry.first_seq;
    j["last_seq"] = entry.last_seq;
    j["t_ns"] = entry.first_ns;
    j["count"] = entry.count;
    j["command"] = wire::CommandName(entry.header.command);
    j["target"] = What(entry.header);
    j["text"] = entry.text;
    j["detail"] = entry.detail.empty() ? Json(nullptr) : Json(entry.detail);
    j["answered"] =
        entry.kind == Intervention::Kind::kAutopsy ? Json(entry.answered) : Json(nullptr);
    out["entries"].push_back(std::move(j));
  }
  return out;
}

void ProxyText(const Json& proxy, Output& out) {
  const Json& entries = proxy["entries"];
  if (entries.empty()) return;
  out.Heading("Made by the proxy, not by the device");
  size_t shown = 0;
  for (const Json& e : entries) {
    if (shown++ == kShown) break;
    const uint64_t count = e["count"].get<uint64_t>();
    std::string line = fmt::format("  record {:<8} {:<8} {}", e["first_seq"].get<uint64_t>(),
                                   e["kind"].get<std::string>(), SectionText(e["target"]));
    if (count > 1)
      line += fmt::format(", {} times up to record {}", model::Thousands(count),
                          e["last_seq"].get<uint64_t>());
    std::string text = SectionText(e["text"]);
    if (text.starts_with("autopsy: ")) text.erase(0, 9);
    line += ": " + text;
    if (!e["detail"].is_null()) line += "; " + SectionText(e["detail"]);
    if (!e["answered"].is_null() && e["answered"].get<uint64_t>() == 0) line += "; not answered";
    out.Line(line);
  }
  if (entries.size() > kShown)
    out.Line(fmt::format("  and {} more; see --format json", entries.size() - kShown));
}

}  // namespace tg::report
