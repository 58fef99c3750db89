#include "replay/script/history.h"

#include <fmt/format.h>

#include <utility>

namespace tg::replay {

void History::Add(uint64_t number, std::string text) {
  if (!entries_.empty() && entries_.back().text == text) {
    Entry& entry = entries_.back();
    entry.count++;
    if (number != 0) entry.last = number;
    return;
  }
  entries_.push_back({number, number, 1, std::move(text)});
  if (entries_.size() > limit_) entries_.pop_front();
}

std::vector<std::string> History::Lines() const {
  std::vector<std::string> lines;
  for (const Entry& entry : entries_) {
    std::string line;
    if (entry.first != 0) line = fmt::format("#{}", entry.first);
    if (entry.first != entry.last) line += fmt::format("..{}", entry.last);
    if (!line.empty()) line += " ";
    line += entry.text;
    if (entry.count > 1) line += fmt::format("  ({} times)", entry.count);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace tg::replay
