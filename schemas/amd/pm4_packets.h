// PM4 packets of the compute ring: gfx9 (MI3xx), gfx11 and gfx12.
//
// dword 0: [31:30] type. Type 3: [29:16] body dwords - 1, [15:8] opcode, [0] predicate, [1] shader
// type. Type 2: one-dword filler. Type 0: [15:0] register, count as in type 3: a zero dword is a
// type 0 header and in practice unwritten ring (kNotAPacket). NOP with count 0x3fff: one dword.
//
// Every opcode has its length in the header, so an opcode outside the table is named by number and
// stepped over (kUnknownOp, dwords set). Opcodes with a fixed length that the header contradicts
// are kBadLength: the mark of a lost step.
//
// Field names the queue code relies on: WAIT_REG_MEM address or register / function / reference /
// mask; RELEASE_MEM address / data / width; INDIRECT_BUFFER address / dwords; SET_SH_REG: one field
// per register, `reg` its dword index; "code" and "kernarg" are the addresses made of such pairs.
//
// Facts: pm4_nv.h and pm4_soc15.h names as tinygrad's autogen/am/pm4_{nv,soc15}.py carries them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "schemas/amd/packet.h"

namespace tg::amd {

enum class Pm4Gen : uint8_t { kGfx9 = 0, kGfx11 = 1, kGfx12 = 2 };
// From the GC version's major number; 10 and below 9 read as the nearest.
Pm4Gen Pm4GenOf(unsigned gc_major);

DecodedPacket DecodePm4(std::span<const uint8_t> bytes, Pm4Gen gen);

// "DISPATCH_DIRECT"; empty when the opcode is not known for this generation.
std::string_view Pm4Name(uint8_t opcode, Pm4Gen gen);

// Name of a shader register (dword index 0x2c00 ..), empty when not known here.
std::string_view ShRegisterName(uint32_t dword_index, Pm4Gen gen);

}  // namespace tg::amd
