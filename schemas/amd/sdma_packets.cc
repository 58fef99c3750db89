#include "schemas/amd/sdma_packets.h"

#include <array>
#include <iterator>

#include "schemas/amd/packet_table.h"

namespace tg::amd {
namespace {

using K = FieldKind;

// Generation bits.
constexpr uint8_t k4 = 1, k5 = 2, k67 = 4 | 8;
constexpr uint8_t kAll = k4 | k5 | k67, kFrom5 = k5 | k67, kTo5 = k4 | k5;

// Parts that many packets share.
constexpr FieldSpec kEncrypt = Quiet("encrypt", 0, 16, 16);
constexpr FieldSpec kTmz = Quiet("tmz", 0, 18, 18);
constexpr FieldSpec kCpv19 = Quiet("cpv", 0, 19, 19, k67);
constexpr FieldSpec kCpv24 = Quiet("cpv", 0, 24, 24, k67);
constexpr FieldSpec kCpv28 = Quiet("cpv", 0, 28, 28, k67);
constexpr FieldSpec kCache26 = Quiet("cache_policy", 0, 26, 24, k67);
// How a 4-byte write of the engine itself goes to memory.
#define TG_WRITE_POLICY                                                       \
  Quiet("mtype", 0, 18, 16, kFrom5), Quiet("gcc", 0, 19, 19, kFrom5),         \
      Quiet("sys", 0, 20, 20, kFrom5), Quiet("snoop", 0, 22, 22, kFrom5),     \
      Quiet("gpa", 0, 23, 23, kFrom5), Quiet("l2_policy", 0, 25, 24, kFrom5), \
      Quiet("llc_policy", 0, 26, 26, k67), kCpv28

constexpr FieldSpec Plus(FieldSpec spec, uint8_t add) {
  spec.add = add;
  return spec;
}
constexpr FieldSpec InPlace(FieldSpec spec) {
  spec.in_place = true;
  return spec;
}
constexpr FieldSpec Wide(FieldSpec spec, uint8_t hi_dw, uint8_t hi_msb = 31) {
  spec.hi_dw = hi_dw;
  spec.hi_msb = hi_msb;
  return spec;
}

constexpr FieldSpec kNop[] = {Bits("count", K::kCount, 0, 29, 16)};

constexpr FieldSpec kCopyLinear[] = {kEncrypt,
                                     kTmz,
                                     kCpv19,
                                     Quiet("backwards", 0, 25, 25, kFrom5),
                                     Quiet("broadcast", 0, 27, 27),
                                     Plus(Bits("bytes", K::kBytes, 1, 21, 0, kTo5), 1),
                                     Plus(Bits("bytes", K::kBytes, 1, 29, 0, k67), 1),
                                     Quiet("dst_sw", 2, 17, 16),
                                     Quiet("dst_cache_policy", 2, 20, 18, k67),
                                     Quiet("src_sw", 2, 25, 24),
                                     Quiet("src_cache_policy", 2, 28, 26, k67),
                                     Address("src", 3),
                                     Address("dst", 5)};
constexpr FieldSpec kCopyBroadcast[] = {kEncrypt,
                                        kTmz,
                                        kCpv19,
                                        Quiet("broadcast", 0, 27, 27),
                                        Plus(Bits("bytes", K::kBytes, 1, 21, 0, kTo5), 1),
                                        Plus(Bits("bytes", K::kBytes, 1, 29, 0, k67), 1),
                                        Quiet("dst2_sw", 2, 9, 8),
                                        Quiet("dst2_cache_policy", 2, 12, 10, k67),
                                        Quiet("dst_sw", 2, 17, 16),
                                        Quiet("dst_cache_policy", 2, 20, 18, k67),
                                        Quiet("src_sw", 2, 25, 24),
                                        Quiet("src_cache_policy", 2, 28, 26, k67),
                                        Address("src", 3),
                                        Address("dst", 5),
                                        Address("dst2", 7)};
constexpr FieldSpec kCopyLinearBc[] = {Plus(Bits("bytes", K::kBytes, 1, 21, 0), 1),
                                       Quiet("dst_sw", 2, 17, 16), Quiet("src_sw", 2, 25, 24),
                                       Address("src", 3), Address("dst", 5)};
constexpr FieldSpec kCopyDirtyPage[] = {kTmz,
                                        kCpv19,
                                        Quiet("all", 0, 31, 31),
                                        Plus(Bits("bytes", K::kBytes, 1, 21, 0), 1),
                                        Quiet("parameters", 2, 31, 0),
                                        Address("src", 3),
                                        Address("dst", 5)};
constexpr FieldSpec kCopyPhysical[] = {kTmz,
                                       kCpv19,
                                       Plus(Bits("bytes", K::kBytes, 1, 21, 0), 1),
                                       Bits("address_pairs", K::kCount, 1, 31, 24, k67),
                                       Quiet("parameters", 2, 31, 0),
                                       Word("src_lo", K::kValue, 3),
                                       Word("src_hi", K::kValue, 4),
                                       Word("dst_lo", K::kValue, 5),
                                       Word("dst_hi", K::kValue, 6)};

constexpr FieldSpec kCopyLinearSub[] = {kTmz,
                                        kCpv19,
                                        Quiet("element_size", 0, 31, 29),
                                        Address("src", 1),
                                        Bits("src_x", K::kValue, 3, 13, 0),
                                        Bits("src_y", K::kValue, 3, 29, 16),
                                        Bits("src_z", K::kValue, 4, 12, 0),
                                        Bits("src_pitch", K::kValue, 4, 31, 13),
                                        Bits("src_slice_pitch", K::kValue, 5, 27, 0),
                                        Address("dst", 6),
                                        Bits("dst_x", K::kValue, 8, 13, 0),
                                        Bits("dst_y", K::kValue, 8, 29, 16),
                                        Bits("dst_z", K::kValue, 9, 12, 0),
                                        Bits("dst_pitch", K::kValue, 9, 31, 13),
                                        Bits("dst_slice_pitch", K::kValue, 10, 27, 0),
                                        Bits("rect_x", K::kValue, 11, 13, 0),
                                        Bits("rect_y", K::kValue, 11, 29, 16),
                                        Bits("rect_z", K::kValue, 12, 12, 0)};
constexpr FieldSpec kCopyLinearSubLarge[] = {kTmz,
                                             kCpv19,
                                             Quiet("element_size", 0, 31, 29),
                                             Address("src", 1),
                                             Word("src_x", K::kValue, 3),
                                             Word("src_y", K::kValue, 4),
                                             Word("src_z", K::kValue, 5),
                                             Word("src_pitch", K::kValue, 6),
                                             Wide(Word("src_slice_pitch", K::kValue, 7), 8, 15),
                                             Address("dst", 9),
                                             Word("dst_x", K::kValue, 11),
                                             Word("dst_y", K::kValue, 12),
                                             Word("dst_z", K::kValue, 13),
                                             Word("dst_pitch", K::kValue, 14),
                                             Wide(Word("dst_slice_pitch", K::kValue, 15), 16, 15),
                                             Word("rect_x", K::kValue, 17),
                                             Word("rect_y", K::kValue, 18),
                                             Word("rect_z", K::kValue, 19)};

constexpr FieldSpec kCopyTiled[] = {kEncrypt,
                                    kTmz,
                                    kCpv19,
                                    Quiet("mip_max", 0, 23, 20, k4),
                                    Quiet("detile", 0, 31, 31),
                                    Address("tiled", 1),
                                    Bits("width", K::kValue, 3, 13, 0),
                                    Bits("height", K::kValue, 4, 13, 0),
                                    Bits("depth", K::kValue, 4, 28, 16),
                                    Quiet("tiling", 5, 31, 0),
                                    Bits("x", K::kValue, 6, 13, 0),
                                    Bits("y", K::kValue, 6, 29, 16),
                                    Bits("z", K::kValue, 7, 12, 0),
                                    Address("linear", 8),
                                    Bits("linear_pitch", K::kValue, 10, 18, 0),
                                    Word("linear_slice_pitch", K::kValue, 11),
                                    Bits("count", K::kCount, 12, 29, 0)};
constexpr FieldSpec kCopyL2tBroadcast[] = {kEncrypt,
                                           kTmz,
                                           kCpv19,
                                           Quiet("mip_max", 0, 23, 20, k4),
                                           Quiet("videocopy", 0, 26, 26),
                                           Quiet("broadcast", 0, 27, 27),
                                           Address("tiled", 1),
                                           Address("tiled2", 3),
                                           Bits("width", K::kValue, 5, 13, 0),
                                           Bits("height", K::kValue, 6, 13, 0),
                                           Bits("depth", K::kValue, 6, 28, 16),
                                           Quiet("tiling", 7, 31, 0),
                                           Bits("x", K::kValue, 8, 13, 0),
                                           Bits("y", K::kValue, 8, 29, 16),
                                           Bits("z", K::kValue, 9, 12, 0),
                                           Address("linear", 11),
                                           Bits("linear_pitch", K::kValue, 13, 18, 0),
                                           Word("linear_slice_pitch", K::kValue, 14),
                                           Bits("count", K::kCount, 15, 29, 0)};
constexpr FieldSpec kCopyTiledBc[] = {Quiet("detile", 0, 31, 31),
                                      Address("tiled", 1),
                                      Bits("width", K::kValue, 3, 13, 0),
                                      Bits("height", K::kValue, 4, 13, 0),
                                      Bits("depth", K::kValue, 4, 26, 16),
                                      Quiet("tiling", 5, 31, 0),
                                      Bits("x", K::kValue, 6, 13, 0),
                                      Bits("y", K::kValue, 6, 29, 16),
                                      Bits("z", K::kValue, 7, 10, 0),
                                      Address("linear", 8),
                                      Bits("linear_pitch", K::kValue, 10, 18, 0),
                                      Word("linear_slice_pitch", K::kValue, 11, k67)};
constexpr FieldSpec kCopyTiledSub[] = {kTmz,
                                       Quiet("dcc", 0, 19, 19, kFrom5),
                                       kCpv28,
                                       Quiet("mip_max", 0, 23, 20, k4),
                                       Quiet("mip_id", 0, 27, 24, k4),
                                       Quiet("detile", 0, 31, 31),
                                       Address("tiled", 1),
                                       Bits("tiled_x", K::kValue, 3, 13, 0),
                                       Bits("tiled_y", K::kValue, 3, 29, 16),
                                       Bits("tiled_z", K::kValue, 4, 12, 0),
                                       Bits("width", K::kValue, 4, 29, 16),
                                       Bits("height", K::kValue, 5, 13, 0),
                                       Bits("depth", K::kValue, 5, 28, 16),
                                       Quiet("tiling", 6, 31, 0),
                                       Address("linear", 7),
                                       Bits("linear_x", K::kValue, 9, 13, 0),
                                       Bits("linear_y", K::kValue, 9, 29, 16),
                                       Bits("linear_z", K::kValue, 10, 12, 0),
                                       Bits("linear_pitch", K::kValue, 10, 29, 16),
                                       Bits("linear_slice_pitch", K::kValue, 11, 27, 0),
                                       Bits("rect_x", K::kValue, 12, 13, 0),
                                       Bits("rect_y", K::kValue, 12, 29, 16),
                                       Bits("rect_z", K::kValue, 13, 12, 0),
                                       Address("meta", 14, kFrom5),
                                       Quiet("meta_config", 16, 31, 0, kFrom5)};
constexpr FieldSpec kCopyTiledSubBc[] = {Quiet("detile", 0, 31, 31),
                                         Address("tiled", 1),
                                         Bits("tiled_x", K::kValue, 3, 13, 0),
                                         Bits("tiled_y", K::kValue, 3, 29, 16),
                                         Bits("tiled_z", K::kValue, 4, 10, 0),
                                         Bits("width", K::kValue, 4, 29, 16),
                                         Bits("height", K::kValue, 5, 13, 0),
                                         Bits("depth", K::kValue, 5, 26, 16),
                                         Quiet("tiling", 6, 31, 0),
                                         Address("linear", 7),
                                         Bits("linear_x", K::kValue, 9, 13, 0),
                                         Bits("linear_y", K::kValue, 9, 29, 16),
                                         Bits("linear_z", K::kValue, 10, 10, 0),
                                         Bits("linear_pitch", K::kValue, 10, 29, 16),
                                         Bits("linear_slice_pitch", K::kValue, 11, 27, 0),
                                         Bits("rect_x", K::kValue, 12, 13, 0),
                                         Bits("rect_y", K::kValue, 12, 29, 16),
                                         Bits("rect_z", K::kValue, 13, 10, 0)};
constexpr FieldSpec kCopyT2t[] = {kTmz,
                                  Quiet("dcc", 0, 19, 19, kFrom5),
                                  kCpv28,
                                  Quiet("mip_max", 0, 23, 20, k4),
                                  Quiet("dcc_dir", 0, 31, 31, kFrom5),
                                  Address("src", 1),
                                  Bits("src_x", K::kValue, 3, 13, 0),
                                  Bits("src_y", K::kValue, 3, 29, 16),
                                  Bits("src_z", K::kValue, 4, 12, 0),
                                  Bits("src_width", K::kValue, 4, 29, 16),
                                  Bits("src_height", K::kValue, 5, 13, 0),
                                  Bits("src_depth", K::kValue, 5, 28, 16),
                                  Quiet("src_tiling", 6, 31, 0),
                                  Address("dst", 7),
                                  Bits("dst_x", K::kValue, 9, 13, 0),
                                  Bits("dst_y", K::kValue, 9, 29, 16),
                                  Bits("dst_z", K::kValue, 10, 12, 0),
                                  Bits("dst_width", K::kValue, 10, 29, 16),
                                  Bits("dst_height", K::kValue, 11, 13, 0),
                                  Bits("dst_depth", K::kValue, 11, 28, 16),
                                  Quiet("dst_tiling", 12, 31, 0),
                                  Bits("rect_x", K::kValue, 13, 13, 0),
                                  Bits("rect_y", K::kValue, 13, 29, 16),
                                  Bits("rect_z", K::kValue, 14, 12, 0),
                                  Address("meta", 15, kFrom5),
                                  Quiet("meta_config", 17, 31, 0, kFrom5)};
constexpr FieldSpec kCopyT2tBc[] = {Address("src", 1),
                                    Bits("src_x", K::kValue, 3, 13, 0),
                                    Bits("src_y", K::kValue, 3, 29, 16),
                                    Bits("src_z", K::kValue, 4, 10, 0),
                                    Bits("src_width", K::kValue, 4, 29, 16),
                                    Bits("src_height", K::kValue, 5, 13, 0),
                                    Bits("src_depth", K::kValue, 5, 26, 16),
                                    Quiet("src_tiling", 6, 31, 0),
                                    Address("dst", 7),
                                    Bits("dst_x", K::kValue, 9, 13, 0),
                                    Bits("dst_y", K::kValue, 9, 29, 16),
                                    Bits("dst_z", K::kValue, 10, 10, 0),
                                    Bits("dst_width", K::kValue, 10, 29, 16),
                                    Bits("dst_height", K::kValue, 11, 13, 0),
                                    Bits("dst_depth", K::kValue, 11, 27, 16),
                                    Quiet("dst_tiling", 12, 31, 0),
                                    Bits("rect_x", K::kValue, 13, 13, 0),
                                    Bits("rect_y", K::kValue, 13, 29, 16),
                                    Bits("rect_z", K::kValue, 14, 10, 0)};
constexpr FieldSpec kCopyStruct[] = {kTmz,
                                     kCpv28,
                                     Quiet("detile", 0, 31, 31),
                                     Address("struct", 1),
                                     Word("start_index", K::kValue, 3),
                                     Word("count", K::kCount, 4),
                                     Bits("stride", K::kValue, 5, 10, 0),
                                     Address("linear", 6)};

constexpr FieldSpec kWriteLinear[] = {kEncrypt,
                                      kTmz,
                                      kCpv28,
                                      Address("dst", 1),
                                      Plus(Bits("dwords", K::kCount, 3, 19, 0), 1),
                                      Quiet("sw", 3, 25, 24),
                                      Quiet("cache_policy", 3, 28, 26, k67),
                                      Word("data", K::kData, 4)};
constexpr FieldSpec kWriteTiled[] = {kEncrypt,
                                     kTmz,
                                     kCpv28,
                                     Quiet("mip_max", 0, 23, 20, k4),
                                     Address("dst", 1),
                                     Bits("width", K::kValue, 3, 13, 0),
                                     Bits("height", K::kValue, 4, 13, 0),
                                     Bits("depth", K::kValue, 4, 28, 16),
                                     Quiet("tiling", 5, 31, 0),
                                     Bits("x", K::kValue, 6, 13, 0),
                                     Bits("y", K::kValue, 6, 29, 16),
                                     Bits("z", K::kValue, 7, 12, 0),
                                     Plus(Bits("dwords", K::kCount, 8, 19, 0), 1)};
constexpr FieldSpec kWriteTiledBc[] = {Address("dst", 1),
                                       Bits("width", K::kValue, 3, 13, 0),
                                       Bits("height", K::kValue, 4, 13, 0),
                                       Bits("depth", K::kValue, 4, 26, 16),
                                       Quiet("tiling", 5, 31, 0),
                                       Bits("x", K::kValue, 6, 13, 0),
                                       Bits("y", K::kValue, 6, 29, 16),
                                       Bits("z", K::kValue, 7, 10, 0),
                                       Plus(Bits("dwords", K::kCount, 8, 21, 2), 1)};

constexpr FieldSpec kIndirect[] = {Bits("vmid", K::kValue, 0, 19, 16),
                                   Quiet("priv", 0, 31, 31, kFrom5), Address("address", 1),
                                   Bits("dwords", K::kCount, 3, 19, 0), Address("csa", 4)};
constexpr FieldSpec kFence[] = {TG_WRITE_POLICY, Address("address", 1), Word("data", K::kData, 3)};
constexpr FieldSpec kTrap[] = {Bits("context", K::kValue, 1, 27, 0)};
constexpr FieldSpec kSemaphore[] = {Quiet("write_one", 0, 29, 29), Quiet("signal", 0, 30, 30),
                                    Quiet("mailbox", 0, 31, 31), Address("address", 1)};
constexpr FieldSpec kMemIncr[] = {Quiet("l2_policy", 0, 25, 24), Quiet("llc_policy", 0, 26, 26),
                                  kCpv28, Address("address", 1)};

// POLL_REGMEM is decoded with these two by mem_poll (dw0 bit 31).
#define TG_POLL_HEADER                                                          \
  Quiet("cache_policy", 0, 22, 20, k67), kCpv24, Quiet("hdp_flush", 0, 26, 26), \
      Bits("function", K::kFunction, 0, 30, 28), Quiet("mem_poll", 0, 31, 31)
#define TG_POLL_TAIL                                              \
  Word("reference", K::kReference, 3), Word("mask", K::kMask, 4), \
      Bits("interval", K::kValue, 5, 15, 0), Bits("retry_count", K::kCount, 5, 27, 16)
constexpr FieldSpec kPollMemory[] = {TG_POLL_HEADER, Address("address", 1), TG_POLL_TAIL};
constexpr FieldSpec kPollRegister[] = {TG_POLL_HEADER, Word("register", K::kRegister, 1),
                                       Word("register2", K::kRegister, 2), TG_POLL_TAIL};
constexpr FieldSpec kPollRegWriteMem[] = {
    kCache26, kCpv28, Bits("register", K::kRegister, 1, 31, 2), Address("dst", 2)};
constexpr FieldSpec kPollDbit[] = {Quiet("ea", 0, 17, 16),
                                   kCache26,
                                   kCpv28,
                                   Address("dst", 1),
                                   InPlace(Bits("start_page", K::kValue, 3, 31, 4)),
                                   Word("pages", K::kCount, 4)};
constexpr FieldSpec kPollMemVerify[] = {kCache26,
                                        kCpv28,
                                        Quiet("mode", 0, 31, 31),
                                        Word("pattern", K::kData, 1),
                                        Address("cmp0_start", 2),
                                        Address("cmp0_end", 4),
                                        Address("cmp1_start", 6),
                                        Address("cmp1_end", 8),
                                        Address("record", 10)};
constexpr FieldSpec kVmInvalidation[] = {Bits("gfx_engine", K::kValue, 0, 20, 16),
                                         Bits("mm_engine", K::kValue, 0, 28, 24),
                                         Word("request", K::kFlags, 1),
                                         Word("range_lo", K::kValue, 2),
                                         Bits("range_hi", K::kValue, 3, 20, 16),
                                         Bits("ack", K::kValue, 3, 15, 0)};
constexpr FieldSpec kCondExe[] = {kCache26, kCpv28, Address("address", 1),
                                  Word("reference", K::kReference, 3),
                                  Bits("skip_dwords", K::kCount, 4, 13, 0)};
constexpr FieldSpec kAtomic[] = {Quiet("loop", 0, 16, 16),
                                 kTmz,
                                 Quiet("cache_policy", 0, 22, 20, k67),
                                 kCpv24,
                                 Bits("atomic_op", K::kFunction, 0, 31, 25),
                                 Address("address", 1),
                                 Wide(Word("data", K::kData, 3), 4),
                                 Wide(Word("compare", K::kReference, 5), 6),
                                 Bits("loop_interval", K::kValue, 7, 12, 0)};
constexpr FieldSpec kConstFill[] = {Quiet("sw", 0, 17, 16),
                                    kCache26,
                                    kCpv28,
                                    Bits("fill_size", K::kValue, 0, 31, 30),
                                    Address("dst", 1),
                                    Word("data", K::kData, 3),
                                    Plus(Bits("bytes", K::kBytes, 4, 21, 0, kTo5), 1),
                                    Plus(Bits("bytes", K::kBytes, 4, 29, 0, k67), 1)};
constexpr FieldSpec kDataFillMulti[] = {kCache26,
                                        kCpv28,
                                        Quiet("memlog_clr", 0, 31, 31),
                                        Word("stride", K::kBytes, 1),
                                        Word("count", K::kCount, 2),
                                        Address("dst", 3),
                                        Bits("bytes", K::kBytes, 5, 25, 0)};
constexpr FieldSpec kPteGenerate[] = {kCache26,
                                      kCpv28,
                                      Address("dst", 1),
                                      Wide(Word("mask", K::kMask, 3), 4),
                                      Wide(Word("first", K::kData, 5), 6),
                                      Wide(Word("increment", K::kData, 7), 8),
                                      Bits("count", K::kCount, 9, 18, 0)};
constexpr FieldSpec kPteCopy[] = {Quiet("tmz", 0, 18, 18, kFrom5),
                                  kCpv28,
                                  Quiet("ptepde_op", 0, 31, 31),
                                  Address("src", 1),
                                  Address("dst", 3),
                                  Wide(Word("mask", K::kMask, 5), 6),
                                  Bits("count", K::kCount, 7, 18, 0)};
constexpr FieldSpec kPteRmw[] = {Quiet("mtype", 0, 18, 16, kFrom5),
                                 Quiet("gcc", 0, 19, 19),
                                 Quiet("sys", 0, 20, 20),
                                 Quiet("snoop", 0, 22, 22),
                                 Quiet("gpa", 0, 23, 23),
                                 Quiet("l2_policy", 0, 25, 24, kFrom5),
                                 Quiet("llc_policy", 0, 26, 26, k67),
                                 kCpv28,
                                 Address("address", 1),
                                 Wide(Word("mask", K::kMask, 3), 4),
                                 Wide(Word("data", K::kData, 5), 6),
                                 Word("count", K::kCount, 7, k67)};
constexpr FieldSpec kPteCopyBackwards[] = {Quiet("pte_size", 0, 29, 28),
                                           Quiet("direction", 0, 30, 30),
                                           Quiet("ptepde_op", 0, 31, 31),
                                           Address("src", 1),
                                           Address("dst", 3),
                                           Bits("first_mask", K::kMask, 5, 7, 0),
                                           Bits("last_mask", K::kMask, 5, 15, 8),
                                           Bits("count", K::kCount, 6, 16, 0)};
constexpr FieldSpec kTimestampSet[] = {Wide(Word("data", K::kData, 1), 2)};
constexpr FieldSpec kTimestampGet[] = {Quiet("l2_policy", 0, 25, 24, k67),
                                       Quiet("llc_policy", 0, 26, 26, k67), kCpv28,
                                       InPlace(Wide(Bits("address", K::kAddress, 1, 31, 3), 2))};
constexpr FieldSpec kSrbmWrite[] = {
    Bits("byte_enable", K::kMask, 0, 31, 28), Bits("register", K::kRegister, 1, 17, 0),
    Quiet("aperture", 1, 31, 20, kFrom5), Word("data", K::kData, 2)};
constexpr FieldSpec kRegisterRmw[] = {Bits("register", K::kRegister, 1, 19, 0),
                                      Quiet("aperture", 1, 31, 20),
                                      Word("mask", K::kMask, 2),
                                      Word("data", K::kData, 3),
                                      Bits("stride", K::kValue, 4, 19, 0),
                                      Bits("count", K::kCount, 4, 31, 20)};
constexpr FieldSpec kPreExe[] = {Bits("device", K::kValue, 0, 23, 16),
                                 Bits("dwords", K::kCount, 1, 13, 0)};
constexpr FieldSpec kGpuvmInv[] = {Bits("vmids", K::kMask, 1, 15, 0),
                                   Bits("flush_type", K::kValue, 1, 18, 16),
                                   Bits("levels", K::kFlags, 1, 23, 19), Quiet("flags", 1, 26, 24),
                                   Wide(Bits("page", K::kValue, 2, 31, 1), 3, 5)};
constexpr FieldSpec kGcrReq[] = {InPlace(Wide(Bits("base", K::kAddress, 1, 31, 7), 2, 15)),
                                 Wide(Bits("gcr_control", K::kFlags, 2, 31, 16), 3, 2),
                                 InPlace(Wide(Bits("limit", K::kAddress, 3, 31, 7), 4, 15)),
                                 Bits("vmid", K::kValue, 4, 27, 24)};

// One packet format. `extra` is where the data count of a packet with data lies: bits [extra_msb:
// extra_lsb] of dword `extra_dw` plus one dwords follow the fixed part.
struct PacketSpec {
  uint8_t op;
  uint8_t sub_op;
  uint8_t gens;
  std::string_view name;
  PacketRole role;
  uint8_t dwords;
  std::span<const FieldSpec> fields;
  uint8_t extra_dw = 0;
  uint8_t extra_msb = 0;
  uint8_t extra_lsb = 0;
};

using R = PacketRole;
constexpr PacketSpec kPackets[] = {
    {0, 0, kAll, "NOP", R::kNop, 1, kNop},
    {1, 0, kAll, "COPY_LINEAR", R::kCopy, 7, kCopyLinear},
    {1, 1, kAll, "COPY_TILED", R::kCopy, 13, kCopyTiled},
    {1, 3, kAll, "COPY_STRUCT", R::kCopy, 8, kCopyStruct},
    {1, 4, kAll, "COPY_LINEAR_SUB_WINDOW", R::kCopy, 13, kCopyLinearSub},
    {1, 5, k4, "COPY_TILED_SUB_WINDOW", R::kCopy, 14, kCopyTiledSub},
    {1, 5, kFrom5, "COPY_TILED_SUB_WINDOW", R::kCopy, 17, kCopyTiledSub},
    {1, 6, k4, "COPY_T2T_SUB_WINDOW", R::kCopy, 15, kCopyT2t},
    {1, 6, kFrom5, "COPY_T2T_SUB_WINDOW", R::kCopy, 18, kCopyT2t},
    {1, 7, kAll, "COPY_DIRTY_PAGE", R::kCopy, 7, kCopyDirtyPage},
    {1, 8, kAll, "COPY_PHYSICAL_LINEAR", R::kCopy, 7, kCopyPhysical},
    {1, 16, kFrom5, "COPY_LINEAR_BC", R::kCopy, 7, kCopyLinearBc},
    {1, 17, k5, "COPY_TILED_BC", R::kCopy, 12, kCopyTiledBc},
    {1, 17, k67, "COPY_TILED_BC", R::kCopy, 13, kCopyTiledBc},
    {1, 20, kFrom5, "COPY_LINEAR_SUB_WINDOW_BC", R::kCopy, 13, kCopyLinearSub},
    {1, 21, kFrom5, "COPY_TILED_SUB_WINDOW_BC", R::kCopy, 14, kCopyTiledSubBc},
    {1, 22, kFrom5, "COPY_T2T_SUB_WINDOW_BC", R::kCopy, 15, kCopyT2tBc},
    {1, 36, k67, "COPY_LINEAR_SUB_WINDOW_LARGE", R::kCopy, 20, kCopyLinearSubLarge},
    {2, 0, kAll, "WRITE_LINEAR", R::kWrite, 4, kWriteLinear, 3, 19, 0},
    {2, 1, kAll, "WRITE_TILED", R::kWrite, 9, kWriteTiled, 8, 19, 0},
    {2, 17, kFrom5, "WRITE_TILED_BC", R::kWrite, 9, kWriteTiledBc, 8, 21, 2},
    {4, 0, kAll, "INDIRECT", R::kIndirect, 6, kIndirect},
    {5, 0, kAll, "FENCE", R::kSignal, 4, kFence},
    {6, 0, kAll, "TRAP", R::kTrap, 2, kTrap},
    {7, 0, kAll, "SEMAPHORE", R::kOther, 3, kSemaphore},
    {7, 1, k67, "MEM_INCR", R::kOther, 3, kMemIncr},
    {8, 0, kAll, "POLL_REGMEM", R::kWait, 6, kPollMemory},
    {8, 1, kAll, "POLL_REG_WRITE_MEM", R::kOther, 4, kPollRegWriteMem},
    {8, 2, kAll, "POLL_DBIT_WRITE_MEM", R::kOther, 5, kPollDbit},
    {8, 3, kAll, "POLL_MEM_VERIFY", R::kOther, 13, kPollMemVerify},
    {8, 4, kFrom5, "VM_INVALIDATION", R::kBarrier, 4, kVmInvalidation},
    {9, 0, kAll, "COND_EXE", R::kOther, 5, kCondExe},
    {10, 0, kAll, "ATOMIC", R::kOther, 8, kAtomic},
    {11, 0, kAll, "CONST_FILL", R::kWrite, 5, kConstFill},
    {11, 1, kAll, "DATA_FILL_MULTI", R::kWrite, 6, kDataFillMulti},
    {12, 0, kAll, "PTEPDE_GENERATE", R::kWrite, 10, kPteGenerate},
    {12, 1, kAll, "PTEPDE_COPY", R::kWrite, 8, kPteCopy},
    {12, 2, kTo5, "PTEPDE_RMW", R::kWrite, 7, kPteRmw},
    {12, 2, k67, "PTEPDE_RMW", R::kWrite, 8, kPteRmw},
    {12, 3, kAll, "PTEPDE_COPY_BACKWARDS", R::kWrite, 7, kPteCopyBackwards},
    {13, 0, kAll, "TIMESTAMP_SET", R::kOther, 3, kTimestampSet},
    {13, 1, kAll, "TIMESTAMP_GET", R::kTimestamp, 3, kTimestampGet},
    {13, 2, kAll, "TIMESTAMP_GET_GLOBAL", R::kTimestamp, 3, kTimestampGet},
    {14, 0, kAll, "SRBM_WRITE", R::kState, 3, kSrbmWrite},
    {14, 1, k67, "REGISTER_RMW", R::kState, 5, kRegisterRmw},
    {15, 0, kAll, "PRE_EXE", R::kOther, 2, kPreExe},
    {16, 0, k4, "DUMMY_TRAP", R::kTrap, 2, kTrap},
    {16, 0, kFrom5, "GPUVM_INV", R::kBarrier, 4, kGpuvmInv},
    {17, 0, kFrom5, "GCR_REQ", R::kBarrier, 5, kGcrReq},
    {32, 0, kFrom5, "DUMMY_TRAP", R::kTrap, 2, kTrap},
};
constexpr PacketSpec kCopyBroadcastSpec = {1,        0, kAll,          "COPY_LINEAR_BROADCAST",
                                           R::kCopy, 9, kCopyBroadcast};
constexpr PacketSpec kTiledBroadcastSpec = {
    1, 1, kAll, "COPY_L2T_BROADCAST", R::kCopy, 16, kCopyL2tBroadcast};
constexpr PacketSpec kPollRegisterSpec = {8, 0, kAll, "POLL_REGMEM", R::kWait, 6, kPollRegister};

constexpr unsigned kMaxOp = 32, kMaxSubOp = 36, kGens = 4;

// Row of kPackets plus one, by generation, op and sub-op.
using Index = std::array<std::array<std::array<uint8_t, kMaxSubOp + 1>, kMaxOp + 1>, kGens>;
constexpr Index BuildIndex() {
  Index index{};
  for (size_t row = 0; row < std::size(kPackets); ++row) {
    for (unsigned gen = 0; gen < kGens; ++gen) {
      if (kPackets[row].gens >> gen & 1) {
        index[gen][kPackets[row].op][kPackets[row].sub_op] = static_cast<uint8_t>(row + 1);
      }
    }
  }
  return index;
}
constexpr Index kIndex = BuildIndex();

const PacketSpec* FindSpec(unsigned gen, unsigned op, unsigned sub_op) {
  if (op > kMaxOp || sub_op > kMaxSubOp) return nullptr;
  const uint8_t row = kIndex[gen][op][sub_op];
  return row ? &kPackets[row - 1] : nullptr;
}

}  // namespace

SdmaGen SdmaGenOf(unsigned major) {
  if (major <= 4) return SdmaGen::k4;
  return major >= 7 ? SdmaGen::k7 : static_cast<SdmaGen>(major - 4);
}

DecodedPacket DecodeSdma(std::span<const uint8_t> bytes, SdmaGen gen) {
  DecodedPacket packet;
  if (bytes.size() < 4) {
    packet.problem = PacketProblem::kTruncated;
    packet.raw = bytes;
    return packet;
  }
  const uint32_t header = Dword(bytes, 0);
  const unsigned g = static_cast<unsigned>(gen);
  const uint8_t gen_bit = static_cast<uint8_t>(1u << g);
  packet.op = header & 0xff;
  packet.sub_op = header >> 8 & 0xff;

  const PacketSpec* spec = FindSpec(g, packet.op, packet.sub_op);
  if (!spec) {
    packet.problem = PacketProblem::kUnknownOp;
    for (unsigned other = 0; other < kGens && packet.name.empty(); ++other) {
      if (const PacketSpec* foreign = FindSpec(other, packet.op, packet.sub_op)) {
        packet.name = foreign->name;
        packet.problem = PacketProblem::kOtherGeneration;
      }
    }
    packet.raw = bytes.first(4);
    return packet;
  }
  const bool linear_copy = packet.op == 1 && packet.sub_op == 0;
  const bool tiled_copy = packet.op == 1 && packet.sub_op == 1;
  const bool poll = packet.op == 8 && packet.sub_op == 0;
  if (linear_copy && (header >> 27 & 1)) spec = &kCopyBroadcastSpec;
  if (tiled_copy && (header >> 27 & 1)) spec = &kTiledBroadcastSpec;
  if (poll && !(header >> 31)) spec = &kPollRegisterSpec;

  packet.name = spec->name;
  packet.role = spec->role;
  packet.dwords = spec->dwords;
  if (packet.op == 0) packet.dwords += header >> 16 & 0x3fff;
  if (spec->extra_dw) {
    if (bytes.size() < (spec->extra_dw + 1u) * 4) {
      packet.dwords = 0;  // the count itself is not there
    } else {
      const uint32_t word = Dword(bytes, spec->extra_dw);
      const uint32_t mask = (1u << (spec->extra_msb - spec->extra_lsb + 1)) - 1;
      packet.dwords += (word >> spec->extra_lsb & mask) + 1;
    }
  }

  const uint32_t unused = ~(HeaderBits(spec->fields, gen_bit) | 0xffffu);
  if (header & unused) packet.problem = PacketProblem::kReservedBits;
  const size_t whole = packet.bytes();
  packet.raw = bytes.first(whole && whole < bytes.size() ? whole : bytes.size() & ~size_t{3});
  AddFields(spec->fields, gen_bit, packet.raw, packet.fields);
  packet.odd_bits = HasOddBits(spec->fields, gen_bit, packet.raw);
  if (packet.role == PacketRole::kWait && packet.Get("function").value_or(0) == 7) {
    packet.problem = PacketProblem::kBadValue;
  }
  if (gen == SdmaGen::k7 && packet.Find("cpv")) packet.problem = PacketProblem::kBadLength;
  if (whole == 0 || whole > bytes.size()) packet.problem = PacketProblem::kTruncated;
  return packet;
}

}  // namespace tg::amd
