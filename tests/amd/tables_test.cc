// The small fact tables: scratch registers, faults, interrupts, PSP, SMU, doorbells, VRAM places.
#include <gtest/gtest.h>

#include "schemas/amd/doorbell.h"
#include "schemas/amd/fault.h"
#include "schemas/amd/ih.h"
#include "schemas/amd/mqd.h"
#include "schemas/amd/psp.h"
#include "schemas/amd/scratch.h"
#include "schemas/amd/smu.h"
#include "schemas/amd/vram_layout.h"

namespace tg::amd {
namespace {

constexpr IpVersion kGfx11{11, 0, 0};
constexpr IpVersion kGfx12{12, 0, 1};
constexpr IpVersion kGfx9{9, 4, 3};

TEST(Scratch, EveryVersionHasItsMeaning) {
  ASSERT_EQ(AmVersions().size(), 8u);
  for (uint32_t n = 1; n <= 8; ++n) EXPECT_EQ(AmVersions()[n - 1].value, 0xA0000000 + n);
  EXPECT_EQ(ClassifyReg7(0xA0000008), Reg7Kind::kCurrent);
  EXPECT_EQ(DescribeReg7(0xA0000008), "AM since 2026-01-26");
  EXPECT_EQ(ClassifyReg7(0xA0000007), Reg7Kind::kOlder);
  EXPECT_EQ(FindAmVersion(0xA0000006)->since, "2025-07-22");
  EXPECT_EQ(ClassifyReg7(0xA0000009), Reg7Kind::kUnknownAm);
  EXPECT_EQ(ClassifyReg7(0xFFFFFFFF), Reg7Kind::kAllOnes);
  EXPECT_EQ(ClassifyReg7(0), Reg7Kind::kZero);
  EXPECT_EQ(ClassifyReg7(0xB0000008), Reg7Kind::kForeign);
  EXPECT_EQ(DescribeReg6(0xA0000008, 0), "previous session finished cleanly");
  EXPECT_EQ(DescribeReg6(0xA0000008, 1),
            "previous session did not finish cleanly (killed, or ended in error)");
  EXPECT_EQ(DescribeReg6(0xA0000006, 1), "not used by this AM version");
}

TEST(Fault, StatusBits) {
  // more faults 1, walker 2, permissions 9 (not valid, execute), mapping 1, client 13, write,
  // vmid 3.
  const uint32_t raw = 1u | 2u << 1 | 9u << 4 | 1u << 8 | 13u << 9 | 1u << 18 | 3u << 20;
  const FaultStatus f = DecodeFaultStatus(kGfx11, raw);
  EXPECT_TRUE(f.more_faults && f.mapping_error && f.write);
  EXPECT_FALSE(f.atomic);
  EXPECT_EQ(f.walker_error, 2);
  EXPECT_EQ(f.permissions, 9);
  EXPECT_EQ(f.client, 13);
  EXPECT_EQ(f.vmid, 3);
  EXPECT_TRUE(IsSdmaFaultClient(kGfx11, f.client));
  EXPECT_EQ(DescribeFault(kGfx11, true, f),
            "write by SDMA0, entry not valid, execute not allowed, walker error 2, mapping error, "
            "more faults, vmid 3");
  EXPECT_EQ(FaultClientName(kGfx12, true, 8), "TCP");
  EXPECT_EQ(FaultClientName(kGfx9, true, 12), "PA");
  EXPECT_EQ(FaultClientName(kGfx11, true, 12), "client 12");
  EXPECT_EQ(FaultClientName(kGfx11, false, 3), "client 3");
  EXPECT_TRUE(DecodeFaultStatus(kGfx11, 1u << 29).prt);
  EXPECT_TRUE(DecodeFaultStatus(kGfx12, 1u << 30).prt);
  EXPECT_TRUE(DecodeFaultStatus(kGfx12, 1u << 31).uce);
  EXPECT_TRUE(DecodeFaultStatus(kGfx12, 0, 1).fed);
  EXPECT_TRUE(DecodeFaultStatus(kGfx9, 1u << 29).uce);
  EXPECT_EQ(FaultAddress(0x12345678, 0xABC2), 0x212345678000u);
}

IhEntry Entry(uint8_t client, uint8_t source, uint32_t ctx0 = 0, uint32_t ctx1 = 0) {
  const uint32_t dwords[8] = {client | source << 8u | 7u << 16 | 5u << 24,
                              0x11111111,
                              0x2222,
                              0x00030042,
                              ctx0,
                              ctx1,
                              0xc2,
                              0xc3};
  return DecodeIhEntry(dwords);
}

TEST(Ih, EntryFieldsAndPointers) {
  const IhEntry e = Entry(10, 55, 1, 2);
  EXPECT_EQ(e.client, 10);
  EXPECT_EQ(e.source, 55);
  EXPECT_EQ(e.ring, 7);
  EXPECT_EQ(e.vmid, 5);
  EXPECT_EQ(e.timestamp, 0x222211111111u);
  EXPECT_EQ(e.pasid, 0x42);
  EXPECT_EQ(e.node, 3);
  EXPECT_EQ(e.context[3], 0xc3u);
  EXPECT_EQ(DecodeIhWptr(0x41).dword, 16u);
  EXPECT_TRUE(DecodeIhWptr(0x41).overflow);
}

TEST(Ih, NamesAndWhatTheHandlerDoes) {
  EXPECT_EQ(IhSourceName(kGfx11, 10, 55), "SDMA_QUEUE_HANG");
  EXPECT_EQ(IhSourceName(kGfx11, 20, 183), "CP_BAD_OPCODE_ERROR");
  EXPECT_EQ(IhSourceName(kGfx11, 10, 67), "SDMA_FENCE");
  EXPECT_EQ(IhSourceName(kGfx12, 10, 70), "SDMA_FENCE");
  EXPECT_EQ(IhSourceName(kGfx12, 10, 67), "");
  EXPECT_EQ(IhSourceName(kGfx11, 18, 0), "");
  EXPECT_EQ(IhSourceName(kGfx9, 8, 224), "SDMA_TRAP");
  EXPECT_EQ(IhSourceName(kGfx9, 24, 246), "SDMA_POLL_TIMEOUT");
  EXPECT_EQ(IhClientName(kGfx11, 18), "VMC");
  EXPECT_EQ(IhClientName(kGfx9, 27), "UTCL2");
  EXPECT_EQ(ExplainIhEntry(kGfx11, Entry(10, 49)).effect, IhEffect::kIgnored);
  EXPECT_EQ(ExplainIhEntry(kGfx11, Entry(10, 0)).effect, IhEffect::kPageFault);
  EXPECT_EQ(ExplainIhEntry(kGfx9, Entry(27, 99)).effect, IhEffect::kPageFault);
  EXPECT_EQ(ExplainIhEntry(kGfx11, Entry(20, 181)).effect, IhEffect::kError);
  const IhMeaning sq = ExplainIhEntry(kGfx12, Entry(10, 239, 2u << 21, 2u << 6));
  EXPECT_EQ(sq.effect, IhEffect::kShaderError);
  EXPECT_EQ(sq.text, "GFX SQ_INTERRUPT_ID error MEMVIOL");
  EXPECT_EQ(ExplainIhEntry(kGfx12, Entry(10, 239, 0, 1u << 6)).effect, IhEffect::kIgnored);
  // gfx9: encoding in ctx0[27:26], type in bits 7:4 of ctx1 (23:20 of the gathered word).
  EXPECT_EQ(ExplainIhEntry(kGfx9, Entry(20, 239, 2u << 26, 0x10)).text,
            "GRBM_CP SQ_INTERRUPT_ID error ILLEGAL_INST");
}

TEST(Psp, FrameAndCommands) {
  std::vector<uint8_t> frame(kPspFrameSize, 0);
  const auto put = [](std::vector<uint8_t>& bytes, size_t at, uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
  };
  put(frame, 0x00, 0x85000);
  put(frame, 0x04, 0x80);
  put(frame, 0x0c, 0x86000);
  put(frame, 0x10, 0x80);
  put(frame, 0x14, 0x21);
  const auto decoded = DecodePspFrame(frame);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->command_address, 0x8000085000u);
  EXPECT_EQ(decoded->fence_address, 0x8000086000u);
  EXPECT_EQ(decoded->fence_value, 0x21u);
  frame.pop_back();
  EXPECT_FALSE(DecodePspFrame(frame));

