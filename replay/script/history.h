// The last few events of a replay as lines of text; equal neighbours are folded.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace tg::replay {

class History {
 public:
  explicit History(size_t limit = 20) : limit_(limit) {}

  // `text` without the number; number 0 for what is no recorded call.
  void Add(uint64_t number, std::string text);
  std::vector<std::string> Lines() const;

 private:
  struct Entry {
    uint64_t first;
    uint64_t last;
    uint64_t count;
    std::string text;
  };
  size_t limit_;
  std::deque<Entry> entries_;
};

}  // namespace tg::replay
