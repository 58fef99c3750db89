// The longest waits of a session: runs of equal calls, most calls first kept.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/calls.h"
#include "decoder/model/device.h"

namespace tg::report {

inline constexpr size_t kMaxPolls = 10;
inline constexpr uint64_t kLeastPollCalls = 100;

// Finding runs costs more than all else that a report does with a call, and most calls are in none.
// So calls go to the folder only from the moment that one is asked again within kMaxPeriod calls;
// the few before it, with which the run began, are held for that.
class PollTable : private model::CallSink {
 public:
  PollTable();
  PollTable(const PollTable&) = delete;
  PollTable& operator=(const PollTable&) = delete;
  void Add(const trace::Record& record);
  void Finish();
  // In order of sequence numbers.
  const std::vector<model::CallRun>& runs() const { return runs_; }
  uint64_t total() const { return total_; }  // runs of kLeastPollCalls and more

 private:
  void OnCall(model::Call&&) override {}
  void OnRun(model::CallRun&& run) override;

  // What is needed of a small record to make it again. A whole trace::Record is three times as
  // large, and copying one per call was half of what this table cost.
  struct HeldBody {
    uint64_t size = 0;
    std::optional<uint64_t> xxh3;
    bool all_zero = false;
    uint8_t kept = 0;
    std::array<uint8_t, model::kKeptBytes> bytes;
    void Take(const trace::BodyView& body);
    trace::BodyView View() const;
  };
  struct Held {
    uint64_t call = 0, time_ns = 0, offset = 0;
    uint64_t reply_ns = 0, reply_offset = 0, latency_ns = 0;
    wire::RequestHeader header;
    wire::ReplyHeader reply;
    uint32_t descriptors = 0;
    bool after_damage = false, reply_after_damage = false;
    bool answered = false;
    bool control_truncated = false;
    HeldBody payload, body;
  };
  static constexpr size_t kHeld = 2 * model::kMaxPeriod;
  static constexpr size_t kQuiet = 32;  // calls in a row that were not asked again
  static constexpr size_t kAgain = 3;   // calls in a row that were: fewer are chance
  void AddRequest(const trace::Record& record);
  void Hold(const trace::Record& record);
  void HoldReply(Held& held, const trace::Record& record);
  void Start();

  std::array<Held, kHeld> held_;
  uint64_t held_total_ = 0, given_ = 0;  // given: those before it need not be given again
  std::array<uint64_t, model::kMaxPeriod> asked_{};  // hashes of the newest requests
  uint64_t requests_ = 0;
  uint64_t quiet_ = 0, again_ = 0;
  bool feeding_ = false;

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
