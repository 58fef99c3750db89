// Polling loops of the AM driver: a register read again and again until it shows something. A loop
// that runs out raises TimeoutError in the driver, which nothing catches during boot: the trace
// then goes to its end. So an unmet loop names the part of the card that does not answer.
//
// Conditions and limits: tinygrad a9069c17, runtime/support/am/{ip,amdev}.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/access.h"

namespace tg::explain {

enum class PollTarget : uint8_t {
  kNone,
  kTlbAck,         // GC/MMVM_INVALIDATE_ENG17_ACK bit 0
  kTlbSemaphore,   // MMVM_INVALIDATE_ENG17_SEM bit 0
  kSmu,            // C2PMSG_90 (debug: 54) = 1
  kPspBootloader,  // C2PMSG_35 bit 31
  kPspAlive,       // C2PMSG_81 != 0
  kPspRing,        // C2PMSG_64 bit 31
  kBootload,       // CP_STAT = 0 or RLC_RLCS_BOOTLOAD_STATUS.bootload_complete = 0
  kRlcSafeMode,    // RLC_SAFE_MODE bit 0 = 0
  kDequeue,        // CP_HQD_ACTIVE bit 0 = 0 after a dequeue request
};

struct PollRun {
  PollTarget target = PollTarget::kNone;
  std::string name;  // of the register
  model::Stamp first, last;
  uint64_t reads = 0;
  uint32_t value = 0;  // the latest
  bool met = false;
  uint64_t duration_ns() const { return last.time_ns - first.time_ns; }
};

class PollWatch : public model::Observer {
 public:
  void OnRegister(const model::RegisterAccess& access) override;
  void OnConnect(model::Stamp) override { Close(); }

  // Loops of a second or more that ended unmet, oldest first (the first 32).
  const std::vector<PollRun>& failed() const { return failed_; }
  // The loop the trace ends in, if it is unmet.
  std::optional<PollRun> open() const;

 private:
  void Close();

  PollRun run_;
  bool dequeue_asked_ = false;
  std::vector<PollRun> failed_;
};

}  // namespace tg::explain
