// The first pass over a trace: what the comparison must know before it begins, and what the summary
// says afterwards. Kept small: the models of the whole trace are gone when it is made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "decoder/model/session.h"
#include "schemas/amd/ip.h"
#include "schemas/result.h"
#include "schemas/trace/reader.h"

namespace tg::diff {

struct FinalRegister {
  std::string name;  // with instance and die
  uint32_t value = 0;
};

struct Survey {
  uint64_t calls = 0;
  std::string asic;  // "gfx1100 (gc 11.0.0)"; empty: not observed
  model::Transport transport = model::Transport::kUnknown;
  std::string problem;              // why the trace does not reach its end; empty: it does
  uint64_t lost = 0;                // calls and packets that could not be recorded
  std::string verdict;              // kind and summary
  std::vector<std::string> queues;  // one line each
  std::vector<FinalRegister> registers;
  uint64_t reply_ns = 0;  // median reply time of MMIO_READ; 0: none
  // Submissions that were never finished, by the call number of their doorbell.
  std::unordered_map<uint64_t, std::string> unfinished;
};

// `progress` is called now and then with the share of the file that was read, 0..1.
Result<Survey> SurveyTrace(const std::string& path, const std::function<void(double)>& progress);

}  // namespace tg::diff
