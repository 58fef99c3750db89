// Page faults and refused packets or shaders: rows 5 to 7.
#include <fmt/format.h>

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
  for (const model::Interrupt& i : facts.device.ih().interrupts())
    if (i.meaning.effect == amd::IhEffect::kPageFault) entry = &i;
  const uint64_t booted = facts.boot ? facts.boot->booted.call : 0;
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
  f.reason = "the latched fault makes the next start a full boot, which clears it";
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
    f.evidence.push_back(
        {0, fmt::format("{} is {}", Hex(*va), facts.device.gpuvm().Describe(*va))});
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
  out.push_back(std::move(f));
}

void RuleBadPacket(const Facts& facts, Findings& out) {
  const uint64_t booted = facts.boot ? facts.boot->booted.call : 0;
  for (const model::Interrupt& i : facts.device.ih().interrupts()) {
    if (i.at.call <= booted) continue;
    const bool shader = i.meaning.effect == amd::IhEffect::kShaderError;
    // CP sources 180 (reserved bit), 183 (bad opcode), 184/185 (privilege): the ring's content.
    const bool packet = i.entry.source == 180 || i.entry.source == 183 || i.entry.source == 184 ||
                        i.entry.source == 185;
    if (!shader && !(packet && i.meaning.effect == amd::IhEffect::kError)) continue;
    Finding f;
    f.rule = shader ? "shader_error" : "bad_packet";
    f.kind = "hang";
    f.confidence = 96;
    f.summary =
        fmt::format("{}: {}", shader ? "a kernel failed" : "the command processor refused a packet",
                    i.meaning.text);
    f.evidence.push_back({i.at.call, "interrupt " + i.meaning.text});
    facts.HangCertainty(&f.evidence);
    f.advice = Advice::kRestartProcess;
    f.reason = "the kernel or the ring's content is at fault, not the card";
    out.push_back(std::move(f));
    return;
  }
}

void RuleRas(const Facts& facts, Findings& out) {
  const model::RegisterState* reg = nullptr;
  for (const model::RegisterState& r : facts.device.registers().all())
    if (r.role == model::Role::kDoorbellInt && r.reads > 0) reg = &r;
  if (!reg || !reg->hit || reg->last_read.value == UINT32_MAX ||
      reg->last_read.at.call < facts.first_call)
    return;
  const uint64_t value = reg->last_read.value;
  const bool controller = amd::GetField(*reg->hit.reg, "ras_cntlr_interrupt_status", value) == 1u;
  const bool athub =
      amd::GetField(*reg->hit.reg, "ras_athub_err_event_interrupt_status", value) == 1u;
  if (!controller && !athub) return;
  Finding f;
  f.rule = "ras";
  f.kind = "hang";
  f.confidence = 96;
  f.summary = fmt::format("fatal hardware error reported by the {} ({} = {:#x})",
                          athub ? "ATHUB" : "controller", reg->name(), value);
  f.evidence.push_back({reg->last_read.at.call, fmt::format("{} = {:#x}", reg->name(), value)});
  f.advice = Advice::kPowerCycle;
  f.reason = "an uncorrectable hardware error: power-cycle the card and report it";
  out.push_back(std::move(f));
}

}  // namespace tg::explain
