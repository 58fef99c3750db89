#include "schemas/amd/packet.h"

#include "schemas/amd/packet_table.h"

namespace tg::amd {
namespace {

uint64_t BitsOf(uint32_t word, uint8_t msb, uint8_t lsb) {
  const uint64_t mask = (1ull << (msb - lsb + 1)) - 1;
  return (word >> lsb) & mask;
}

}  // namespace

std::string_view ProblemText(PacketProblem problem) {
  switch (problem) {
    case PacketProblem::kNone:
      return "";
    case PacketProblem::kTruncated:
      return "cut off";
    case PacketProblem::kUnknownOp:
      return "unknown op";
    case PacketProblem::kOtherGeneration:
      return "op of another generation";
    case PacketProblem::kReservedBits:
      return "reserved bits set";
    case PacketProblem::kBadLength:
      return "length does not fit the op";
    case PacketProblem::kBadValue:
      return "impossible field value";
    case PacketProblem::kNotAPacket:
      return "not a packet";
  }
  return "";
}

const PacketField* DecodedPacket::Find(std::string_view field) const {
  for (const PacketField& f : fields) {
    if (f.name == field) return &f;
  }
  return nullptr;
}

std::optional<uint64_t> DecodedPacket::Get(std::string_view field) const {
  const PacketField* f = Find(field);
  return f ? std::optional<uint64_t>(f->value) : std::nullopt;
}

void AddFields(std::span<const FieldSpec> specs, uint8_t gen, std::span<const uint8_t> bytes,
               FieldList& out) {
  const size_t dwords = bytes.size() / 4;
  for (const FieldSpec& spec : specs) {
    if (!(spec.gens & gen) || spec.dw >= dwords || spec.hi_dw >= dwords) continue;
    uint64_t value = BitsOf(Dword(bytes, spec.dw), spec.msb, spec.lsb);
    unsigned low_bits = spec.msb - spec.lsb + 1u;
    if (spec.in_place) {
      value <<= spec.lsb;
      low_bits += spec.lsb;
    }
    if (spec.hi_dw) value |= BitsOf(Dword(bytes, spec.hi_dw), spec.hi_msb, 0) << low_bits;
    value += spec.add;
    if (spec.quiet && value == 0) continue;
    out.Add({.name = spec.name, .value = value, .kind = spec.kind});
  }
}

bool HasOddBits(std::span<const FieldSpec> specs, uint8_t gen, std::span<const uint8_t> bytes) {
  std::array<uint32_t, 32> used{};
  const auto mark = [&](uint8_t dw, uint8_t msb, uint8_t lsb) {
    if (dw < used.size()) used[dw] |= static_cast<uint32_t>(((1ull << (msb - lsb + 1)) - 1) << lsb);
  };
  for (const FieldSpec& spec : specs) {
    if (!(spec.gens & gen)) continue;
    mark(spec.dw, spec.msb, spec.lsb);
    if (spec.hi_dw) mark(spec.hi_dw, spec.hi_msb, 0);
  }
  for (size_t dw = 1; dw < used.size() && dw < bytes.size() / 4; ++dw) {
    if (used[dw] && (Dword(bytes, dw) & ~used[dw])) return true;
  }
  return false;
}

uint32_t HeaderBits(std::span<const FieldSpec> specs, uint8_t gen) {
  uint64_t bits = 0;
  for (const FieldSpec& spec : specs) {
    if (spec.dw != 0 || !(spec.gens & gen)) continue;
    bits |= ((1ull << (spec.msb - spec.lsb + 1)) - 1) << spec.lsb;
  }
  return static_cast<uint32_t>(bits);
}

std::string_view CompareText(uint32_t function) {
  static constexpr std::string_view kText[] = {"always", "<", "<=", "==", "!=", ">=", ">"};
  return function < std::size(kText) ? kText[function] : "?";
}

bool CompareHolds(uint32_t function, uint32_t value, uint32_t reference, uint32_t mask) {
  value &= mask;
  switch (function) {
    case 0:
      return true;
    case 1:
      return value < reference;
    case 2:
      return value <= reference;
    case 3:
      return value == reference;
    case 4:
      return value != reference;
    case 5:
      return value >= reference;
    case 6:
      return value > reference;
    default:
      return false;
  }
}

std::optional<WaitSpec> WaitOf(const DecodedPacket& packet) {
  if (packet.role != PacketRole::kWait) return std::nullopt;
  const auto function = packet.Get("function"), reference = packet.Get("reference"),
             mask = packet.Get("mask");
  const PacketField* memory = packet.Find("address");
  const PacketField* reg = packet.Find("register");
  if (!function || !reference || !mask || (!memory && !reg)) return std::nullopt;
  return WaitSpec{.memory = memory != nullptr,
                  .address = memory ? memory->value : reg->value,
                  .function = static_cast<uint32_t>(*function),
                  .reference = static_cast<uint32_t>(*reference),
                  .mask = static_cast<uint32_t>(*mask)};
}

std::optional<FenceSpec> FenceOf(const DecodedPacket& packet) {
  if (packet.role != PacketRole::kSignal) return std::nullopt;
  const auto address = packet.Get("address"), data = packet.Get("data");
  if (!address || !data) return std::nullopt;
  return FenceSpec{.address = *address,
                   .value = *data,
                   .bytes = static_cast<uint32_t>(packet.Get("width").value_or(4))};
}

std::optional<CopySpec> CopyOf(const DecodedPacket& packet) {
  if (packet.role != PacketRole::kCopy) return std::nullopt;
  const auto src = packet.Get("src"), dst = packet.Get("dst"), bytes = packet.Get("bytes");
  if (!src || !dst || !bytes) return std::nullopt;
  return CopySpec{.src = *src, .dst = *dst, .bytes = *bytes, .dst2 = packet.Get("dst2")};
}

std::optional<IndirectSpec> IndirectOf(const DecodedPacket& packet) {
  if (packet.role != PacketRole::kIndirect) return std::nullopt;
  const auto address = packet.Get("address"), dwords = packet.Get("dwords");
  if (!address || !dwords) return std::nullopt;
  return IndirectSpec{.address = *address, .dwords = static_cast<uint32_t>(*dwords)};
}

}  // namespace tg::amd