  std::vector<uint8_t> cmd(kPspCommandSize, 0);
  put(cmd, 0x08, 6);
  put(cmd, 0x1c, 0x100000);
  put(cmd, 0x20, 0x80);
  put(cmd, 0x24, 0x1234);
  put(cmd, 0x28, 89);
  put(cmd, 0x360, 0xFFFF0006);
  const auto load = DecodePspCommand(cmd);
  ASSERT_TRUE(load);
  EXPECT_EQ(load->address, 0x8000100000u);
  EXPECT_EQ(load->size, 0x1234u);
  EXPECT_EQ(load->status, 0xFFFF0006u);
  EXPECT_EQ(DescribePspCommand(*load), "LOAD_IP_FW RS64_MEC");
  put(cmd, 0x08, 0x20);
  put(cmd, 0x370, 0x1300000);
  EXPECT_EQ(DecodePspCommand(cmd)->tmr_size, 0x1300000u);
  cmd.resize(0x100);
  EXPECT_FALSE(DecodePspCommand(cmd)->status);
  cmd.resize(0x20);
  EXPECT_FALSE(DecodePspCommand(cmd));
  EXPECT_EQ(PspBootloaderName(0x10000000), "LOAD_TOS_SPL_TABLE");
  EXPECT_EQ(PspBootloaderName(0x80000), "LOAD_KEY_DATABASE");
  EXPECT_EQ(PspControlName(0x30000), "DESTROY_RINGS");
  EXPECT_EQ(PspFwTypeName(129), "P2S_TABLE");
  EXPECT_EQ(PspFwTypeName(18), "SMU");
  EXPECT_EQ(PspCommandName(39), "SRIOV_SPATIAL_PART");
  EXPECT_EQ(PspCommandName(77), "command 77");
}

// amd-structs section 7.
TEST(Smu, MessageNumbersPerVersion) {
  struct Row {
    const char* name;
    uint32_t navi31, mi300, navi48;
  };
  constexpr Row kRows[] = {
      {"GetSmuVersion", 0x02, 0x02, 0x02},         {"EnableAllSmuFeatures", 0x06, 0x05, 0x06},
      {"SetDriverDramAddrHigh", 0x0e, 0x0d, 0x0e}, {"SetDriverDramAddrLow", 0x0f, 0x0e, 0x0f},
      {"SetSoftMinByFreq", 0x19, 0x13, 0x19},      {"SetSoftMaxByFreq", 0x1a, 0x14, 0x1a},
      {"GetDpmFreqByIndex", 0x1f, 0x17, 0x1f},     {"SetPptLimit", 0x32, 0x18, 0x32},
  };
  for (const Row& row : kRows) {
    for (const IpVersion v : {IpVersion{13, 0, 0}, IpVersion{13, 0, 7}}) {
      EXPECT_EQ(SmuMessageNumber(v, row.name), row.navi31) << row.name;
    }
    for (const IpVersion v : {IpVersion{13, 0, 6}, IpVersion{13, 0, 12}, IpVersion{13, 0, 15}}) {
      EXPECT_EQ(SmuMessageNumber(v, row.name), row.mi300) << row.name;
    }
    for (const IpVersion v : {IpVersion{14, 0, 2}, IpVersion{14, 0, 3}}) {
      EXPECT_EQ(SmuMessageNumber(v, row.name), row.navi48) << row.name;
    }
    EXPECT_EQ(SmuMessageName({14, 0, 3}, row.navi48), row.name);
  }
  EXPECT_EQ(SmuMessageName({13, 0, 6}, 0x03), "GfxDriverReset");
  EXPECT_EQ(SmuMessageName({13, 0, 0}, 0x2f), "Mode1Reset");
  EXPECT_EQ(SmuMessageName({13, 0, 0}, 0x1a), "SetSoftMaxByFreq");
  EXPECT_EQ(SmuMessageName({12, 0, 0}, 0x1a), "message 0x1a");
  EXPECT_EQ(SmuArgumentText({14, 0, 2}, 0x1f, 2u << 16 | 0xff), "UCLK count");
  EXPECT_EQ(SmuArgumentText({13, 0, 6}, 0x17, 2u << 16 | 1), "SOCCLK level 1");
  EXPECT_EQ(SmuArgumentText({14, 0, 2}, 0x19, 3u << 16 | 1800), "FCLK 1800 MHz");
  EXPECT_EQ(SmuResponseText(1), "ok");
  EXPECT_EQ(SmuResponseText(0xFC), "rejected: busy");
  EXPECT_EQ(SmuResponseText(0), "no answer");
}

TEST(Doorbells, IndexOfQueues) {
  EXPECT_EQ(SdmaDoorbell(0) * 8, 0x800u);
  EXPECT_EQ(SdmaDoorbell(1) * 8, 0x800u + 0x50 * 4);
  EXPECT_EQ(SdmaDoorbell(4) * 8, 0x800u + 0x50);
  EXPECT_EQ(DoorbellName(3), "MEC ring 0");
  EXPECT_EQ(DoorbellName(256), "SDMA engine 0");
  EXPECT_EQ(DoorbellName(286), "SDMA engine 3");
  EXPECT_EQ(DoorbellName(376), "IH");
  EXPECT_EQ(DoorbellName(399), "VCN 7");
  EXPECT_EQ(DoorbellName(5000), "doorbell 5000");
}

TEST(Mqd, RingSizes) {
  EXPECT_EQ(PqRingBytes(21), 16u << 20);  // (16 MiB / 4).bit_length() - 2
  EXPECT_EQ(RbRingBytes(22), 16u << 20);
  EXPECT_EQ(RbRingBytes(16), kVramIhRingSize);
  // Sizes that 64 bits cannot say: no ring at all.
  EXPECT_EQ(PqRingBytes(60), 1ull << 63);
  EXPECT_EQ(PqRingBytes(61), 0u);
  EXPECT_EQ(PqRingBytes(63), 0u);
  EXPECT_EQ(RbRingBytes(63), 0u);
}

TEST(VramLayout, Places) {
  EXPECT_EQ(VramPlaceName(0), "root page table");
  EXPECT_EQ(VramPlaceName(0x3020), "IH ring 0 + 0x20");
  EXPECT_EQ(VramPlaceName(0x9c200), "MQD of queue 1 + 0x200");
  EXPECT_EQ(VramPlaceName(0x9c200, 8), "MQD of queue 0 + 0x1200");
  EXPECT_EQ(VramPlaceName(0x100010), "PSP upload buffer + 0x10");
  EXPECT_EQ(VramPlaceName(0x2000000), "page tables and buffers");
  EXPECT_EQ(VramPlaceName(0xF0000), "");
  EXPECT_EQ(ReservedVram({9, 4, 3}), 384u << 20);
  EXPECT_EQ(ReservedVram({12, 0, 0}), 64u << 20);
}

}  // namespace
}  // namespace tg::amd
