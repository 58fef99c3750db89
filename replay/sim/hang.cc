#include "replay/sim/hang.h"

#include <array>
#include <charconv>

#include "schemas/wire/commands.h"

namespace tg::sim {
namespace {

constexpr std::array<HangInfo, 20> kTable = {{
    {HangKind::kSdmaStall, "sdma-stall", "[:watchdog]", "copy packets of the SDMA engine",
     "the copy never ends; the engine moves only after a reset; `watchdog` raises SDMA_QUEUE_HANG",
     "a wedged SDMA engine or a transfer stuck on the link"},
    {HangKind::kSdmaPollNever, "sdma-poll-never", "", "POLL_REGMEM packets",
     "the engine never sees the value it polls for, whatever memory holds",
     "stale reads of host memory, a signal page mapped elsewhere"},
    {HangKind::kComputeStall, "compute-stall", "", "kernels and end-of-pipe signals",
     "the compute queue stops there until it is dequeued or reset", "an endless or faulted kernel"},
    {HangKind::kShaderError, "shader-error", "[:TYPE]", "kernels and end-of-pipe signals",
     "an SQ interrupt (`illegal_inst`, or `edc_fue`, `memviol`, `edc_fed`); the compute queue "
     "stops",
     "a kernel with an illegal instruction, a bad access, a bit error"},
    {HangKind::kBadPacket, "bad-packet", "[:TYPE]", "kernels and end-of-pipe signals",
     "the packet is refused with an interrupt (`opcode`, or `reserved`, `priv_reg`, `priv_instr`); "
     "the compute queue stops",
     "a ring that was written wrongly or overwritten"},
    {HangKind::kPageFault, "page-fault", "[:VA][:stop]",
     "engine accesses to that page (without VA: copy packets)",
     "the access faults: status latched, interrupt raised, dummy page used; `stop` halts the "
     "engine",
     "a buffer used after it was unmapped, a missed page-table write"},
    {HangKind::kFenceLost, "fence-lost", "", "FENCE and RELEASE_MEM writes",
     "the value never reaches memory; the engine goes on",
     "a write to host memory that the link or the IOMMU swallowed"},
    {HangKind::kDoorbellLost, "doorbell-lost", "", "doorbell writes",
     "the engines are not told of new work", "a posted write that got lost, doorbells gated off"},
    {HangKind::kSmuDead, "smu-dead", "", "SMU messages", "the response register stays 0",
     "a crashed power controller"},
    {HangKind::kPspDead, "psp-dead", "", "PSP bootloader and ring commands",
     "no answer: bootloader busy for ever, fence not written", "a security processor that died"},
    {HangKind::kTlbStuck, "tlb-stuck", "[:semaphore]",
     "TLB invalidations (`semaphore`: reads of the semaphore)",
     "not acknowledged; `semaphore`: somebody else holds it for ever", "a memory hub that hangs"},
    {HangKind::kMecStuck, "mec-stuck", "", "requests to give up a compute queue",
     "CP_HQD_ACTIVE stays 1; a reset of the command processor helps",
     "waves that no preemption ends"},
    {HangKind::kRlcStuck, "rlc-stuck", "", "requests for the RLC's safe mode",
     "the request is never taken", "an RLC that hangs"},
    {HangKind::kRas, "ras", "[:athub]", "doorbell writes",
     "a fatal error (of the controller, or ATHUB) shows in BIF_DOORBELL_INT_CNTL; engines stop "
     "until "
     "a reset",
     "an uncorrectable memory error"},
    {HangKind::kAllOnes, "all-ones", "", "requests of any kind",
     "every read gives ff..ff, writes go nowhere, DMA stops", "a card that fell off the bus"},
    {HangKind::kConfigRetry, "config-retry", "", "CFG_READs",
     "vendor 0001, the rest ff: configuration request retry status",
     "a card still busy with its reset"},
    {HangKind::kRefuse, "refuse", ":CMD[:TEXT]", "requests of that command",
     "status 1 with TEXT; a posted write is dropped",
     "a server or driver that says no (region limit, BAR not mapped)"},
    {HangKind::kExit, "exit", "", "requests of any kind",
     "the server process ends at once, its socket file stays",
     "the driver extension terminated: cable pulled, app killed"},
    {HangKind::kSlow, "slow", ":MICROSECONDS", "requests of any kind",
     "handled only after that time", "a link that retrains, retries, or shares its bandwidth"},
    {HangKind::kSlowKernel, "slow-kernel", ":MICROSECONDS", "kernels and end-of-pipe signals",
     "takes that time; the rest goes on", "a long kernel: no hang at all"},
}};

std::optional<uint64_t> ParseNumber(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

tl::unexpected<Error> Usage(std::string_view spec, std::string why) {
  return Fail(Error::Code::kUsage, "--hang " + std::string(spec) + ": " + std::move(why));
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t colon = text.find(':');
    parts.push_back(text.substr(0, colon));
    if (colon == std::string_view::npos) return parts;
    text.remove_prefix(colon + 1);
  }
}

struct Code {
  std::string_view name;
  uint8_t code;
};
// Error types of an SQ interrupt, in the order the driver names them.
constexpr Code kShaderErrors[] = {
    {"illegal_inst", 1}, {"edc_fue", 0}, {"memviol", 2}, {"edc_fed", 3}};
// Sources of CP interrupts (kernel: irqsrcs_gfx_11_0_0.h).
constexpr Code kPacketErrors[] = {
    {"opcode", 183}, {"reserved", 180}, {"priv_reg", 184}, {"priv_instr", 185}};

// One of `codes`; the first if nothing is said.
Result<void> ParseCode(std::string_view spec, std::span<const std::string_view> parts,
                       std::span<const Code> codes, HangRule& rule) {
  rule.code = codes.front().code;
  if (parts.empty()) return {};
  std::string names;
  for (const Code& one : codes) {
    rule.code = one.code;
    if (parts.size() == 1 && parts.front() == one.name) return {};
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  return Usage(spec, "takes one of " + names);
}

Result<void> ParseWord(std::string_view spec, std::span<const std::string_view> parts,
                       std::string_view word, HangRule& rule) {
  rule.other = parts.size() == 1 && parts.front() == word;
  if (parts.empty() || rule.other) return {};
  return Usage(spec, "takes only `" + std::string(word) + "`, after=N and count=M");
}

// The argument proper, after NAME and without after= and count=.
Result<void> ParseArgument(std::string_view spec, std::vector<std::string_view> parts,
                           HangRule& rule) {
  switch (rule.kind) {
    case HangKind::kRefuse: {
      const wire::CommandInfo* command =
          parts.empty() ? nullptr : wire::FindCommandByName(parts.front());
      if (!command) return Usage(spec, "needs a command, e.g. refuse:MAP_SYSMEM_FD:no free slots");
      rule.command = static_cast<uint8_t>(command->command);
      for (size_t i = 1; i < parts.size(); i++) {
        if (i > 1) rule.text += ':';
        rule.text += parts[i];
      }
      return {};
    }
    case HangKind::kSlow:
    case HangKind::kSlowKernel: {
      const auto us = parts.size() == 1 ? ParseNumber(parts[0]) : std::nullopt;
      if (!us || *us > 60'000'000) return Usage(spec, "needs microseconds, e.g. 250");
      rule.delay_us = static_cast<uint32_t>(*us);
      return {};
    }
    case HangKind::kPageFault:
      for (std::string_view part : parts) {
        if (part == "stop") {
          rule.stop = true;
        } else if (const auto va = ParseNumber(part); va && !rule.va) {
          rule.va = *va;
        } else {
          return Usage(spec, "takes an address and/or `stop`, e.g. page-fault:0x200001000000:stop");
        }
      }
      return {};
    case HangKind::kShaderError:
      return ParseCode(spec, parts, kShaderErrors, rule);
    case HangKind::kBadPacket:
      return ParseCode(spec, parts, kPacketErrors, rule);
    case HangKind::kSdmaStall:
      return ParseWord(spec, parts, "watchdog", rule);
    case HangKind::kTlbStuck:
      return ParseWord(spec, parts, "semaphore", rule);
    case HangKind::kRas:
      return ParseWord(spec, parts, "athub", rule);
    default:
      if (!parts.empty()) return Usage(spec, "takes only after=N and count=M");
      return {};
  }
}

}  // namespace

std::span<const HangInfo> HangTable() {
  return kTable;
}

std::string_view HangName(HangKind kind) {
  return kTable[static_cast<size_t>(kind)].name;
}

Result<HangRule> ParseHang(std::string_view spec) {
  std::vector<std::string_view> parts = Split(spec);
  HangRule rule;
  const HangInfo* found = nullptr;
  for (const HangInfo& info : kTable)
    if (info.name == parts.front()) found = &info;
  if (!found) {
    std::string names;
    for (const HangInfo& info : kTable)
      names += (names.empty() ? "" : ", ") + std::string(info.name);
    return Usage(spec, "no such way to hang; there are " + names);
  }
  rule.kind = found->kind;
  parts.erase(parts.begin());

  // after= and count= stand at the end, so that a refusal's text may hold colons.
  while (!parts.empty()) {
    const std::string_view last = parts.back();
    const bool after = last.starts_with("after=");
    if (!after && !last.starts_with("count=")) break;
    const auto number = ParseNumber(last.substr(6));
    if (!number) return Usage(spec, std::string(last) + " is not a number");
    (after ? rule.after : rule.count) = *number;
    parts.pop_back();
  }
  if (auto parsed = ParseArgument(spec, std::move(parts), rule); !parsed)
    return tl::unexpected<Error>(parsed.error());
  return rule;
}

std::vector<HangPlan::Tally> HangPlan::Tallies() const {
  std::vector<Tally> tallies;
  for (const State& state : rules_)
    tallies.push_back({HangName(state.rule.kind), state.seen, state.struck});
  return tallies;
}

}  // namespace tg::sim
