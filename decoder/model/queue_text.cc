#include "decoder/model/queue_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace tg::model {
namespace {

std::string FieldText(const amd::PacketField& field) {
  std::string name(field.name);
  if (name.empty()) name = fmt::format("reg {:#x}", field.reg);
  switch (field.kind) {
    case amd::FieldKind::kBytes:
    case amd::FieldKind::kCount:
    case amd::FieldKind::kReference:
      return fmt::format("{}={}", name, field.value);
    default:
      return fmt::format("{}={:#x}", name, field.value);
  }
}

std::string AllFields(const amd::DecodedPacket& packet) {
  constexpr size_t kShown = 12;
  std::string out;
  for (size_t i = 0; i < packet.fields.size() && i < kShown; ++i) {
    out += ' ' + FieldText(packet.fields[i]);
  }
  if (packet.fields.size() > kShown || packet.fields.more()) out += " ...";
  return out;
}

}  // namespace

std::string WaitText(const amd::WaitSpec& wait) {
  std::string out =
      wait.memory ? fmt::format("[{:#x}]", wait.address) : fmt::format("reg {:#x}", wait.address);
  if (wait.mask != 0xffffffff) out += fmt::format(" & {:#x}", wait.mask);
  return out + fmt::format(" {} {}", amd::CompareText(wait.function), wait.reference);
}

std::string PacketText(const amd::DecodedPacket& packet) {
  std::string name(packet.name);
  if (name.empty()) name = fmt::format("op {:#x}", packet.op);
  std::string out;
  if (const auto wait = WaitOf(packet)) {
    out = name + ' ' + WaitText(*wait);
    if (packet.Find("write_register")) out += " (register flush)";
  } else if (const auto copy = CopyOf(packet)) {
    out = fmt::format("{} {} bytes {:#x} -> {:#x}", name, copy->bytes, copy->src, copy->dst);
    if (copy->dst2) out += fmt::format(" and {:#x}", *copy->dst2);
  } else if (const auto fence = FenceOf(packet)) {
    out = fmt::format("{} [{:#x}] = {}", name, fence->address, fence->value);
  } else if (const auto buffer = IndirectOf(packet)) {
    out = fmt::format("{} [{:#x}] {} dwords", name, buffer->address, buffer->dwords);
  } else if (packet.name == "DISPATCH_DIRECT") {
    out = fmt::format("{} {} x {} x {} groups", name, packet.Get("groups_x").value_or(0),
                      packet.Get("groups_y").value_or(0), packet.Get("groups_z").value_or(0));
  } else if (packet.name.empty()) {
    out = packet.dwords ? fmt::format("{}, {} dwords", name, packet.dwords) : name;
  } else if (packet.role == amd::PacketRole::kTimestamp) {
    out = fmt::format("{} [{:#x}]", name, packet.Get("address").value_or(0));
  } else {
    out = name + AllFields(packet);
  }
  if (packet.problem != amd::PacketProblem::kNone &&
      packet.problem != amd::PacketProblem::kUnknownOp) {
    out += fmt::format(" ({})", amd::ProblemText(packet.problem));
  }
  return out;
}

std::string PointerText(const Queue& queue, uint64_t position) {
  return fmt::format("{:#x}", queue.ToRaw(position));
}

std::string Headline(const QueueState& state) {
  const Queue& queue = *state.queue;
  std::string out = queue.name;
  const auto missing = [&] {
    if (!state.missing) return std::string();
    const MissingFence& m = *state.missing;
    return fmt::format(": [{:#x}] should be {}, {}", m.fence.va, m.fence.value,
                       m.memory ? fmt::format("memory holds {}", *m.memory) : "not observed");
  };
  const auto stuck = [&] {
    if (!state.stuck) return std::string();
    const QueueStuck& s = *state.stuck;
    if (!s.is_wait) return "; at: " + s.text;
    return fmt::format("; waiting: {}, {}{}", s.text,
                       s.has.empty() ? "memory not observed" : "memory holds " + s.has,
                       s.satisfied ? " (satisfied)" : "");
  };
  switch (state.kind) {
    case QueueState::Kind::kUnused:
      if (queue.doorbells > 0) {
        return out + fmt::format(" set up again at call {}, no doorbell since", queue.setup_call);
      }
      return out + " no doorbell rung";
    case QueueState::Kind::kNoPointers:
      out += fmt::format(" pointers not read by client; doorbell says {:#x}",
                         queue.last_doorbell_value);
      if (state.missing && state.missing->memory) out += "; fence not reached" + missing();
      if (state.stuck) return out + stuck();
      if (!state.ring_observed) out += "; ring content not observed";
      return out;
    default:
      break;
  }
  out += fmt::format(" rptr {} wptr {}", PointerText(queue, *state.rptr),
                     PointerText(queue, *state.wptr));
  switch (state.kind) {
    case QueueState::Kind::kIdle:
      return out + ", idle";
    case QueueState::Kind::kNoFence:
      return out + ", ring drained, fence not seen" + missing() + stuck();
    default:
      break;
  }
  out += fmt::format(", {} bytes", *state.outstanding_bytes);
  if (state.outstanding_packets) {
    out += fmt::format(" / {} packet{}", *state.outstanding_packets,
                       *state.outstanding_packets == 1 ? "" : "s");
  }
  out += " left";
  if (state.overrun) out += " (OVERRUN: more than the ring holds)";
  if (!state.ring_observed) return out + "; ring content not observed";
  return out + stuck();
}

}  // namespace tg::model
