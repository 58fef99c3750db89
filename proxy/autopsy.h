// --autopsy: what the proxy itself reads from the device after a stall, or when the client has
// left. Decides what to ask and when it has waited long enough; the session sends and records.
//
// Only reads of state, only where the card's register map is known and the client has mapped BAR 5;
// never while a request of the client waits for its answer. It is off unless asked for: on a card
// in a bad state any read can hang the bus, and with it the Mac.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proxy/rules/registers.h"
#include "schemas/wire/framer.h"

namespace tg::proxy {

struct AutopsyOptions {
  uint64_t after_stall_ms = 5000;
  uint64_t read_timeout_ms = 1000;               // for each answer
  std::shared_ptr<const amd::RegisterMap> asic;  // --asic
};

class Autopsy {
 public:
  explicit Autopsy(const AutopsyOptions& options);

  // What passes between client and server: where the registers are, and whether they can be
  // reached.
  void OnForwarded(const wire::RequestEvent& event, uint64_t call);
  void OnReply(const wire::ReplyEvent& event);

  // `stalled_since`: when the present stall began, 0 without one. True when it is time for an
  // autopsy of it (once for each).
  bool Due(uint64_t stalled_since, uint64_t now) const;
  // Sets up the list of reads; `reason` goes into the trace ("after a stall of 5.0 s"). Empty when
  // it begins, else why it cannot.
  std::string Begin(std::string reason, uint64_t stalled_since, uint64_t now);

  bool active() const { return active_; }
  bool waiting() const { return waiting_ != 0; }  // for an answer
  // The next read, if none is being waited for; nothing: done.
  struct Read {
    wire::RequestHeader header;
    std::string mark;  // for the trace: "autopsy: after a stall of 5.0 s: regCP_STAT"
  };
  std::optional<Read> Next();
  void Sent(uint64_t call, uint64_t now);
  // Is this call one of ours? Also when its time was up.
  bool Owns(uint64_t call) const { return calls_.contains(call); }
  const std::string& MarkOf(uint64_t call) const;
  // The answer is complete.
  void Answered(uint64_t call, bool ok);
  // No answer in time, or no occasion to ask: the autopsy is over. True if that has just happened.
  bool Expire(uint64_t now);
  void Stop() { active_ = false; }

  // For the log, when it is over: "38 registers read".
  std::string Summary() const;
  size_t unanswered() const { return calls_.size(); }

  static constexpr int kMaxPerConnection = 16;

 private:
  const AutopsyOptions options_;
  RegisterScope scope_;
  bool mapped_ = false;
  uint32_t dev_ = 0;
  uint64_t bar_size_ = 0;

  bool active_ = false;
  std::string reason_;
  std::vector<std::pair<std::string, uint64_t>> list_;  // name, offset in BAR 5
  size_t next_ = 0;
  uint64_t waiting_ = 0;  // call
  uint64_t deadline_ = 0;
  std::set<uint64_t> calls_;  // sent and not answered yet
  std::string mark_;          // of the newest read
  uint64_t done_for_ = 0;     // stall
  size_t answered_ = 0, refused_ = 0;
  int begun_ = 0;
};

}  // namespace tg::proxy
