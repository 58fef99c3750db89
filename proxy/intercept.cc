#include "proxy/intercept.h"

#include <fmt/format.h>

#include <utility>

namespace tg::proxy {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

}  // namespace

void InterceptLog::Add(LogLevel level, const std::string& by, std::string_view command,
                       const std::string& line) {
  std::string key = by + " " + std::string(command);
  if (kinds_.size() >= kMaxKinds && !kinds_.contains(key)) key = "others";
  Kind& kind = kinds_[key];
  if (kind.what.empty()) kind.what = std::move(key);
  if (kind.count++ < kShown) {
    kind.told++;
    log_(level, line);
  }
}

void InterceptLog::Tick(uint64_t now, bool all) {
  if (!all && now < next_ns_) return;
  next_ns_ = now + kSecond;
  for (auto& [key, kind] : kinds_) {
    if (kind.count == kind.told) continue;
    log_(LogLevel::kWarn, fmt::format("{}: {} more, {} in all", Printable(kind.what, 300),
                                      kind.count - kind.told, kind.count));
    kind.told = kind.count;
  }
}

Intercept::Intercept(std::shared_ptr<const RuleSet> rules, Policy::Link link,
                     const std::optional<AutopsyOptions>& autopsy_options, const LogFn& log)
    : lines(log) {
  if (rules) policy = std::make_unique<Policy>(std::move(rules), link);
  if (autopsy_options) autopsy = std::make_unique<Autopsy>(*autopsy_options);
}

}  // namespace tg::proxy
