// A poll that never ends, of a card that only the RPC is known of (NVIDIA): falcon DMA, mailboxes,
// words that the card never writes. Field reports B03 and B06.
//
// Facts: register names and offsets of NVIDIA's open-gpu-doc (dev_falcon_v4, dev_gsp,
// dev_riscv_pri, dev_fsp_pri, dev_gc6_island), as tinygrad's tables have them.
#include <fmt/format.h>

#include "decoder/explain/rules.h"
#include "decoder/model/words.h"

namespace tg::explain {
namespace {

constexpr uint64_t kLongNs = 1'000'000'000;
constexpr uint64_t kManyReads = 500;

// Microcontrollers: where their registers begin.
struct Falcon {
  uint64_t base;
  const char* name;
};
constexpr Falcon kFalcons[] = {{0x110000, "GSP"}, {0x840000, "SEC2"}, {0x8f0000, "FSP"}};
constexpr uint64_t kFalconSize = 0x4000;

struct Polled {
  uint64_t offset;  // from the falcon's base, or from BAR 0
  const char* name;
  const char* rule;
  const char* text;  // what does not happen
};
constexpr Polled kOfFalcon[] = {
    {0x040, "FALCON_MAILBOX0", "gsp_mailbox", "does not answer in its mailbox"},
    {0x044, "FALCON_MAILBOX1", "gsp_mailbox", "does not answer in its mailbox"},
    {0x0f4, "FALCON_HWCFG2", "falcon_reset", "does not come out of reset"},
    {0x100, "FALCON_CPUCTL", "falcon_running", "does not halt"},
    {0x118, "FALCON_DMATRFCMD", "falcon_dma", "DMA never gets idle"},
    {0x1388, "RISCV_CPUCTL", "falcon_running", "RISC-V core does not become active"},
    {0x1668, "RISCV_BCR_CTRL", "falcon_reset", "RISC-V core does not boot"},
    {0x2c80, "MSGQ_HEAD", "gsp_mailbox", "does not answer in its message queue"},
    {0x2c84, "MSGQ_TAIL", "gsp_mailbox", "does not answer in its message queue"},
};
constexpr Polled kOfBar[] = {
    {0x1180f8, "PGC6_BSI_SECURE_SCRATCH_14", "gsp_mailbox", "SEC2 does not hand over to GSP"},
    {0x118128, "PGC6_AON_SECURE_SCRATCH_GROUP_05_PRIV_LEVEL_MASK", "falcon_reset",
     "the card's own firmware does not finish"},
    {0x118234, "PGC6_AON_SECURE_SCRATCH_GROUP_05", "falcon_reset",
     "the card's own firmware does not finish"},
    {0xad00bc, "THERM_I2CS_SCRATCH", "falcon_reset", "the card does not come out of reset"},
};

struct Named {
  std::string where, text;
  const char* rule = "poll_stuck";
};

Named NameOf(const wire::RequestHeader& header) {
  for (const Polled& p : kOfBar)
    if (header.arg0 == p.offset) return {fmt::format("NV_{}", p.name), p.text, p.rule};
  for (const Falcon& falcon : kFalcons) {
    if (header.arg0 < falcon.base || header.arg0 - falcon.base >= kFalconSize) continue;
    for (const Polled& p : kOfFalcon) {
      if (header.arg0 - falcon.base == p.offset)
        return {fmt::format("{} {}", falcon.name, p.name),
                fmt::format("{} {}", falcon.name, p.text), p.rule};
    }
    return {fmt::format("{} falcon+{:#x}", falcon.name, header.arg0 - falcon.base),
            fmt::format("{} does not get on", falcon.name)};
  }
  return {{}, "a poll never ends"};
}

}  // namespace

void RulePollStuck(const Facts& facts, Findings& out) {
  // Several words in turn count where no single one is read over and over.
  const bool alone = facts.reads.reads >= kManyReads || facts.reads.duration_ns() >= kLongNs;
  const ReadRun& run = alone ? facts.reads : facts.turn;
  if (!alone && (run.reads < kManyReads || run.duration_ns() < kLongNs)) return;
  if (run.reads < 3 || run.first.call < facts.first_call || facts.finished) return;
  const uint64_t ones = run.header.arg1 == 8 ? ~0ull : (1ull << run.header.arg1 * 8) - 1;
  const bool sysmem = run.header.command == static_cast<uint8_t>(wire::Command::kSysmemRead);
  if (facts.device.vendor() == model::Vendor::kAmd || run.value == ones) return;
  const bool registers = !sysmem && run.header.bar == 0 && run.header.arg1 == 4;

  Finding f;
  f.kind = "hang";
  const Named named =
      sysmem ? Named{{}, "the card never writes the word the client waits for", "sysmem_unwritten"}
      : registers ? NameOf(run.header)
                  : Named{{}, "a poll never ends"};
  f.rule = named.rule;
  std::string where = named.where.empty() ? model::TargetText(run.header) : named.where;
  f.summary = fmt::format("{}: {} = {:#x}, {} reads over {}", named.text, where, run.value,
                          model::Thousands(run.reads), Duration(run.duration_ns()));
  // The driver gives up such a loop after 10 s.
  f.confidence = run.duration_ns() >= 9'000'000'000 ? 90 : run.duration_ns() >= kLongNs ? 82 : 65;
  if (!alone) f.confidence -= 15;
  if (!facts.whole) f.confidence -= 25;
  f.evidence.push_back(
      {run.first.call, fmt::format("first read of {}", model::TargetText(run.header))});
  f.evidence.push_back({run.last.call, fmt::format("read {}: still {:#x}", run.reads, run.value)});
  constexpr size_t kShown = 5;  // the newest
  const auto& writes = facts.session.recent_writes;
  for (size_t i = writes.size() > kShown ? writes.size() - kShown : 0; i < writes.size(); i++)
    if (const auto& write = writes[i]; write.seq >= facts.first_call)
      f.evidence.push_back({write.seq, "among the last writes: " + model::WriteText(write)});
  f.advice = Advice::kRestartProcess;
  f.reason = "the driver's next start resets the card; if it stops there again, power-cycle";
  for (const model::Warning& w : facts.warnings) {
    if (w.rule != "B06" || w.call > run.first.call) continue;
    f.rule = "bar_address";
    f.confidence = std::max(f.confidence, facts.whole ? 90 : 60);
    f.evidence.insert(f.evidence.begin(), {w.call, w.text});
    f.reason =
        "the card was given a MAP_BAR word as a DMA address: over this transport it is a pointer "
        "in "
        "the server, not a bus address; the client is at fault";
    break;
  }
  out.push_back(std::move(f));
}

// A client of such a card waits in memory that it has mapped, without a word on the wire, and gives
// up after 30 s without progress (HCQDEV_WAIT_TIMEOUT_MS).
void RuleSilentEnd(const Facts& facts, Findings& out) {
  constexpr uint64_t kClientLimit = 29'000'000'000;
  const model::Vendor vendor = facts.device.vendor();
  if (vendor != model::Vendor::kNvidia && vendor != model::Vendor::kOther) return;
  if (facts.silence_ns < kClientLimit || facts.server_closed_first) return;
  Finding f;
  f.rule = "silent_end";
  f.kind = "hang";
  f.confidence = 52;
  f.summary = fmt::format("silence for {} at the end: the client may have waited for the card",
                          Duration(facts.silence_ns));
  f.evidence.push_back({facts.last_call, "last call before the silence"});
  constexpr size_t kShown = 5;  // the newest
  const auto& writes = facts.session.recent_writes;
  for (size_t i = writes.size() > kShown ? writes.size() - kShown : 0; i < writes.size(); i++)
    if (const auto& write = writes[i]; write.seq >= facts.first_call)
      f.evidence.push_back({write.seq, "among the last writes: " + model::WriteText(write)});
  f.against.push_back(
      {0, "this card's queues are not decoded: a client that had nothing to do looks the same"});
  f.advice = Advice::kRestartProcess;
  f.reason = "the driver's next start resets the card; if it stops there again, power-cycle";
  out.push_back(std::move(f));
}

}  // namespace tg::explain
