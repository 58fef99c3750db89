#include "decoder/diff/filter.h"

#include <fnmatch.h>

#include <utility>

namespace tg::diff {
namespace {

std::string_view Bare(std::string_view name) {
  for (const std::string_view prefix : {"reg", "mm"})
    if (name.substr(0, prefix.size()) == prefix) return name.substr(prefix.size());
  return name;
}

}  // namespace

FilterUse::FilterUse(Filter filter)
    : filter_(std::move(filter)),
      only_hits_(filter_.only.size()),
      ignore_hits_(filter_.ignore.size()) {}

bool FilterUse::Takes(const Event& event, const std::string& what, std::string_view kind) {
  const std::string bare(Bare(what));
  const std::string bar = event.bar >= 0 ? "bar" + std::to_string(event.bar) : "";
  const std::string command = event.Command();
  const std::string_view phase = model::PhaseName(event.phase);
  const auto hits = [&](const std::string& glob) {
    return fnmatch(glob.c_str(), what.c_str(), 0) == 0 ||
           fnmatch(glob.c_str(), bare.c_str(), 0) == 0 || glob == bar || glob == phase ||
           glob == kind || (!command.empty() && glob == command);
  };
  bool ignored = false, taken = filter_.only.empty();
  for (size_t i = 0; i < filter_.ignore.size(); i++) {
    if (!hits(filter_.ignore[i])) continue;
    ignore_hits_[i]++;
    ignored = true;
  }
  for (size_t i = 0; i < filter_.only.size(); i++) {
    if (!hits(filter_.only[i])) continue;
    only_hits_[i]++;
    taken = true;
  }
  return taken && !ignored;
}

bool FilterUse::Takes(const Event& event) {
  if (empty() || event.kind == Event::Kind::kGap) return true;
  return Takes(event, event.What(), EventKindName(event.kind));
}

bool FilterUse::TakesPacket(const Event& doorbell, const PacketSeen& packet) {
  if (empty()) return true;
  return Takes(doorbell, doorbell.queue + " " + packet.Op(), "packet");
}

std::vector<std::string> FilterUse::Unused() const {
  std::vector<std::string> unused;
  for (size_t i = 0; i < only_hits_.size(); i++)
    if (only_hits_[i] == 0) unused.push_back(filter_.only[i]);
  for (size_t i = 0; i < ignore_hits_.size(); i++)
    if (ignore_hits_[i] == 0) unused.push_back(filter_.ignore[i]);
  return unused;
}

}  // namespace tg::diff
