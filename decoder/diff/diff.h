// `rpcdecode diff good.pb hung.pb`: the first real difference with its context, then a summary.
//
// Two passes over each file: survey.h, then events.h and align.h side by side. Memory: one device
// model per trace, and what was kept of the differences.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "decoder/diff/align.h"
#include "decoder/diff/filter.h"
#include "schemas/result.h"

namespace tg::diff {

struct DiffOptions {
  bool strict = false;
  Filter filter;
  // Called now and then with the share of all work that is done, 0..1.
  std::function<void(double)> progress;
};

struct EndOfTrace {
  std::string path;
  uint64_t events = 0;
  uint64_t calls = 0;
  std::string asic;                 // "gc 11.0.0", or empty: not observed
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
  // Chips, transports, losses, ends: what limits the comparison.
  std::vector<std::string> notes;
  // One of the traces stops early, and up to there the two are equal.
  bool cut = false;
  std::map<std::string, uint64_t> by_phase;  // events concerned
  std::map<std::string, uint64_t> by_what;
  struct FinalValue {
    std::string name;
    std::string a, b;  // "0x1", or "not observed"
  };
  std::vector<FinalValue> registers;  // whose last value differs, by name; at most 200
  bool equal() const { return total == 0; }
  // 0: no difference; 1: a difference; 4: none as far as the shorter trace goes.
  int exit_code() const { return total > 0 ? 1 : cut ? 4 : 0; }
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
