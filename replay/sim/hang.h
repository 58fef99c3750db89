// Named ways for the simulated card, its link or its server to go wrong: --hang SPEC.
//
//   SPEC = NAME[:ARGUMENT][:after=N][:count=M]
//
// Every rule counts events of its own kind (column "counts" of HangTable); the first N pass, the
// next M are struck (default: all that follow). Rules of different kinds, and several of one kind,
// work beside each other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schemas/result.h"

namespace tg::sim {

enum class HangKind : uint8_t {
  kSdmaStall,
  kSdmaPollNever,
  kComputeStall,
  kShaderError,
  kBadPacket,
  kPageFault,
  kFenceLost,
  kDoorbellLost,
  kSmuDead,
  kPspDead,
  kTlbStuck,
  kMecStuck,
  kRlcStuck,
  kRas,
  kAllOnes,
  kConfigRetry,
  kRefuse,
  kExit,
  kSlow,
  kSlowKernel,
};

struct HangInfo {
  HangKind kind;
  std::string_view name;
  std::string_view argument;  // as written behind the name, empty: none
  std::string_view counts;    // what `after` and `count` count
  std::string_view effect;    // what happens
  std::string_view imitates;  // what it stands for in the field
};
std::span<const HangInfo> HangTable();
std::string_view HangName(HangKind kind);

struct HangRule {
  HangKind kind = HangKind::kSdmaStall;
  uint64_t after = 0;
  uint64_t count = UINT64_MAX;
  std::optional<uint64_t> va;      // page-fault: this page only
  bool stop = false;               // page-fault: the engine stops instead of going on
  bool other = false;              // sdma-stall: watchdog; tlb-stuck: semaphore; ras: athub
  uint8_t code = 0;                // shader-error: error type; bad-packet: interrupt source
  std::optional<uint8_t> command;  // refuse
  std::string text;                // refuse: the error text, may be empty
  uint32_t delay_us = 0;           // slow, slow-kernel
};

Result<HangRule> ParseHang(std::string_view spec);

class HangPlan {
 public:
  void Add(HangRule rule) { rules_.push_back({std::move(rule), 0, 0}); }
  bool empty() const { return rules_.empty(); }

  // Counts one event for every rule of this kind that `matches` it, and gives the first that
  // strikes it, or nullptr.
  template <typename Matches>
  const HangRule* Strike(HangKind kind, Matches&& matches) {
    const HangRule* hit = nullptr;
    for (State& state : rules_) {
      if (state.rule.kind != kind || !matches(state.rule)) continue;
      const uint64_t index = state.seen++;
      if (index < state.rule.after || index - state.rule.after >= state.rule.count) continue;
      state.struck++;
      if (!hit) hit = &state.rule;
    }
    return hit;
  }
  const HangRule* Strike(HangKind kind) {
    return Strike(kind, [](const HangRule&) { return true; });
  }

  // How often each rule struck, in the order given: for the report.
  struct Tally {
    std::string_view name;
    uint64_t seen;
    uint64_t struck;
  };
  std::vector<Tally> Tallies() const;

 private:
  struct State {
    HangRule rule;
    uint64_t seen;
    uint64_t struck;
  };
  std::vector<State> rules_;
};

}  // namespace tg::sim
