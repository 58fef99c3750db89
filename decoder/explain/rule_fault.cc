// Page faults and refused packets or shaders: rows 5 to 7.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/explain/blame.h"
#include "decoder/explain/card.h"
#include "decoder/explain/rules.h"
#include "decoder/model/queue_text.h"
#include "schemas/amd/fault.h"

namespace tg::explain {
namespace {

// Text of the outstanding packet whose range holds the page, with its queue; empty if none does.
std::string PacketAt(const Facts& facts, uint64_t page) {
  const auto holds = [page](uint64_t begin, uint64_t size) {
    return page + 4096 > begin && page < begin + size;
  };
  for (const QueueView& view : facts.queues) {
    for (const model::QueueItem& item : view.state.items) {
      if (item.kind != amd::WalkItem::Kind::kPacket) continue;
      const auto copy = amd::CopyOf(item.packet);
      const auto wait = amd::WaitOf(item.packet);
      const auto fence = amd::FenceOf(item.packet);
      if ((copy && (holds(copy->src, copy->bytes) || holds(copy->dst, copy->bytes))) ||
          (wait && wait->memory && holds(wait->address, 8)) ||
          (fence && holds(fence->address, fence->bytes)))
        return view.name() + " packet that touches it: " + model::PacketText(item.packet);
    }
  }
  return {};
}

}  // namespace

void RulePageFault(const Facts& facts, Findings& out) {
  const model::Fault* fault = facts.device.faults().newest();
  const model::Interrupt* entry = nullptr;
  for (const model::Interrupt& i : facts.interrupts)
    if (i.meaning.effect == amd::IhEffect::kPageFault) entry = &i;
  const uint64_t booted = facts.Since();
  // What was latched before this session booted is the last session's.
  if (fault && (fault->raw == 0 || fault->last.call <= booted)) fault = nullptr;
  if (entry && entry->at.call <= booted) entry = nullptr;
  if (!fault && !entry) return;

  Finding f;
  f.rule = "page_fault";
  f.kind = "hang";
  const int hang = facts.HangCertainty(&f.evidence);
  f.confidence = hang >= 55 ? 97 : facts.finished ? 72 : 60;
  f.advice = Advice::kRestartProcess;
  const bool latched = fault && !fault->cleared;
  f.reason = latched ? "the latched fault makes the next start a full boot, which clears it"
                     : "the driver has cleared the fault, a new process starts afresh (in a full "
                       "boot if one is latched again)";
  bool sdma = false;
  std::string who = "page fault";
  if (fault) {
    sdma = fault->gc_hub && amd::IsSdmaFaultClient(facts.device.gc(), fault->status.client);
    who = fmt::format("page fault: {}",
                      fault->text.empty() ? "status " + Hex(fault->raw) : fault->text);
    f.evidence.insert(f.evidence.begin(),
                      {fault->first.call, "fault status " + Hex(fault->raw) + ": " + fault->text});
  }
  if (entry)
    f.evidence.insert(f.evidence.begin(), {entry->at.call, "interrupt " + entry->meaning.text});
  std::optional<uint64_t> va = fault ? fault->va() : std::nullopt;
  if (va) {
    f.summary = fmt::format("{} at {}", who, Hex(*va));
    f.evidence.push_back({0, fmt::format("{}: {}", Hex(*va), facts.device.gpuvm().Describe(*va))});
    std::string packet = PacketAt(facts, *va);
    if (!packet.empty()) f.evidence.push_back({0, std::move(packet)});
  } else {
    f.summary = who + ", address not observed";
    f.confidence -= 6;
  }
  if (sdma) {
    f.rule = "page_fault_sdma";
    f.reason =
        "recovery does not reset the SDMA engine; a full boot does. If the first copy hangs: "
        "AM_RESET=1";
  }
  if (facts.finished && !facts.error_state && !facts.recovered) {
    f.reason += "; this session went on, but data may be wrong: faults go to a dummy page";
  }
  AddQueueEvidence(facts, f);
  out.push_back(std::move(f));
}

namespace {

// What an error interrupt says, beyond page faults.
enum class Complaint : uint8_t { kOther, kShader, kPacket, kSdma, kBitError };

struct SourceMeaning {
  uint8_t source;
  Complaint complaint;
};
// gfx11 and later, clients GFX and GRBM_CP; the CP's are the same on gfx9 (amd-structs, sources).
constexpr SourceMeaning kSources[] = {
    {1, Complaint::kBitError},    // UTCL2_DATA_POISONING
    {54, Complaint::kSdma},       // SDMA_DOORBELL_INVALID
    {55, Complaint::kSdma},       // SDMA_QUEUE_HANG
    {56, Complaint::kSdma},       // SDMA_ATOMIC_TIMEOUT
    {57, Complaint::kSdma},       // SDMA_POLL_TIMEOUT
    {58, Complaint::kSdma},       // SDMA_PAGE_TIMEOUT
    {59, Complaint::kSdma},       // SDMA_PAGE_NULL
    {60, Complaint::kSdma},       // SDMA_PAGE_FAULT
    {61, Complaint::kSdma},       // SDMA_VM_HOLE
    {62, Complaint::kBitError},   // SDMA_ECC
    {63, Complaint::kSdma},       // SDMA_FROZEN
    {64, Complaint::kBitError},   // SDMA_SRAM_ECC
    {65, Complaint::kSdma},       // SDMA_SEM_INCOMPLETE_TIMEOUT
    {66, Complaint::kSdma},       // SDMA_SEM_WAIT_FAIL_TIMEOUT
    {128, Complaint::kBitError},  // RLC_GC_FED_INTERRUPT
    {180, Complaint::kPacket},    // CP_PM4_PKT_RSVD_BIT_ERROR
    {183, Complaint::kPacket},    // CP_BAD_OPCODE_ERROR
    {184, Complaint::kPacket},    // CP_PRIV_REG_FAULT
    {185, Complaint::kPacket},    // CP_PRIV_INSTR_FAULT
    {197, Complaint::kBitError},  // CP_ECC_ERROR
    {201, Complaint::kBitError},  // CP_FUE_ERROR
};

Complaint ComplaintOf(amd::IpVersion gc, const model::Interrupt& i) {
  if (i.meaning.effect == amd::IhEffect::kShaderError) return Complaint::kShader;
  const std::string_view name = amd::IhSourceName(gc, i.entry.client, i.entry.source);
  if (gc.major < 11 && name.starts_with("SDMA_"))
    return name.find("ECC") == name.npos ? Complaint::kSdma : Complaint::kBitError;
  if (name.empty()) return Complaint::kOther;
  for (const SourceMeaning& m : kSources)
    if (m.source == i.entry.source) return m.complaint;
  return Complaint::kOther;
}

Finding FromInterrupt(const Facts& facts, const model::Interrupt& i) {
  Finding f;
  f.kind = "hang";
  f.confidence = 96;
  f.evidence.push_back({i.at.call, "interrupt " + i.meaning.text});
  facts.HangCertainty(&f.evidence);
  AddQueueEvidence(facts, f);
  return f;
}

}  // namespace

void RuleBadPacket(const Facts& facts, Findings& out) {
  if (!facts.error_interrupt) return;
  const model::Interrupt& i = *facts.error_interrupt;
  const Complaint complaint = ComplaintOf(facts.device.gc(), i);
  if (complaint != Complaint::kShader && complaint != Complaint::kPacket) return;
  const bool shader = complaint == Complaint::kShader;
  Finding f = FromInterrupt(facts, i);
  f.rule = shader ? "shader_error" : "bad_packet";
  f.summary =
      fmt::format("{}: {}", shader ? "a kernel failed" : "the command processor refused a packet",
                  i.meaning.text);
  f.advice = Advice::kRestartProcess;
  f.reason = "the kernel or the ring's content is at fault, not the card";
  if (i.meaning.text.find(" EDC_") != std::string::npos)
    f.reason = "a bit error in the card, not the kernel: if it recurs, power-cycle and report it";
  out.push_back(std::move(f));
}

void RuleErrorInterrupt(const Facts& facts, Findings& out) {
  if (!facts.error_interrupt) return;
  const model::Interrupt& i = *facts.error_interrupt;
  if (i.meaning.effect == amd::IhEffect::kPageFault) return;
  const Complaint complaint = ComplaintOf(facts.device.gc(), i);
  if (complaint == Complaint::kShader || complaint == Complaint::kPacket) return;
  Finding f = FromInterrupt(facts, i);
  if (complaint == Complaint::kBitError) {
    f.rule = "bit_error";
    f.summary = fmt::format("the card reports a bit error: {}", i.meaning.text);
    AdviseCardReset(facts, f, "an error in the card's memories, which a mode-1 reset clears",
                    "if it recurs, power-cycle and report it");
  } else if (complaint == Complaint::kSdma) {
    // Where the queue was seen, the rule about it says more.
    const QueueView* sdma = facts.FindQueue(true);
    f.rule = "sdma_stuck";
    f.confidence = sdma && sdma->stuck() ? 60 : 85;
    f.summary =
        fmt::format("the SDMA engine reports {}; where it stands: not observed", i.meaning.text);
    if (sdma) {
      AdviseOnEngine(facts, *sdma, f);
    } else {
      f.advice = Advice::kRestartProcess;
      f.reason = "if it hangs at the first copy, start once with AM_RESET=1";
    }
  } else {
    f.rule = "error_interrupt";
    // It ends the client's wait at once, so how far the queues were tells little.
    f.confidence = facts.recovered && facts.wait_ns < 5'000'000'000 ? 94 : 70;
    f.summary = fmt::format("an interrupt set the driver's error state: {}", i.meaning.text);
    f.advice = Advice::kRestartProcess;
    f.reason = "the driver takes every interrupt it has no use for as an error";
  }
  out.push_back(std::move(f));
}

void RuleRas(const Facts& facts, Findings& out) {
  const RasError& ras = facts.ras;
  if (!ras.at || ras.at.call < facts.first_call) return;
  Finding f;
  f.rule = "ras";
  f.kind = "hang";
  f.confidence = 96;
  f.summary = fmt::format("fatal hardware error reported by the {} ({} = {:#x})",
                          ras.athub ? "ATHUB" : "controller", ras.name, ras.value);
  f.evidence.push_back({ras.at.call, fmt::format("{} = {:#x}", ras.name, ras.value)});
  facts.HangCertainty(&f.evidence);
  AddQueueEvidence(facts, f);
  f.advice = Advice::kPowerCycle;
  f.reason = "an uncorrectable hardware error: power-cycle the card and report it";
  out.push_back(std::move(f));
}

}  // namespace tg::explain
