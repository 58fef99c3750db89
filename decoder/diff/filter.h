// --only and --ignore: which events are compared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/diff/event.h"

namespace tg::diff {

// A pattern is a glob over an event's text (register names with or without the kernel's `reg` or
// `mm` prefix, "SDMA0 COPY_*" for packets), a phase ("psp"), "bar5", a command ("CFG_WRITE") or a
// kind of event ("doorbell").
struct Filter {
  std::vector<std::string> only;
  std::vector<std::string> ignore;
  bool empty() const { return only.empty() && ignore.empty(); }
};

// One trace's use of a filter: also counts what each pattern hit, since one that hits nothing is
// most likely misspelt.
class FilterUse {
 public:
  explicit FilterUse(Filter filter = {});
  bool empty() const { return filter_.empty(); }
  bool Takes(const Event& event);
  bool TakesPacket(const Event& doorbell, const PacketSeen& packet);
  // Patterns that hit nothing so far.
  std::vector<std::string> Unused() const;

 private:
  bool Takes(const Event& event, const std::string& what, std::string_view kind);

  const Filter filter_;
  std::vector<uint64_t> only_hits_, ignore_hits_;
};

}  // namespace tg::diff
