// Sends what a recorded client sent, in its order, and compares what comes back.
//
// What cannot be repeated call by call:
//   - polls. Each small read is repeated until it brings the recorded value, or that of a later
//     round of the same loop (then the rounds between are left out), or its time is up. A run that
//     the trace folded is played for one round.
//   - shared memory. A received descriptor is mapped. Before a doorbell goes out, what the client
//     had stored for it (rings, pointers, staging data) is stored here; the device's own words are
//     left to the device (device_words.h). After it, the fence of what it announced is waited for
//     if the recording saw it written.
//   - addresses. MAP_BAR's are the server's own; DMA addresses see addresses.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "replay/drive/addresses.h"
#include "replay/drive/exchange.h"
#include "replay/drive/permission.h"
#include "replay/net/socket.h"
#include "replay/script/device_words.h"
#include "replay/script/history.h"
#include "replay/script/script.h"
#include "replay/script/shared.h"
#include "replay/script/survey.h"
#include "schemas/wire/address.h"

namespace tg::replay {

enum class AddressPolicy : uint8_t { kStop, kRewrite, kKeep };

struct DriverOptions {
  Permission permission;
  double speed = 0;  // 1: as recorded; 10: ten times faster; 0: without waiting
  bool exact_polls = false;
  AddressPolicy addresses = AddressPolicy::kStop;
  uint64_t stop_at = 0;                            // last call to send; 0: no limit
  std::chrono::milliseconds timeout{30'000};       // for one reply
  std::chrono::milliseconds poll_timeout{10'000};  // for a polled value, or a fence
  std::chrono::milliseconds settle{1'000};         // the same for a read that is no poll
};

struct DriveResult {
  enum class Kind : uint8_t {
    kFinished,
    kStopped,  // at --stop-at, or by whoever steps
    kDiverged,
    kForbidden,  // the next call is not permitted
    kLacking,    // the trace has nothing more to send
    kSilent,     // the server stopped answering, or closed
    kInterrupted,
    kFailed,
  };
  Kind kind = Kind::kFinished;
  uint64_t call = 0;
  std::string text;
};

struct DriveCounters {
  uint64_t sent = 0;
  uint64_t compared = 0;
  uint64_t repeated = 0;   // polls more than recorded
  uint64_t passed = 0;     // recorded polls not sent
  uint64_t left_out = 0;   // not permitted (--read-only), or made by the proxy
  uint64_t different = 0;  // --read-only: replies that differ
  uint64_t altered = 0;    // recorded answers that were the proxy's (--inject): not compared
  uint64_t words = 0;      // of shared memory stored
  uint64_t rewritten = 0;  // addresses
  uint64_t fences = 0;     // waited for and seen
};

class Driver {
 public:
  // Asked before a call is sent, with its text; false stops. May be empty.
  using StepFn = std::function<bool(uint64_t call, const std::string& text)>;

  Driver(std::unique_ptr<Script> script, const Survey& survey, const DeviceWords& words,
         const wire::Address& upstream, const DriverOptions& options,
         std::function<void(const std::string&)> note);

  // A connection to begin with, where one was made already.
  void Adopt(UniqueFd connection) { adopted_ = std::move(connection); }
  void set_step(StepFn step) { step_ = std::move(step); }
  // Only the n-th connection of the trace, from 1; 0: all.
  void set_only(uint32_t ordinal) { only_ = ordinal; }

  DriveResult Run();
  const DriveCounters& counters() const { return counters_; }
  std::vector<std::string> history() const { return history_.Lines(); }

 private:
  using Kind = DriveResult::Kind;
  struct LiveRegion {
    std::optional<SharedMemory> memory;  // nothing over TCP
    uint32_t handle = 0;                 // as the server numbers it
  };
  bool Stop(Kind kind, uint64_t call, std::string text);
  bool Open();
  bool Close(const std::string& closed_first);
  bool OnCall(const Call& call);
  bool OnRun(const replay::Run& run);
  bool Poll(Call call, LiveReply live);
  LiveReply Send(const Call& call, bool wait);
  bool Pace(uint64_t time_ns);
  bool Compare(const Call& call, const LiveReply& live, std::string& difference);
  bool CompareMemory(const Call& call, LiveReply& live);
  bool SameBody(const Call& call, const LiveReply& live) const;
  bool Skippable(const Call& call) const;
  size_t FindLaterRound(const Call& call, const LiveReply& live);
  bool CheckAddresses(const Call& call, const std::vector<DmaRange>& recorded,
                      const std::vector<DmaRange>& live);
  const Region* RecordedRegion(const Call& call);
  void StoreClientWords(const Call& doorbell);
  void StoreWords(Step& step);
  bool AwaitFence(uint64_t call);
  std::string Text(const Call& call) const;

  std::unique_ptr<Script> script_;
  const Survey& survey_;
  const DeviceWords& words_;
  const wire::Address upstream_;
  const DriverOptions options_;
  const std::function<void(const std::string&)> note_;
  StepFn step_;
  uint32_t only_ = 0;
  UniqueFd adopted_, fd_;
  std::map<uint32_t, LiveRegion> regions_;  // by recorded index
  AddressRewriter rewriter_;
  History history_;
  DriveCounters counters_;
  DriveResult result_;
  uint32_t ordinal_ = 0;  // connection being played, from 1
  bool playing_ = true;
  std::optional<std::chrono::steady_clock::time_point> start_;
  uint64_t start_ns_ = 0;
};

}  // namespace tg::replay
