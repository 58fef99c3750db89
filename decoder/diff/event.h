// One event of a trace, as a line for people. Most events are never printed, so an event keeps
// numbers and static names; its text is made when somebody asks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/boot.h"
#include "schemas/amd/packet_walker.h"

namespace tg::diff {

// A packet that a doorbell announced.
struct PacketSeen {
  amd::PacketFormat format;
  amd::WalkItem::Kind kind = amd::WalkItem::Kind::kPacket;
  uint32_t depth = 0;  // > 0: in an indirect buffer
  uint64_t size = 0;
  std::vector<uint8_t> raw;  // the packet, or nothing where it is none
  std::string Op() const;    // "COPY_LINEAR"
  std::string Text() const;  // "COPY_LINEAR 4096 bytes 0x1000 -> 0x2000"
};

struct Event {
  enum class Kind : uint8_t {
    kCall,    // a request that is no access: MAP_BAR, RESET, MAP_SYSMEM_FD, ...; connections
    kConfig,  // PCI configuration space
    kRegister,
    kVram,       // a block written to or read from VRAM
    kPageTable,  // entries of page tables, a run of them as one
    kSysmem,     // SYSMEM_READ and _WRITE (TCP)
    kBar,        // any other BAR
    kDoorbell,   // with the packets that it announced
    kInterrupt,
    kFence,  // a submission that was never finished
    kEnd,
    kGap,  // records were lost here
  };
  enum class Target : uint8_t { kVram, kRegion, kDma };
  enum class Content : uint8_t { kNumber, kZeros, kHash, kPieces };

  Kind kind = Kind::kCall;
  model::Phase phase = model::Phase::kConnect;
  int8_t bar = -1;
  bool write = false;
  uint8_t command = 0xff;  // of the wire
  uint64_t seq = 0;
  uint64_t last_seq = 0;  // of a run
  uint64_t time_ns = 0;
  uint64_t times = 1;  // equal writes in a row

  std::string_view name;  // of a register; static storage
  uint64_t address = 0;   // where: byte offset
  uint64_t size = 0;
  uint64_t number = 0;  // what
  uint32_t index = 0;   // register: instance; memory: region or BAR
  uint8_t die = 0;
  Content content = Content::kNumber;

  // kPageTable: `size` entries from `address` on, to `number` and on, in region `index`
  Target target = Target::kVram;
  uint64_t flags = 0;
  bool entry_read = false;  // read back, and not what was written

  // Kinds that are rare say themselves what they are.
  std::string what_text, value_text;

  std::string queue;  // doorbell: name of its queue
  std::vector<PacketSeen> packets;
  bool packets_known = false;

  std::string What() const;   // "regSCRATCH_REG7", "doorbell bar2+0x800"
  std::string Value() const;  // "0xa0000008"; may be empty
  std::string Command() const;
};
std::string_view EventKindName(Event::Kind kind);

// "#12..40 write regX = 0x1"; a doorbell's packets are not in it.
std::string EventLine(const Event& event);

}  // namespace tg::diff
