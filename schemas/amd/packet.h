// What a decoded queue packet looks like, whichever queue it came from (SDMA, PM4, AQL).
//
// A decoder takes the bytes at a packet's start and gives its name, its length, its fields and a
// *role*: what the packet means to a queue (it waits, it signals, it copies, ...), so that code
// that follows a ring need not know the packet formats. Nothing is allocated: fields lie in the
// packet.
//
// Untrusted input: rings are overwritten while they are read and may hold anything. A decoder never
// fails; what it could not make sense of is in `problem`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tg::amd {

enum class FieldKind : uint8_t {
  kValue,      // a plain number: coordinates, pitches, sizes in elements
  kAddress,    // GPU virtual address
  kBytes,      // a size in bytes
  kCount,      // a number of things (dwords, work groups, page-table entries)
  kData,       // what is written to memory
  kReference,  // what a value in memory is compared with
  kMask,
  kFunction,  // comparison, see CompareText
  kRegister,  // register, as dword index; `value` of SET_*_REG fields is what is written to it
  kFlags,     // bits that change how, not what
  kEvent,
};

struct PacketField {
  std::string_view name;  // static storage; empty: SET_*_REG to a register without a name here
  uint64_t value = 0;
  FieldKind kind = FieldKind::kValue;
  uint32_t reg = 0;  // kRegister of SET_*_REG: absolute dword index of the register written
};

enum class PacketRole : uint8_t {
  kOther,
  kNop,
  kWait,       // holds the queue until memory (or a register) has a value: WaitOf
  kSignal,     // writes a value others wait for: FENCE, RELEASE_MEM with data: FenceOf
  kTimestamp,  // writes a clock
  kCopy,       // moves bytes: CopyOf
  kWrite,      // writes bytes that lie in the packet, or a pattern
  kIndirect,   // continues in another buffer: IndirectOf
  kDispatch,   // starts a kernel
  kState,      // sets registers
  kBarrier,    // cache or ordering work
  kTrap,       // interrupt
};

enum class PacketProblem : uint8_t {
  kNone = 0,
  kTruncated,        // the bytes end inside the packet; `dwords` is the whole length (0: unknown)
  kUnknownOp,        // no such op; SDMA: length unknown (dwords = 0), PM4: length from the header
  kOtherGeneration,  // an op, but not of this generation; `dwords` as there
  kReservedBits,     // bits that must be zero are set
  kBadLength,        // the header's length does not fit the op
  kBadValue,         // a field holds what the hardware does not know
  kNotAPacket,       // unwritten memory, or what never is a header
};
std::string_view ProblemText(PacketProblem problem);

// Fields of one packet, in the order of the packet. Longer packets (SET_SH_REG with many values)
// keep the first ones and say so.
class FieldList {
 public:
  static constexpr size_t kCapacity = 32;
  void Add(const PacketField& field) {
    if (size_ < kCapacity) {
      items_[size_++] = field;
    } else {
      more_ = true;
    }
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool more() const { return more_; }  // some did not fit
  const PacketField* begin() const { return items_.data(); }
  const PacketField* end() const { return items_.data() + size_; }
  const PacketField& operator[](size_t i) const { return items_[i]; }

 private:
  std::array<PacketField, kCapacity> items_{};
  size_t size_ = 0;
  bool more_ = false;
};

struct DecodedPacket {
  std::string_view name;  // "POLL_REGMEM", "COPY_LINEAR"; empty: not in the tables
  uint16_t op = 0;        // SDMA op, PM4 opcode (type 3) or AQL packet type
  uint16_t sub_op = 0;    // SDMA only
  uint32_t dwords = 0;    // length of the whole packet; 0: not known
  PacketRole role = PacketRole::kOther;
  PacketProblem problem = PacketProblem::kNone;
  bool odd_bits = false;  // SDMA: the body has bits outside its fields. No problem by itself, but
                          // who looks for packets in unknown bytes does not take such a one
  FieldList fields;
  std::span<const uint8_t> raw;  // the packet's bytes as far as they were there

  uint32_t bytes() const { return dwords * 4; }
  const PacketField* Find(std::string_view field) const;
  std::optional<uint64_t> Get(std::string_view field) const;
};

// ---- meanings --------------------------------------------------------------------------------

// Comparisons of POLL_REGMEM and WAIT_REG_MEM: 0 always, 1 <, 2 <=, 3 ==, 4 !=, 5 >=, 6 >. 7: "?".
std::string_view CompareText(uint32_t function);
// What the hardware does: (value & mask) FUNCTION reference, unsigned. 7 never holds.
bool CompareHolds(uint32_t function, uint32_t value, uint32_t reference, uint32_t mask);

struct WaitSpec {
  bool memory = true;  // false: `address` is a register's dword index
  uint64_t address = 0;
  uint32_t function = 0;
  uint32_t reference = 0;
  uint32_t mask = 0;
};
struct FenceSpec {
  uint64_t address = 0;
  uint64_t value = 0;
  uint32_t bytes = 4;  // width of the write: 4 or 8
};
struct CopySpec {
  uint64_t src = 0;
  uint64_t dst = 0;
  uint64_t bytes = 0;
  std::optional<uint64_t> dst2;  // broadcast copy
};
struct IndirectSpec {
  uint64_t address = 0;
  uint32_t dwords = 0;
};

// Empty when the packet is of another role, is truncated, or (CopyOf) has no linear size.
std::optional<WaitSpec> WaitOf(const DecodedPacket& packet);
std::optional<FenceSpec> FenceOf(const DecodedPacket& packet);
std::optional<CopySpec> CopyOf(const DecodedPacket& packet);
std::optional<IndirectSpec> IndirectOf(const DecodedPacket& packet);

// Little-endian load at byte `at`; the caller has checked that it is there.
inline uint32_t Dword(std::span<const uint8_t> bytes, size_t dword) {
  const uint8_t* p = bytes.data() + dword * 4;
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
         static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
}

}  // namespace tg::amd
