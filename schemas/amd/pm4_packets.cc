#include "schemas/amd/pm4_packets.h"

#include <iterator>

#include "schemas/amd/packet_table.h"

namespace tg::amd {
namespace {

using K = FieldKind;
using R = PacketRole;

constexpr uint8_t k9 = 1, k11 = 2, k12 = 4;
constexpr uint8_t kNew = k11 | k12, kEvery = k9 | kNew;

constexpr uint32_t kShBase = 0x2c00, kUconfigBase = 0xc000, kContextBase = 0xa000,
                   kConfigBase = 0x2000;

// ---- opcodes ---------------------------------------------------------------------------------

struct Opcode {
  uint8_t op;
  uint8_t gens;
  std::string_view name;
};
// pm4_nv.h; those that pm4_soc15.h has too are kEvery.
constexpr Opcode kOpcodes[] = {
    {0x10, kEvery, "NOP"},
    {0x11, kEvery, "SET_BASE"},
    {0x12, kEvery, "CLEAR_STATE"},
    {0x13, kEvery, "INDEX_BUFFER_SIZE"},
    {0x15, kEvery, "DISPATCH_DIRECT"},
    {0x16, kEvery, "DISPATCH_INDIRECT"},
    {0x17, kNew, "INDIRECT_BUFFER_END"},
    {0x19, kNew, "INDIRECT_BUFFER_CNST_END"},
    {0x1d, kEvery, "ATOMIC_GDS"},
    {0x1e, kEvery, "ATOMIC_MEM"},
    {0x1f, kEvery, "OCCLUSION_QUERY"},
    {0x20, kEvery, "SET_PREDICATION"},
    {0x21, kEvery, "REG_RMW"},
    {0x22, kEvery, "COND_EXEC"},
    {0x23, kEvery, "PRED_EXEC"},
    {0x24, kEvery, "DRAW_INDIRECT"},
    {0x25, kEvery, "DRAW_INDEX_INDIRECT"},
    {0x26, kEvery, "INDEX_BASE"},
    {0x27, kEvery, "DRAW_INDEX_2"},
    {0x28, kEvery, "CONTEXT_CONTROL"},
    {0x2a, kEvery, "INDEX_TYPE"},
    {0x2c, kEvery, "DRAW_INDIRECT_MULTI"},
    {0x2d, kEvery, "DRAW_INDEX_AUTO"},
    {0x2f, kEvery, "NUM_INSTANCES"},
    {0x30, kEvery, "DRAW_INDEX_MULTI_AUTO"},
    {0x32, kNew, "INDIRECT_BUFFER_PRIV"},
    {0x33, kEvery, "INDIRECT_BUFFER_CNST"},
    {0x34, kEvery, "STRMOUT_BUFFER_UPDATE"},
    {0x35, kEvery, "DRAW_INDEX_OFFSET_2"},
    {0x36, kEvery, "DRAW_PREAMBLE"},
    {0x37, kEvery, "WRITE_DATA"},
    {0x38, kEvery, "DRAW_INDEX_INDIRECT_MULTI"},
    {0x39, kEvery, "MEM_SEMAPHORE"},
    {0x3a, kNew, "DRAW_INDEX_MULTI_INST"},
    {0x3b, kNew, "COPY_DW"},
    {0x3c, kEvery, "WAIT_REG_MEM"},
    {0x3f, kEvery, "INDIRECT_BUFFER"},
    {0x40, kEvery, "COPY_DATA"},
    {0x41, kNew, "CP_DMA"},
    {0x42, kEvery, "PFP_SYNC_ME"},
    {0x43, kNew, "SURFACE_SYNC"},
    {0x44, kNew, "ME_INITIALIZE"},
    {0x45, kEvery, "COND_WRITE"},
    {0x46, kEvery, "EVENT_WRITE"},
    {0x47, kNew, "EVENT_WRITE_EOP"},
    {0x48, kNew, "EVENT_WRITE_EOS"},
    {0x49, kEvery, "RELEASE_MEM"},
    {0x4a, kEvery, "PREAMBLE_CNTL"},
    {0x50, kEvery, "DMA_DATA"},
    {0x51, kNew, "CONTEXT_REG_RMW"},
    {0x52, kNew, "GFX_CNTX_UPDATE"},
    {0x53, kNew, "BLK_CNTX_UPDATE"},
    {0x55, kNew, "INCR_UPDT_STATE"},
    {0x58, kEvery, "ACQUIRE_MEM"},
    {0x59, kEvery, "REWIND"},
    {0x5a, kNew, "INTERRUPT"},
    {0x5b, kNew, "GEN_PDEPTE"},
    {0x5c, kNew, "INDIRECT_BUFFER_PASID"},
    {0x5d, kNew, "PRIME_UTCL2"},
    {0x5e, kEvery, "LOAD_UCONFIG_REG"},
    {0x5f, kEvery, "LOAD_SH_REG"},
    {0x60, kEvery, "LOAD_CONFIG_REG"},
    {0x61, kEvery, "LOAD_CONTEXT_REG"},
    {0x62, kNew, "LOAD_COMPUTE_STATE"},
    {0x63, kNew, "LOAD_SH_REG_INDEX"},
    {0x68, kEvery, "SET_CONFIG_REG"},
    {0x69, kEvery, "SET_CONTEXT_REG"},
    {0x6a, kNew, "SET_CONTEXT_REG_INDEX"},
    {0x71, kNew, "SET_VGPR_REG_DI_MULTI"},
    {0x72, kNew, "SET_SH_REG_DI"},
    {0x73, kEvery, "SET_CONTEXT_REG_INDIRECT"},
    {0x74, kNew, "SET_SH_REG_DI_MULTI"},
    {0x75, kNew, "GFX_PIPE_LOCK"},
    {0x76, kEvery, "SET_SH_REG"},
    {0x77, kEvery, "SET_SH_REG_OFFSET"},
    {0x78, kEvery, "SET_QUEUE_REG"},
    {0x79, kEvery, "SET_UCONFIG_REG"},
    {0x7a, kNew, "SET_UCONFIG_REG_INDEX"},
    {0x7c, kNew, "FORWARD_HEADER"},
    {0x7d, kEvery, "SCRATCH_RAM_WRITE"},
    {0x7e, kEvery, "SCRATCH_RAM_READ"},
    {0x80, kEvery, "LOAD_CONST_RAM"},
    {0x81, kEvery, "WRITE_CONST_RAM"},
    {0x83, kEvery, "DUMP_CONST_RAM"},
    {0x84, kEvery, "INCREMENT_CE_COUNTER"},
    {0x85, kEvery, "INCREMENT_DE_COUNTER"},
    {0x86, kEvery, "WAIT_ON_CE_COUNTER"},
    {0x88, kEvery, "WAIT_ON_DE_COUNTER_DIFF"},
    {0x8b, kEvery, "SWITCH_BUFFER"},
    {0x8c, kNew, "DISPATCH_DRAW_PREAMBLE"},
    {0x8d, kNew, "DISPATCH_DRAW"},
    {0x8e, kNew, "GET_LOD_STATS"},
    {0x8f, kNew, "DRAW_MULTI_PREAMBLE"},
    {0x90, kEvery, "FRAME_CONTROL"},
    {0x91, kNew, "INDEX_ATTRIBUTES_INDIRECT"},
    {0x93, kNew, "WAIT_REG_MEM64"},
    {0x94, kNew, "COND_PREEMPT"},
    {0x95, kNew, "HDP_FLUSH"},
    {0x96, kNew, "COPY_DATA_RB"},
    {0x98, kEvery, "INVALIDATE_TLBS"},
    {0x99, kNew, "AQL_PACKET"},
    {0x9a, kNew, "DMA_DATA_FILL_MULTI"},
    {0x9b, kNew, "SET_SH_REG_INDEX"},
    {0x9c, kNew, "DRAW_INDIRECT_COUNT_MULTI"},
    {0x9d, kNew, "DRAW_INDEX_INDIRECT_COUNT_MULTI"},
    {0x9e, kNew, "DUMP_CONST_RAM_OFFSET"},
    {0x9f, kNew, "LOAD_CONTEXT_REG_INDEX"},
    {0xa0, kEvery, "SET_RESOURCES"},
    {0xa1, kNew, "MAP_PROCESS"},
    {0xa2, kEvery, "MAP_QUEUES"},
    {0xa3, kEvery, "UNMAP_QUEUES"},
    {0xa4, kEvery, "QUERY_STATUS"},
    {0xa5, kNew, "RUN_LIST"},
    {0xa6, kNew, "MAP_PROCESS_VM"},
    {0xd2, kEvery, "RUN_CLEANER_SHADER"},
    {0xd7, k9, "RUN_CLEANER_SHADER_9_0"},
    {0xf0, kNew, "SET_Q_PREEMPTION_MODE"},
};

const Opcode* FindOpcode(uint8_t op) {
  for (const Opcode& row : kOpcodes) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

// ---- bodies ----------------------------------------------------------------------------------

constexpr FieldSpec Wide(FieldSpec spec, uint8_t hi_dw) {
  spec.hi_dw = hi_dw;
  return spec;
}

#define TG_WAIT_HEAD \
  Bits("function", K::kFunction, 1, 2, 0), Quiet("operation", 1, 7, 6), Quiet("engine", 1, 8, 8)
#define TG_WAIT_TAIL                                              \
  Word("reference", K::kReference, 4), Word("mask", K::kMask, 5), \
      Bits("interval", K::kValue, 6, 15, 0)
constexpr FieldSpec kWaitMemory[] = {TG_WAIT_HEAD, Address("address", 2), TG_WAIT_TAIL};
constexpr FieldSpec kWaitRegister[] = {TG_WAIT_HEAD, Word("register", K::kRegister, 2),
                                       TG_WAIT_TAIL};
// Writes `reference` to the first register, then waits on the second.
constexpr FieldSpec kWriteWaitRegister[] = {TG_WAIT_HEAD, Word("write_register", K::kRegister, 2),
                                            Word("register", K::kRegister, 3), TG_WAIT_TAIL};

constexpr FieldSpec kAcquire9[] = {
    Word("cp_coher_cntl", K::kFlags, 1), Wide(Word("size", K::kValue, 2), 3),
    Wide(Word("base", K::kValue, 4), 5), Bits("interval", K::kValue, 6, 15, 0)};
constexpr FieldSpec kAcquire[] = {
    Wide(Word("size", K::kValue, 2), 3), Wide(Word("base", K::kValue, 4), 5),
    Bits("interval", K::kValue, 6, 15, 0), Bits("gcr_cntl", K::kFlags, 7, 18, 0)};
#define TG_RELEASE_HEAD                                                        \
  Bits("event", K::kEvent, 1, 7, 0), Bits("event_index", K::kValue, 1, 11, 8), \
      Quiet("cache_flags", 1, 31, 12), Quiet("dst_sel", 2, 17, 16),            \
      Bits("int_sel", K::kValue, 2, 26, 24), Bits("data_sel", K::kValue, 2, 31, 29)
constexpr FieldSpec kRelease64[] = {TG_RELEASE_HEAD, Address("address", 3),
                                    Wide(Word("data", K::kData, 5), 6),
                                    Quiet("context_id", 7, 31, 0)};
constexpr FieldSpec kRelease32[] = {TG_RELEASE_HEAD, Address("address", 3),
                                    Word("data", K::kData, 5), Quiet("context_id", 7, 31, 0)};
// data_sel 3 writes the GPU clock, 0 nothing: the data words mean nothing then.
constexpr FieldSpec kReleaseOther[] = {TG_RELEASE_HEAD, Address("address", 3),
                                       Quiet("context_id", 7, 31, 0)};
constexpr FieldSpec kDispatch[] = {Word("groups_x", K::kCount, 1), Word("groups_y", K::kCount, 2),
                                   Word("groups_z", K::kCount, 3), Word("initiator", K::kFlags, 4)};
constexpr FieldSpec kDispatchIndirect[] = {Word("offset", K::kValue, 1),
                                           Word("initiator", K::kFlags, 2)};
constexpr FieldSpec kEventWrite[] = {Bits("event", K::kEvent, 1, 5, 0),
                                     Bits("event_index", K::kValue, 1, 11, 8),
                                     Address("address", 2)};
constexpr FieldSpec kIndirect[] = {Address("address", 1),     Bits("dwords", K::kCount, 3, 19, 0),
                                   Quiet("chain", 3, 20, 20), Quiet("pre_enable", 3, 21, 21),
                                   Quiet("valid", 3, 23, 23), Quiet("vmid", 3, 27, 24)};
constexpr FieldSpec kPredExec[] = {Bits("xcc_mask", K::kMask, 1, 31, 24),
                                   Bits("dwords", K::kCount, 1, 13, 0)};
constexpr FieldSpec kCondExec[] = {Address("address", 1), Bits("dwords", K::kCount, 4, 13, 0)};
constexpr FieldSpec kCopyData[] = {
    Bits("src_sel", K::kValue, 1, 3, 0), Bits("dst_sel", K::kValue, 1, 11, 8),
    Bits("wide", K::kFlags, 1, 16, 16),  Quiet("confirm", 1, 20, 20),
    Wide(Word("from", K::kValue, 2), 3), Wide(Word("to", K::kValue, 4), 5)};
constexpr FieldSpec kWriteData[] = {Bits("dst_sel", K::kValue, 1, 11, 8),
                                    Quiet("no_increment", 1, 16, 16), Quiet("confirm", 1, 20, 20),
                                    Wide(Word("to", K::kValue, 2), 3), Word("data", K::kData, 4)};
constexpr FieldSpec kAtomicMem[] = {Bits("atomic_op", K::kFunction, 1, 6, 0),
                                    Bits("command", K::kValue, 1, 11, 8),
                                    Address("address", 2),
                                    Wide(Word("data", K::kData, 4), 5),
                                    Wide(Word("compare", K::kReference, 6), 7),
                                    Bits("loop_interval", K::kValue, 8, 12, 0)};
constexpr FieldSpec kNop[] = {Word("data", K::kData, 1)};

// A packet whose body is known. min/max are lengths in dwords.
struct Body {
  uint8_t op;
  uint8_t gens;
  PacketRole role;
  uint16_t min_dwords;
  uint16_t max_dwords;
  std::span<const FieldSpec> fields;
};
constexpr uint16_t kAny = 0x4001;
constexpr Body kBodies[] = {
    {0x10, kEvery, R::kNop, 1, kAny, kNop},
    {0x15, kEvery, R::kDispatch, 5, 5, kDispatch},
    {0x16, kEvery, R::kDispatch, 3, 4, kDispatchIndirect},
    {0x1e, kEvery, R::kOther, 9, 9, kAtomicMem},
    {0x22, kEvery, R::kOther, 5, 5, kCondExec},
    {0x23, kEvery, R::kOther, 2, 2, kPredExec},
    {0x37, kEvery, R::kWrite, 5, kAny, kWriteData},
    {0x3c, kEvery, R::kWait, 7, 7, kWaitMemory},
    {0x3f, kEvery, R::kIndirect, 4, 4, kIndirect},
    {0x40, kEvery, R::kCopy, 6, 6, kCopyData},
    {0x46, kEvery, R::kBarrier, 2, 4, kEventWrite},
    {0x49, k9, R::kSignal, 7, 8, kRelease64},
    {0x49, kNew, R::kSignal, 8, 8, kRelease64},
    {0x58, k9, R::kBarrier, 7, 7, kAcquire9},
    {0x58, kNew, R::kBarrier, 8, 8, kAcquire},
    {0x68, kEvery, R::kState, 3, kAny, {}},
    {0x69, kEvery, R::kState, 3, kAny, {}},
    {0x76, kEvery, R::kState, 3, kAny, {}},
    {0x79, kEvery, R::kState, 3, kAny, {}},
};

const Body* FindBody(uint8_t op, uint8_t gen) {
  for (const Body& body : kBodies) {
    if (body.op == op && (body.gens & gen)) return &body;
  }
  return nullptr;
}

// ---- registers of a dispatch -----------------------------------------------------------------

struct ShRegister {
  uint16_t offset;  // from kShBase
  uint8_t gens;
  std::string_view name;
};
constexpr ShRegister kShRegisters[] = {
    {0x204, kEvery, "COMPUTE_START_X"},
    {0x205, kEvery, "COMPUTE_START_Y"},
    {0x206, kEvery, "COMPUTE_START_Z"},
    {0x207, kEvery, "COMPUTE_NUM_THREAD_X"},
    {0x208, kEvery, "COMPUTE_NUM_THREAD_Y"},
    {0x209, kEvery, "COMPUTE_NUM_THREAD_Z"},
    {0x20a, kEvery, "COMPUTE_PIPELINESTAT_ENABLE"},
    {0x20b, kEvery, "COMPUTE_PERFCOUNT_ENABLE"},
    {0x20c, kEvery, "COMPUTE_PGM_LO"},
    {0x20d, kEvery, "COMPUTE_PGM_HI"},
    {0x210, kEvery, "COMPUTE_DISPATCH_SCRATCH_BASE_LO"},
    {0x211, kEvery, "COMPUTE_DISPATCH_SCRATCH_BASE_HI"},
    {0x212, kEvery, "COMPUTE_PGM_RSRC1"},
    {0x213, kEvery, "COMPUTE_PGM_RSRC2"},
    {0x215, kEvery, "COMPUTE_RESOURCE_LIMITS"},
    {0x218, kEvery, "COMPUTE_TMPRING_SIZE"},
    {0x21b, kEvery, "COMPUTE_RESTART_X"},
    {0x21c, kEvery, "COMPUTE_RESTART_Y"},
    {0x21d, kEvery, "COMPUTE_RESTART_Z"},
    {0x228, kNew, "COMPUTE_PGM_RSRC3"},
    {0x22d, k9, "COMPUTE_PGM_RSRC3"},
    {0x240, kEvery, "COMPUTE_USER_DATA_0"},
    {0x241, kEvery, "COMPUTE_USER_DATA_1"},
    {0x242, kEvery, "COMPUTE_USER_DATA_2"},
    {0x243, kEvery, "COMPUTE_USER_DATA_3"},
    {0x244, kEvery, "COMPUTE_USER_DATA_4"},
    {0x245, kEvery, "COMPUTE_USER_DATA_5"},
    {0x246, kEvery, "COMPUTE_USER_DATA_6"},
    {0x247, kEvery, "COMPUTE_USER_DATA_7"},
    {0x248, kEvery, "COMPUTE_USER_DATA_8"},
    {0x249, kEvery, "COMPUTE_USER_DATA_9"},
    {0x24a, kEvery, "COMPUTE_USER_DATA_10"},
    {0x24b, kEvery, "COMPUTE_USER_DATA_11"},
    {0x24c, kEvery, "COMPUTE_USER_DATA_12"},
    {0x24d, kEvery, "COMPUTE_USER_DATA_13"},
    {0x24e, kEvery, "COMPUTE_USER_DATA_14"},
    {0x24f, kEvery, "COMPUTE_USER_DATA_15"},
};

void AddRegisters(std::span<const uint8_t> raw, uint32_t base, Pm4Gen gen, FieldList& out) {
  const size_t dwords = raw.size() / 4;
  if (dwords < 2) return;
  const uint32_t first = base + (Dword(raw, 1) & 0xffff);
  const size_t values = dwords - 2;
  // A pair of words that is an address is said as an address, before the registers: long packets
  // drop their last fields.
  if (base == kShBase && values >= 2) {
    const uint32_t offset = first - kShBase;
    auto pair = [&](size_t i) {
      return static_cast<uint64_t>(Dword(raw, i)) | static_cast<uint64_t>(Dword(raw, i + 1)) << 32;
    };
    if (offset == 0x20c) out.Add({.name = "code", .value = pair(2) << 8, .kind = K::kAddress});
    if (offset == 0x210) out.Add({.name = "scratch", .value = pair(2) << 8, .kind = K::kAddress});
    // tinygrad passes the kernel arguments in the last two user data registers.
    if (offset == 0x240) {
      out.Add({.name = "kernarg", .value = pair(values), .kind = K::kAddress});
    }
  }
  for (size_t i = 0; i < values && !out.more(); ++i) {
    const uint32_t reg = first + static_cast<uint32_t>(i);
    out.Add({.name = base == kShBase ? ShRegisterName(reg, gen) : std::string_view(),
             .value = Dword(raw, 2 + i),
             .kind = K::kRegister,
             .reg = reg});
  }
}

void DecodeBody(DecodedPacket& packet, const Body& body, Pm4Gen gen, uint8_t gen_bit) {
  const std::span<const uint8_t> raw = packet.raw;
  std::span<const FieldSpec> fields = body.fields;
  const auto dword = [&](size_t i) { return raw.size() >= (i + 1) * 4 ? Dword(raw, i) : 0; };
  packet.role = body.role;
  switch (packet.op) {
    case 0x3c: {
      const uint32_t space = dword(1) >> 4 & 3, operation = dword(1) >> 6 & 3;
      if (operation == 1) {
        fields = kWriteWaitRegister;
      } else if (space == 0) {
        fields = kWaitRegister;
      }
      if (space > 1 || operation == 2 || (dword(1) & 7) == 7) {
        packet.problem = PacketProblem::kBadValue;
      }
      break;
    }
    case 0x49: {
      const uint32_t data_sel = dword(2) >> 29;
      packet.role = data_sel == 1 || data_sel == 2 ? R::kSignal
                    : data_sel == 3                ? R::kTimestamp
                                                   : R::kBarrier;
      if (data_sel == 1) fields = kRelease32;
      if (data_sel == 0 || data_sel == 3) fields = kReleaseOther;
      break;
    }
    case 0x68:
      AddRegisters(raw, kConfigBase, gen, packet.fields);
      return;
    case 0x69:
      AddRegisters(raw, kContextBase, gen, packet.fields);
      return;
    case 0x76:
      AddRegisters(raw, kShBase, gen, packet.fields);
      return;
    case 0x79:
      AddRegisters(raw, kUconfigBase, gen, packet.fields);
      return;
    default:
      break;
  }
  AddFields(fields, gen_bit, raw, packet.fields);
  if (packet.op == 0x49 && packet.role == R::kSignal && packet.Find("data")) {
    packet.fields.Add(
        {.name = "width", .value = dword(2) >> 29 == 1 ? 4ull : 8ull, .kind = K::kBytes});
  }
}

}  // namespace

Pm4Gen Pm4GenOf(unsigned gc_major) {
  if (gc_major <= 9) return Pm4Gen::kGfx9;
  return gc_major >= 12 ? Pm4Gen::kGfx12 : Pm4Gen::kGfx11;
}

std::string_view Pm4Name(uint8_t opcode, Pm4Gen gen) {
  const Opcode* row = FindOpcode(opcode);
  return row && (row->gens >> static_cast<unsigned>(gen) & 1) ? row->name : std::string_view();
}

std::string_view ShRegisterName(uint32_t dword_index, Pm4Gen gen) {
  for (const ShRegister& row : kShRegisters) {
    if (row.offset + kShBase == dword_index && (row.gens >> static_cast<unsigned>(gen) & 1)) {
      return row.name;
    }
  }
  return {};
}

DecodedPacket DecodePm4(std::span<const uint8_t> bytes, Pm4Gen gen) {
  DecodedPacket packet;
  if (bytes.size() < 4) {
    packet.problem = PacketProblem::kTruncated;
    packet.raw = bytes;
    return packet;
  }
  const uint8_t gen_bit = static_cast<uint8_t>(1u << static_cast<unsigned>(gen));
  const uint32_t header = Dword(bytes, 0);
  const uint32_t type = header >> 30, count = header >> 16 & 0x3fff;
  packet.dwords = type == 2 ? 1 : count + 2;
  packet.op = header >> 8 & 0xff;
  if (header == 0 || type == 1) {
    packet.op = 0;
    packet.dwords = 1;
    packet.problem = PacketProblem::kNotAPacket;
  } else if (type == 2) {
    packet.op = 0;
    packet.name = "TYPE2";
    packet.role = R::kNop;
  } else if (type == 3 && packet.op == 0x10 && count == 0x3fff) {
    packet.dwords = 1;
  }
  const size_t whole = packet.bytes();
  packet.raw = bytes.first(whole < bytes.size() ? whole : bytes.size() & ~size_t{3});

  if (type == 0 && header != 0) {
    packet.op = 0;
    packet.name = "TYPE0";
    packet.role = R::kState;
    for (size_t i = 1; i < packet.raw.size() / 4 && !packet.fields.more(); ++i) {
      packet.fields.Add({.name = {},
                         .value = Dword(packet.raw, i),
                         .kind = K::kRegister,
                         .reg = (header & 0xffff) + static_cast<uint32_t>(i) - 1});
    }
  } else if (type == 3) {
    const Opcode* opcode = FindOpcode(static_cast<uint8_t>(packet.op));
    if (opcode) packet.name = opcode->name;
    if (!opcode) {
      packet.problem = PacketProblem::kUnknownOp;
    } else if (!(opcode->gens & gen_bit)) {
      packet.problem = PacketProblem::kOtherGeneration;
    } else if (header & 0xfc) {
      packet.problem = PacketProblem::kReservedBits;
    }
    if (const Body* body = FindBody(static_cast<uint8_t>(packet.op), gen_bit)) {
      DecodeBody(packet, *body, gen, gen_bit);
      if (packet.dwords < body->min_dwords || packet.dwords > body->max_dwords) {
        packet.problem = PacketProblem::kBadLength;
      }
    }
  }
  if (whole > bytes.size()) packet.problem = PacketProblem::kTruncated;
  return packet;
}

}  // namespace tg::amd
