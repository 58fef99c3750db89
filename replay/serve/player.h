// Answers requests from the recording, in its order. Sans-I/O but for the shared memory it fills.
//
// The client may do less or more of one thing without being wrong: poll. How often it looks before
// it sees what it waits for depends on time. With `any_polls`:
//   - recorded calls may be skipped to reach the one that came, if each of them is a small read
//     that the recording makes at least twice, or a write that stores again what was stored last;
//   - the same kinds of call may come once more than recorded: they get the answer they got last.
// Everything else must come, in order, with the recorded bytes.
//
// Shared memory. The client will not go on before it sees what the device stored: fences, read
// pointers, data copied out. Most of that the engine does (engine.h). What it cannot know (results
// of kernels, queues it does not understand) is in the trace as the proxy copied it: at the next
// doorbell, at a stall, at the end. So at each doorbell what the trace shows up to the copy made at
// the *following* one is brought in at once (see shared.h for whose words are taken), and when the
// client falls silent the next contents that differ are, whoever wrote them. Words that the engine
// stored stay.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "replay/script/history.h"
#include "replay/script/script.h"
#include "replay/script/shared.h"
#include "replay/script/survey.h"
#include "replay/serve/answer.h"
#include "replay/serve/match.h"

namespace tg::replay {

class Engine;

struct PlayerOptions {
  bool any_polls = false;
  bool map_addresses = false;  // see AddressMap; also: make up DMA addresses the trace lacks
};

class Player : public Responder {
 public:
  // Without an engine the device's work is taken from the trace alone.
  Player(std::unique_ptr<Script> script, const Survey& survey, const PlayerOptions& options);
  Player(std::unique_ptr<Script> script, const Survey& survey, const PlayerOptions& options,
         std::unique_ptr<Engine> engine);
  ~Player() override;

  bool Connect() override;
  Answer OnRequest(const Received& received) override;
  bool OnSilence() override;
  bool HangsUp() override;
  Verdict Disconnect() override;
  std::vector<std::string> History() const override { return history_.Lines(); }
  uint64_t played() const override { return played_; }

  uint64_t extra_polls() const { return extra_; }
  uint64_t skipped_polls() const { return skipped_; }
  uint64_t early_words() const { return early_; }
  const Engine* engine() const { return engine_.get(); }
  size_t mapped_addresses() const { return addresses_.size(); }

 private:
  struct Found {
    bool found = false;
    size_t step = 0;      // counted from the front of the script
    uint64_t in_run = 0;  // calls of that run before it
    uint64_t skipped = 0;
  };
  bool Same(const Call& recorded, const Received& received);
  bool Skippable(const Call& call) const;
  Found Find(const Received& received);
  void Consume(const Found& found);
  const Call* Repeatable(const Received& received) const;
  Answer PlayCall(bool answered);
  bool CutByTheServer();
  Answer Refuse(const Received& received);
  const Call* Expected(std::string& why_none);
  bool MakeRegion(Answer& answer);
  void ApplyDue();
  void ApplyAhead();
  size_t ApplyStep(Step& step, Merge merge, bool early);
  void ForgetRegions();
  bool RunEngine();

  std::unique_ptr<Script> script_;
  const Survey& survey_;
  const PlayerOptions options_;
  std::unique_ptr<Engine> engine_;
  tg::replay::History history_;
  AddressMap addresses_;
  std::map<uint32_t, SharedMemory> regions_;
  uint64_t in_run_ = 0;  // calls already played of the run at the front
  Step current_;         // holds the call being answered
  std::shared_ptr<const Run> current_run_;
  const Call* call_ = nullptr;
  std::deque<Call> recent_;  // small calls just played, newest last
  uint64_t played_ = 0, extra_ = 0, skipped_ = 0, early_ = 0;
  uint64_t extra_in_a_row_ = 0;
  uint64_t next_address_ = 0;
  bool connected_ = false;
  bool diverged_ = false;
};

}  // namespace tg::replay
