// `rpcdecode diff good.pb hung.pb`: the first real difference with its context, then a summary.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "decoder/diff/align.h"
#include "decoder/diff/events.h"
#include "schemas/result.h"

namespace tg::diff {

struct DiffOptions {
  bool strict = false;
  Filter filter;
  // Called now and then with the share of both files that was read, 0..1.
  std::function<void(double)> progress;
};

struct EndOfTrace {
  std::string path;
  uint64_t events = 0;
  uint64_t calls = 0;
  std::string asic;                 // "gfx1100", or empty: not observed
  std::string transport;            // "unix", "tcp", or empty
  std::string problem;              // why the trace does not reach its end; empty: it does
  std::string verdict;              // kind and summary
  std::vector<std::string> queues;  // one line each
};

struct DiffResult {
  EndOfTrace a, b;
  std::vector<Difference> differences;  // the first kKept
  static constexpr size_t kKept = 200;
  uint64_t total = 0;
  // "B ends early after event n": what one side lacks because its trace stops is no difference.
  std::vector<std::string> notes;
  std::map<std::string, uint64_t> by_phase;  // events concerned
  std::map<std::string, uint64_t> by_what;
  struct FinalValue {
    std::string name;
    std::string a, b;  // "0x1", or "not observed"
  };
  std::vector<FinalValue> registers;  // whose last value differs, by name; at most 200
  bool equal() const { return total == 0; }
};

Result<DiffResult> Diff(const std::string& path_a, const std::string& path_b,
                        const DiffOptions& options);

struct TextOptions {
  bool side_by_side = false;
  bool color = false;
  size_t width = 100;
};
std::string DiffText(const DiffResult& result, const TextOptions& options);
std::string DiffJson(const DiffResult& result);

}  // namespace tg::diff
