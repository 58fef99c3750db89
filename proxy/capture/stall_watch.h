// Notices, live, that the GPU does not get on: see hang.md "signature of waiting".
//
//   poll run  a client that waits longer than 200 ms reads the interrupt ring's registers over and
//             over (on TCP: the signal's memory as well)
//   silence   the two unbounded spins of the client leave no trace on the Unix path at all; a
//             doorbell with work outstanding and then nothing is all there is to see
//
// Told of what passes, asked by a clock tick what is to be done. No I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tg::proxy {

struct StallTimes {
  uint64_t poll_run_ns = 250'000'000;  // of a run, before it is called a stall
  uint64_t silence_ns = 700'000'000;
  uint64_t again_ns = 1'000'000'000;  // silence: asked again that often while work is outstanding
};

class StallWatch {
 public:
  enum class Kind : uint8_t { kPollRun, kSilence };
  // What a tick asks for.
  struct Action {
    enum class What : uint8_t {
      kNothing,
      kLook,      // silence: is work outstanding? answer with OnLook()
      kBegin,     // a stall: take a snapshot, say so
      kSnapshot,  // 1, 5 and 30 s into it
      kOver,
    } what = What::kNothing;
    Kind kind = Kind::kPollRun;
    uint64_t since_ns = 0;   // when it began
    uint64_t lasted_ns = 0;  // kOver, kSnapshot
    const char* why = "";    // kOver: what ended it
  };

  explicit StallWatch(StallTimes times = {}) : times_(times) {}

  void OnDoorbell(uint64_t now);
  // A round of the interrupt ring's registers (R WPTR, R RPTR, ...).
  void OnPollRound(uint64_t now);
  // "R WPTR, W RPTR": a synchronize that ended well.
  void OnDrain(uint64_t now);
  // Queue registers are written while it stalls: the client gave up and sets the queue up again.
  void OnQueueReset(uint64_t now);
  // Any other message; those of a poll run count as activity only.
  void OnMessage(uint64_t now, bool polling);
  void OnDisconnect(uint64_t now);

  Action Tick(uint64_t now);
  // The answer to kLook.
  void OnLook(uint64_t now, bool outstanding);

  bool stalled() const { return stalled_; }
  uint64_t stalled_since() const { return stalled_ ? since_ : 0; }
  uint64_t last_doorbell_ns() const { return last_doorbell_; }

 private:
  Action Begin(Kind kind, uint64_t since);
  void End(const char* why);

  StallTimes times_;
  bool any_doorbell_ = false;
  uint64_t last_doorbell_ = 0;
  uint64_t last_message_ = 0;
  std::optional<uint64_t> run_began_;
  uint64_t run_last_ = 0;
  uint64_t rounds_ = 0;
  std::optional<uint64_t> look_at_;  // next look at a silence
  bool stalled_ = false;
  Kind kind_ = Kind::kPollRun;
  uint64_t since_ = 0;
  int snapshots_ = 0;
  const char* over_why_ = nullptr;  // ended, not yet said
  uint64_t over_at_ = 0;
  bool look_pending_ = false;
  bool begin_pending_ = false;
};

}  // namespace tg::proxy
