// The longest waits of a session: runs of equal calls, most calls first kept.
#pragma once

#include <string>
#include <vector>

#include "decoder/model/calls.h"
#include "decoder/model/device.h"

namespace tg::report {

inline constexpr size_t kMaxPolls = 10;
inline constexpr uint64_t kLeastPollCalls = 100;

class PollTable : private model::CallSink {
 public:
  PollTable();
  PollTable(const PollTable&) = delete;
  PollTable& operator=(const PollTable&) = delete;
  void Add(const trace::Record& record) { assembler_.Add(record); }
  void Finish();
  // In order of sequence numbers.
  const std::vector<model::CallRun>& runs() const { return runs_; }
  uint64_t total() const { return total_; }  // runs of kLeastPollCalls and more

 private:
  void OnCall(model::Call&&) override {}
  void OnRun(model::CallRun&& run) override;

  std::vector<model::CallRun> runs_;
  uint64_t total_ = 0;
  model::CallFolder folder_;
  model::CallAssembler assembler_;
};

// "BAR0+0x110118 read 5,213 times, value constant 0x00000001, 2.0 s", or for a round of several
// calls "5 calls (...) in a round, 1,234 rounds, 28 s".
std::string PollText(const model::CallRun& run);
// "regIH_RB_WPTR, regIH_RB_RPTR": the registers of the round, each once; empty: none has a name.
std::string PollNames(const model::CallRun& run, const model::Device& device);

}  // namespace tg::report
