#include "decoder/model/boot.h"

#include <cstdio>

#include "schemas/amd/scratch.h"

namespace tg::model {
namespace {

std::string Hex(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", value);
  return text;
}

constexpr uint64_t kRootTableSize = 0x1000;
// Booted partially whenever AM set the card up, whatever its notes and AM_RESET say (tinygrad
// 0.14.0, runtime/support/am/amdev.py).
constexpr amd::IpVersion kKeptGc{9, 5, 0};

}  // namespace

std::string_view PhaseName(Phase phase) {
  constexpr std::string_view kNames[] = {
      "connect", "discovery", "software init", "decision", "reset", "soc",    "mm hub",
      "ih",      "psp",       "smu",           "gfx",      "sdma",  "clocks", "clock gating",
      "done",    "queues",    "run",           "recovery", "finish"};
  return kNames[static_cast<int>(phase)];
}

std::string_view BootKindName(BootKind kind) {
  constexpr std::string_view kNames[] = {"unknown", "full", "partial"};
  return kNames[static_cast<int>(kind)];
}

std::string_view SessionEndName(SessionEnd end) {
  constexpr std::string_view kNames[] = {"not finished", "clean", "in error state"};
  return kNames[static_cast<int>(end)];
}

const PhaseSpan* BootSession::Find(Phase phase) const {
  for (const PhaseSpan& span : phases) {
    if (span.phase == phase) return &span;
  }
  return nullptr;
}

std::string_view BootSession::NameOf(const PhaseSpan& span) const {
  return joined && span.phase == Phase::kConnect ? "start not seen" : PhaseName(span.phase);
}

Phase Boot::phase() const {
  return open_ ? open_->phase : Phase::kConnect;
}

BootSession& Boot::Session(Stamp at) {
  if (sessions_.empty()) {
    StartSession(at);
  }
  return sessions_.back();
}

void Boot::StartSession(Stamp at) {
  BootSession& session = sessions_.emplace_back();
  session.connection = connection_;
  session.start = at;
  Push({Phase::kConnect, {}, at, 0});  // begins with its first call
}

void Boot::Push(const PhaseSpan& span) {
  auto& phases = sessions_.back().phases;
  phases.push_back(span);
  open_ = &phases.back();
}

void Boot::Enter(Phase next, Stamp at) {
  BootSession& session = Session(at);
  if (session.phases.back().phase == next || session.phases.size() >= kMaxPhases) return;
  // The call that begins the phase was counted in the one before it.
  PhaseSpan& before = session.phases.back();
  if (before.last == at && before.calls > 0) {
    --before.calls;
    before.last = before.calls > 0 ? before_ : before.first;
  }
  Push({next, at, at, 1});
}

void Boot::OnConnect(Stamp at, uint32_t connection) {
  connection_ = connection;
  if (sessions_.empty() || sessions_.back().phases.back().calls == 0) return;
  if (sessions_.size() >= kMaxSessions) return;
  StartSession(at);
}

void Boot::OnCall(Stamp first, Stamp last, uint64_t times) {
  before_ = now_;
  now_ = last;
  if (!open_) StartSession(first);
  open_->calls += times;
  if (!open_->first) open_->first = first;
  open_->last = last;
}

// What the decision rests on is known in steps; the sentence is made anew with each.
void Boot::Decide() {
  BootSession& s = sessions_.back();
  if (!s.reg7_read) return;
  const uint32_t reg7 = *s.reg7_read;
  const std::string reg7_text = "REG7 " + Hex(reg7) + " (" + amd::DescribeReg7(reg7) + ")";
  if (amd::ClassifyReg7(reg7) == amd::Reg7Kind::kAllOnes) {
    s.reason = "REG7 0xffffffff: not a version, the register reads all ones (link or BAR problem)";
    return;
  }
  // The driver's own version is what it writes at the end of its boot.
  const uint32_t own = s.reg7_written.value_or(amd::kAmVersionCurrent);
  const bool kept = s.kind == BootKind::kPartial && gc_ == kKeptGc;
  if (reg7 != own) {
    if (amd::ClassifyReg7(reg7) == amd::Reg7Kind::kOlder) {
      s.reason = "REG7 " + Hex(reg7) +
                 ": older AM left this state; cold boot expected, REG6 not consulted (AM of " +
                 std::string(amd::FindAmVersion(reg7)->since) + ")";
    } else {
      s.reason = reg7_text + ": not the driver's own state -> full boot, REG6 not consulted";
    }
    return;
  }
  if (!s.reg6_read) {
    s.reason = s.kind == BootKind::kFull
                   ? reg7_text + ", REG6 not consulted: AM_RESET=1 asked for a full boot"
                   : reg7_text;
    return;
  }
  if (*s.reg6_read != 0) {
    const std::string what = *s.reg6_read == 1 ? "previous session did not finish cleanly"
                                               : amd::DescribeReg6(reg7, *s.reg6_read);
    const std::string value = *s.reg6_read == 1 ? "1" : Hex(*s.reg6_read);
    s.reason =
        reg7_text + ", REG6 " + value + ": " + what +
        (kept ? " -> partial boot all the same, as always on gc 9.5.0" : " -> full reset expected");
    return;
  }
  if (!s.fault_read) {
    s.reason = reg7_text + ", REG6 0: previous session finished cleanly";
    return;
  }
  if (*s.fault_read != 0) {
    s.reason = reg7_text + ", REG6 0, but fault status " + Hex(*s.fault_read) +
               ": a page fault was left behind -> " +
               (kept ? "partial boot all the same, as always on gc 9.5.0" : "full reset expected");
    return;
  }
  s.reason = reg7_text + ", REG6 0, no fault: previous session finished cleanly -> partial boot";
}

void Boot::OnVram(const MemoryAccess& access) {
  if (access.write && access.offset == 0 && access.size == kRootTableSize &&
      phase() <= Phase::kDiscovery) {
    Enter(Phase::kSoftware, access.at);
  }
}

void Boot::OnMode1Reset(Stamp at) {
  if (!sessions_.empty()) sessions_.back().mode1_reset = at;
}

void Boot::OnDoorbell(Stamp at) {
  BootSession& s = Session(at);
  const Phase now = phase();
  if (now == Phase::kRun || now == Phase::kFinish) return;
  // Nothing rings before the queues are set up: the way to there is not in the trace.
  if (now < Phase::kDone && !s.joined) s.joined = at;
  Enter(Phase::kRun, at);
}

void Boot::OnRegister(const RegisterAccess& access) {
  const Stamp at = access.at;
  const bool write = access.write;
  const Phase now = phase();
  const Role role = access.reg->role;
  if (now == Phase::kConnect && role != Role::kMemsize && (write || role != Role::kScratch7)) {
    if (BootSession& s = Session(at); !s.joined) s.joined = at;
  }
  switch (role) {
    case Role::kMemsize:
      if (write) return;
      if (now > Phase::kDecision && sessions_.size() < kMaxSessions) {
        // Another start of the driver over the same connection.
        StartSession(at);
      }
      if (phase() == Phase::kConnect) Enter(Phase::kDiscovery, at);
      return;
    case Role::kScratch7:
      if (!write) {
        BootSession& s = Session(at);
        if (now > Phase::kDecision || s.reg7_read) return;
        Enter(Phase::kDecision, at);
        sessions_.back().reg7_read = access.value;
        sessions_.back().reg7_at = at;
        Decide();
        return;
      }
      Session(at).reg7_written = access.value;
      Enter(Phase::kDone, at);
      Decide();
      return;
    case Role::kScratch6: {
      BootSession& s = Session(at);
      if (!write) {
        if (now != Phase::kDecision || s.reg6_read) return;
        s.reg6_read = access.value;
        s.reg6_at = at;
        Decide();
        return;
      }
      s.reg6_written = access.value;
      // An end in error state is not the first that is seen of a session: a boot's end is.
      if ((now == Phase::kDone || now == Phase::kConnect) && access.value == 1) {
        s.booted = at;
        s.end = SessionEnd::kRunning;
        // What follows belongs to the queues; the span begins with the next call.
        Push({Phase::kQueues, {}, {}, 0});
        return;
      }
      s.end = access.value == 0 ? SessionEnd::kClean : SessionEnd::kErrorState;
      s.ended = at;
      return;
    }
    case Role::kIhWptr:
      // Only a driver that runs reads it, when it waits or has waited.
      if (!write && now == Phase::kConnect) Enter(Phase::kRun, at);
      return;
    case Role::kFaultStatusGc:
      if (!write && now == Phase::kDecision && !sessions_.back().fault_read) {
        sessions_.back().fault_read = access.value;
        sessions_.back().fault_at = at;
        Decide();
      }
      return;
    case Role::kPspAlive:
      if (write) return;
      if (now == Phase::kDecision) {
        sessions_.back().kind = BootKind::kFull;
        Decide();
        Enter(Phase::kReset, at);
      } else if (now == Phase::kIh) {
        Enter(Phase::kPsp, at);
      }
      return;
    case Role::kStrap2:
    case Role::kXccFence:
      if (now == Phase::kReset) Enter(Phase::kSoc, at);
      return;
    case Role::kAgpBaseMm:
      if (write && (now == Phase::kSoc || now == Phase::kReset)) Enter(Phase::kMmHub, at);
      return;
    case Role::kIhBase:
      if (write && now == Phase::kMmHub) Enter(Phase::kIh, at);
      return;
    case Role::kSmuResponse:
      if (write && now == Phase::kPsp) Enter(Phase::kSmu, at);
      if (write && now == Phase::kSdma) Enter(Phase::kClocks, at);
      return;
    case Role::kCpStat:
      if (write) return;
      if (now == Phase::kDecision) {
        sessions_.back().kind = BootKind::kPartial;
        Decide();
      }
      if (now == Phase::kSmu || now == Phase::kPsp || now == Phase::kDecision) {
        Enter(Phase::kGfx, at);
      }
      return;
    case Role::kSdmaWatchdog:
    case Role::kSdmaCntl:
      if (now == Phase::kGfx) Enter(Phase::kSdma, at);
      return;
    case Role::kHdpPower:
    case Role::kAtcCg:
    case Role::kRlcSafeMode:
      if (now == Phase::kClocks || now == Phase::kSdma) Enter(Phase::kClockGating, at);
      return;
    case Role::kMecCntl:
      if (write && (now == Phase::kRun || now == Phase::kQueues)) {
        Enter(Phase::kRecovery, at);
        ++sessions_.back().recoveries;
        sessions_.back().last_recovery = at;
      }
      return;
    case Role::kSdmaRbCntl:
      // bit 0: rb_enable
      if (write && (access.value & 1) == 0 &&
          (now == Phase::kRun || now == Phase::kQueues || now == Phase::kRecovery)) {
        Enter(Phase::kFinish, at);
      }
      return;
    case Role::kGrbmSoftReset:
      if (write && now == Phase::kFinish && access.value != 0) {
        ++sessions_.back().soft_resets_sdma;
      }
      return;
    default:
      return;
  }
}

void Boot::SetXgmi(std::optional<uint64_t> max_region, std::optional<uint64_t> segment) {
  xgmi_max_region_ = max_region.value_or(xgmi_max_region_);
  xgmi_segment_ = segment.value_or(xgmi_segment_);
}

std::string Boot::NextStart() const {
  const BootSession* s = current();
  if (!s) return "";
  if (s->end == SessionEnd::kClean) return "partial boot, if no page fault is latched";
  std::string why;
  if (s->end == SessionEnd::kErrorState) why = " (REG6 is 1)";
  if (why.empty() && s->booted) why = " (REG6 was left at 1: no clean end was seen)";
  if (why.empty()) return "";
  if (gc_ == kKeptGc)
    return "partial boot with a driver since 0.14.0, which keeps a card of gc 9.5.0 that AM set "
           "up" +
           why;
  if (hive())
    return "refused: the driver does not reset a card of a hive (\"Malformed state\"), "
           "hive_reset.py does" +
           why;
  return "full boot with mode-1 reset" + why;
}

}  // namespace tg::model
