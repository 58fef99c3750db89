// The session as the AM driver goes through it: phases with time and number of calls, full or
// partial boot and why, how it ended. One BootSession per start of the driver in the trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/access.h"
#include "decoder/model/bars.h"
#include "schemas/amd/ip.h"

namespace tg::model {

enum class Phase : uint8_t {
  kConnect,
  kDiscovery,
  kSoftware,
  kDecision,
  kReset,
  kSoc,
  kMmHub,
  kIh,
  kPsp,
  kSmu,
  kGfx,
  kSdma,
  kClocks,
  kClockGating,
  kDone,
  kQueues,
  kRun,
  kRecovery,
  kFinish,
};
std::string_view PhaseName(Phase phase);  // "discovery", "psp", ...

struct PhaseSpan {
  Phase phase = Phase::kConnect;
  Stamp first;
  Stamp last;
  uint64_t calls = 0;
};

enum class BootKind : uint8_t {
  kUnknown,  // the trace does not reach the decision
  kFull,
  kPartial,
};
std::string_view BootKindName(BootKind kind);

enum class SessionEnd : uint8_t {
  kRunning,     // no closing note in the trace: killed, hung, or the trace stops before it
  kClean,       // SCRATCH_REG6 = 0 at the end
  kErrorState,  // SCRATCH_REG6 = 1 at the end: the driver's error state was set
};
std::string_view SessionEndName(SessionEnd end);

struct BootSession {
  uint32_t connection = 0;
  Stamp start;
  // The first register or doorbell of a session whose beginning is not in the trace: the driver
  // reads the memory size before any other register, and rings no doorbell before its boot is
  // through. None: the start was seen, or nothing of it.
  Stamp joined;
  std::vector<PhaseSpan> phases;  // never empty
  BootKind kind = BootKind::kUnknown;
  std::string reason;  // why full or partial, in one sentence; empty before the decision
  std::optional<uint32_t> reg7_read, reg6_read, fault_read;  // what the decision saw
  Stamp reg7_at, reg6_at, fault_at;
  std::optional<uint32_t> reg7_written, reg6_written;
  Stamp booted;       // SCRATCH_REG6 = 1 at the end of the boot
  Stamp mode1_reset;  // asked for
  uint64_t recoveries = 0;
  Stamp last_recovery;
  uint64_t soft_resets_sdma = 0;
  SessionEnd end = SessionEnd::kRunning;
  Stamp ended;

  Stamp last() const { return phases.empty() ? start : phases.back().last; }
  const PhaseSpan* Find(Phase phase) const;
  // "psp"; "start not seen" for what came before the first phase that was recognised.
  std::string_view NameOf(const PhaseSpan& span) const;
};

class Boot {
 public:
  const std::vector<BootSession>& sessions() const { return sessions_; }
  const BootSession* current() const { return sessions_.empty() ? nullptr : &sessions_.back(); }
  // What the next start of the driver will do, as far as this trace tells; empty if it does not.
  std::string NextStart() const;
  // Several cards coupled by XGMI, as the driver tells it (gfx9): it does not reset one of them.
  bool hive() const { return xgmi_max_region_ > 0 && xgmi_segment_ > 0; }

  // ---- for the device that feeds it ----
  void OnCall(Stamp first, Stamp last, uint64_t times);
  void OnConnect(Stamp at, uint32_t connection);
  void OnRegister(const RegisterAccess& access);
  void OnVram(const MemoryAccess& access);
  void OnDoorbell(Stamp at);
  void OnMode1Reset(Stamp at);
  void SetGc(amd::IpVersion gc) { gc_ = gc; }
  void SetXgmi(std::optional<uint64_t> max_region, std::optional<uint64_t> segment);

 private:
  BootSession& Session(Stamp at);
  void StartSession(Stamp at);
  void Push(const PhaseSpan& span);
  void Enter(Phase phase, Stamp at);
  void Decide();
  Phase phase() const;

  static constexpr size_t kMaxSessions = 1000;
  static constexpr size_t kMaxPhases = 4000;
  std::vector<BootSession> sessions_;
  PhaseSpan* open_ = nullptr;  // the newest span of the newest session
  uint32_t connection_ = 0;
  amd::IpVersion gc_{11, 0, 0};
  uint64_t xgmi_max_region_ = 0, xgmi_segment_ = 0;
  Stamp now_;     // the newest call
  Stamp before_;  // the one before it
};

}  // namespace tg::model
