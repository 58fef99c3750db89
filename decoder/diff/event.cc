#include "decoder/diff/event.h"

#include <fmt/format.h>

#include "decoder/model/queue_text.h"
#include "schemas/wire/commands.h"

namespace tg::diff {

std::string_view EventKindName(Event::Kind kind) {
  constexpr std::string_view kNames[] = {"call",       "config", "register", "vram",
                                         "page-table", "sysmem", "bar",      "doorbell",
                                         "interrupt",  "fence",  "end",      "gap"};
  return kNames[static_cast<size_t>(kind)];
}

std::string PacketSeen::Op() const {
  if (kind != amd::WalkItem::Kind::kPacket) return std::string(amd::WalkKindText(kind));
  const amd::DecodedPacket packet = format.Decode(raw);
  return packet.name.empty() ? fmt::format("op {:#x}", packet.op) : std::string(packet.name);
}

std::string PacketSeen::Text() const {
  if (kind != amd::WalkItem::Kind::kPacket)
    return fmt::format("{}, {} bytes", amd::WalkKindText(kind), size);
  return model::PacketText(format.Decode(raw));
}

std::string Event::What() const {
  switch (kind) {
    case Kind::kRegister: {
      std::string text =
          name.empty() ? fmt::format("bar{}+{:#x}", bar, address) : std::string(name);
      if (die) text += fmt::format(" die {}", die);
      if (index) text += fmt::format(" instance {}", index);
      return text;
    }
    case Kind::kVram:
      return fmt::format("VRAM {:#x}+{:#x}", address, size);
    case Kind::kPageTable:
      return fmt::format("page table {:#x}", address);
    case Kind::kSysmem:
      return fmt::format("sysmem {}+{:#x}+{:#x}", index, address, size);
    case Kind::kBar:
      return fmt::format("bar{}+{:#x}+{:#x}", bar, address, size);
    case Kind::kDoorbell:
      return fmt::format("doorbell bar2+{:#x}", address);
    default:
      return what_text;
  }
}

std::string Event::Value() const {
  switch (kind) {
    case Kind::kPageTable: {
      if (entry_read) return fmt::format("{:#x}, not the {:#x} that was written", number, flags);
      const std::string to = target == Target::kRegion
                                 ? fmt::format("region {}+{:#x}", index, number)
                             : target == Target::kDma ? fmt::format("DMA {:#x}", number)
                                                      : fmt::format("VRAM {:#x}", number);
      return fmt::format("{} {} -> {} flags {:#x}", size, size == 1 ? "entry" : "entries", to,
                         flags);
    }
    case Kind::kRegister:
    case Kind::kVram:
    case Kind::kSysmem:
    case Kind::kBar: {
      std::string text = content == Content::kZeros    ? "zeros"
                         : content == Content::kPieces ? "in pieces"
                         : content == Content::kHash   ? fmt::format("content {:016x}", number)
                                                       : fmt::format("{:#x}", number);
      if (times > 1) text += fmt::format(", {} times", times);
      return text;
    }
    case Kind::kDoorbell:
      return fmt::format("{:#x}", number);
    default:
      return value_text;
  }
}

std::string Event::Command() const {
  return command == 0xff ? std::string() : std::string(wire::CommandName(command));
}

std::string EventLine(const Event& e) {
  const std::string seq =
      e.last_seq > e.seq ? fmt::format("#{}..{}", e.seq, e.last_seq) : fmt::format("#{}", e.seq);
  const bool access = e.kind == Event::Kind::kRegister || e.kind == Event::Kind::kVram ||
                      e.kind == Event::Kind::kPageTable || e.kind == Event::Kind::kSysmem ||
                      e.kind == Event::Kind::kBar || e.kind == Event::Kind::kDoorbell;
  const std::string value = e.Value();
  return fmt::format("{:>12} {}{}{}{}", seq,
                     !access   ? ""
                     : e.write ? "write "
                               : "read ",
                     e.What(), value.empty() ? "" : " = ", value);
}

}  // namespace tg::diff
