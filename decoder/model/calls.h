// Calls for people: requests joined with their answers, and runs of equal calls folded.
//
// A client that waits polls: the same read, or the same round of up to 8 calls, thousands to
// millions of times. The trace writer folds what it can (Repeat packets), but only runs that it saw
// as equal while recording; here runs are found again in whatever the file holds, so that one line
// stands for one wait in every case.
//
//   records -> CallAssembler -> (filter) -> CallFolder -> lines
//
// Both are bounded: at most kMaxWaiting calls wait for their answers, at most kFoldWindow for a run
// to show.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schemas/trace/reader.h"
#include "schemas/wire/commands.h"

namespace tg::model {

inline constexpr size_t kKeptBytes = 24;  // of a payload or body, in a Call
inline constexpr size_t kMaxPeriod = 8;
inline constexpr size_t kMaxWaiting = 64;
inline constexpr size_t kFoldRounds = 3;  // so many rounds in a row make a run
inline constexpr size_t kFoldWindow = kMaxPeriod * kFoldRounds;

// The beginning of a payload or body.
struct Piece {
  uint64_t size = 0;  // announced
  uint64_t hash = 0;  // of what the trace holds; told apart where only a hash was kept
  uint64_t came = 0;  // bytes that came, when fewer (`cut`)
  bool cut = false;
  bool all_zero = false;
  uint8_t kept = 0;
  std::array<uint8_t, kKeptBytes> bytes;
  std::span<const uint8_t> data() const { return {bytes.data(), kept}; }
};

struct Call {
  uint64_t seq = 0;
  uint64_t time_ns = 0;
  uint64_t file_offset = 0;
  wire::RequestHeader header;
  Piece payload;
  bool answered = false;
  bool expects_reply = false;
  bool late = false;          // the answer of a call that was given out before
  bool after_damage = false;  // seq and time are lower bounds
  wire::ReplyHeader reply;
  Piece body;
  uint64_t latency_ns = 0;
  uint32_t descriptors = 0;
  struct Extra {
    std::string error;  // the server's text
    std::string note;   // "refused by the guard: ...", "cut off by the client", ...
    std::string name;   // of the register, see report/annotate.h; no part of the hash
    std::string about;  // what the call means; no part of the hash
  };
  std::unique_ptr<Extra> extra;  // rarely

  Call() = default;
  Call(Call&&) = default;
  Call& operator=(Call&&) = default;
  Call Clone() const;
  uint64_t Hash() const;  // equal for calls that look the same to a reader: not seq, time, latency
};

// `count` calls in the order of `pattern`, over and over; a single call has one and count 1.
struct CallRun {
  std::vector<Call> pattern;  // the first round, 1 to kMaxPeriod calls
  uint64_t count = 0;
  uint64_t first_seq = 0;
  uint64_t last_seq = 0;
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;         // of the last call
  uint64_t min_latency_ns = 0;  // of answered ones; 0: none
  uint64_t max_latency_ns = 0;
  uint64_t unanswered = 0;  // of the last ones
  uint64_t rounds() const { return pattern.empty() ? 0 : count / pattern.size(); }
};

// Where calls go next. Single calls come apart from runs: most calls are single, and this way one
// costs no allocation.
class CallSink {
 public:
  virtual ~CallSink() = default;
  virtual void OnCall(Call&& call) = 0;
  virtual void OnRun(CallRun&& run) = 0;  // count >= 2
};

// Calls come out in order; a Repeat as a run of its own, after what was before it.
class CallAssembler {
 public:
  explicit CallAssembler(CallSink& out) : out_(out) {}
  void Add(const trace::Record& record);
  // Gives out what still waits for its answer.
  void Flush();
  bool waiting() const { return !waiting_.empty(); }

 private:
  struct Waiting {
    Call call;
    bool complete = false;
    bool body_open = false;
    bool payload_open = false;
  };
  void Drain();
  void OnReply(const trace::Record& record);
  void OnChunk(const trace::Record& record);
  void OnRepeat(const trace::Record& record);

  CallSink& out_;
  std::vector<Waiting> waiting_;  // in order
};

// Finds runs in what passes through. Runs come out when they end, calls at most kFoldWindow late.
class CallFolder : public CallSink {
 public:
  explicit CallFolder(CallSink& out) : out_(out) {}
  void OnCall(Call&& call) override;
  void OnRun(CallRun&& run) override;
  void Flush();

 private:
  static constexpr size_t kRing = 32;
  static_assert(kRing > kFoldWindow && (kRing & (kRing - 1)) == 0);
  struct Held {
    Call call;
    uint64_t hash = 0;
  };
  Held& held(size_t i) { return ring_[(front_ + i) & (kRing - 1)]; }
  void StartRun(size_t period);
  void BeginRounds(std::vector<Call>& more, const std::vector<uint64_t>& more_hashes);
  void Extend(const Call& call);
  void EndRun();
  void EmitFront();

  CallSink& out_;
  // Calls not given out that are in no run yet, oldest first.
  std::array<Held, kRing> ring_;
  size_t front_ = 0;
  size_t held_ = 0;
  std::array<uint64_t, kMaxPeriod + 1> matches_{};  // [p]: newest calls in a row equal to p before
  bool in_run_ = false;
  size_t place_ = 0;  // of the next call in the run's pattern
  CallRun run_;
  std::vector<uint64_t> run_hashes_;
};

}  // namespace tg::model
