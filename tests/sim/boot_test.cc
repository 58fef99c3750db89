// The driver's boot as the card sees it, and what outlives a client.
#include <gtest/gtest.h>

#include "replay/sim/smu.h"
#include "tests/sim/rig.h"

namespace tg::test {
namespace {

struct Case {
  const char* asic;
  uint64_t bar0;
  const char* arch;
};
class Boots : public testing::TestWithParam<Case> {};

TEST_P(Boots, InFullAndByteExact) {
  Rig rig(GetParam().asic, GetParam().bar0);
  client::Session& session = rig.Open();
  EXPECT_EQ(session.arch(), GetParam().arch);
  EXPECT_FALSE(session.partial_boot());
  EXPECT_TRUE(rig.gpu->card().regs.missing().empty());
  EXPECT_EQ(rig.counters().psp_rejected, 0u);
  EXPECT_EQ(rig.counters().smu_rejected, 0u);
  EXPECT_EQ(rig.counters().resets, 0u);

  for (const size_t size : {size_t{1}, size_t{4095}, (size_t{2} << 20) + 4097}) {
    const auto buffer = session.Allocate(size).value();
    const std::vector<uint8_t> data = Pattern(size, 7);
    std::vector<uint8_t> back(size);
    ASSERT_TRUE(session.CopyIn(buffer, data));
    ASSERT_TRUE(session.CopyOut(buffer, back));
    EXPECT_TRUE(back == data) << size;
  }
  ASSERT_TRUE(session.Barrier());
  ASSERT_TRUE(session.Close());
  EXPECT_EQ(rig.counters().compute_signals, 1u);
  EXPECT_EQ(rig.counters().page_faults, 0u);
  EXPECT_EQ(rig.counters().dma_unanswered, 0u);
}

INSTANTIATE_TEST_SUITE_P(Cards, Boots,
                         testing::Values(Case{"navi31", 0, "gfx1100"},
                                         Case{"navi31", sim::kSmallBar0, "gfx1100"},
                                         Case{"navi48", 0, "gfx1201"},
                                         Case{"navi48", sim::kSmallBar0, "gfx1201"}));

TEST(Sessions, CleanEndLeadsToPartialBoot) {
  Rig rig;
  ASSERT_TRUE(rig.Open().Close());
  const uint64_t commands = rig.counters().psp_commands;
  rig.Kill();
  client::Session& second = rig.Open();
  EXPECT_TRUE(second.partial_boot());
  EXPECT_EQ(rig.counters().psp_commands, commands);
  const auto buffer = second.Allocate(100'000).value();
  const std::vector<uint8_t> data = Pattern(100'000, 3);
  std::vector<uint8_t> back(data.size());
  ASSERT_TRUE(second.CopyIn(buffer, data));
  ASSERT_TRUE(second.CopyOut(buffer, back));
  EXPECT_TRUE(back == data);
}

TEST(Sessions, KilledClientLeadsToMode1Reset) {
  Rig rig;
  rig.Open();
  EXPECT_EQ(rig.Get("regSCRATCH_REG7"), 0xA0000008u);
  EXPECT_EQ(rig.Get("regSCRATCH_REG6"), 1u);
  rig.Kill();
  client::Session& second = rig.Open();
  EXPECT_FALSE(second.partial_boot());
  EXPECT_EQ(rig.counters().resets, 1u);
}

TEST(Sessions, ScratchRegistersAndVramOutliveAClient) {
  Rig rig;
  client::Session& first = rig.Open();
  ASSERT_TRUE(first.Close());
  rig.Kill();
  uint8_t mark[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  rig.gpu->BarWrite(0, 0x4000'0000, mark);
  client::Session& second = rig.Open();
  EXPECT_TRUE(second.partial_boot());
  uint8_t there[8] = {};
  rig.gpu->BarRead(0, 0x4000'0000, there);
  EXPECT_EQ(std::memcmp(mark, there, 8), 0);
}

TEST(Reset, ClearsVramAndRegistersButNotTheDiscoveryTable) {
  Rig rig;
  rig.Open();
  const uint64_t table = (24560ull << 20) - 0x10000;
  uint8_t mark[4] = {9, 9, 9, 9};
  rig.gpu->BarWrite(0, 0x1000'0000, mark);
  rig.gpu->Reset();
  uint8_t there[4] = {};
  rig.gpu->BarRead(0, 0x1000'0000, there);
  EXPECT_EQ(LoadLe<uint32_t>(there), 0u);
  rig.gpu->BarRead(0, table, there);
  EXPECT_EQ(LoadLe<uint32_t>(there), 0x28211407u);
  EXPECT_EQ(rig.Get("regSCRATCH_REG7"), 0u);
  // Bus mastering is off until somebody switches it on again.
  EXPECT_EQ(rig.gpu->CfgRead(4, 2), 0x0002u);
}

TEST(Smu, PinsTheHighestLevelsAtBootAndTheLowestAtTheEnd) {
  Rig rig;
  client::Session& session = rig.Open();
  // Memory clock of this board: 96, 456, 772, 1249 MHz.
  EXPECT_EQ(rig.gpu->smu().soft_min(2), 1249u);
  EXPECT_EQ(rig.gpu->smu().soft_max(2), 1249u);
  ASSERT_TRUE(session.Close());
  EXPECT_EQ(rig.gpu->smu().soft_min(2), 96u);
  EXPECT_EQ(rig.gpu->smu().soft_max(2), 96u);
}

TEST(Smu, AnswersUnknownMessagesAndClocks) {
  Rig rig;
  client::Session& session = rig.Open();
  const auto send = [&](uint32_t message, uint32_t argument) {
    EXPECT_TRUE(session.WriteRegister("mmMP1_SMN_C2PMSG_90", 0));
    EXPECT_TRUE(session.WriteRegister("mmMP1_SMN_C2PMSG_82", argument));
    EXPECT_TRUE(session.WriteRegister("mmMP1_SMN_C2PMSG_66", message));
    return rig.Get("mmMP1_SMN_C2PMSG_90");
  };
  EXPECT_EQ(send(0x77, 0), 0xfeu);            // unknown message
  EXPECT_EQ(send(0x1f, 2 << 16 | 0xff), 1u);  // GetDpmFreqByIndex, memory clock: how many
  EXPECT_EQ(rig.Get("mmMP1_SMN_C2PMSG_82"), 4u);
  EXPECT_EQ(send(0x1f, 2 << 16 | 2), 1u);
  EXPECT_EQ(rig.Get("mmMP1_SMN_C2PMSG_82"), 772u);
  EXPECT_EQ(send(0x19, 9u << 16 | 100), 0xffu);  // SetSoftMinByFreq of a clock there is not
}

TEST(Psp, RefusesWhatIsNotThere) {
  Rig rig;
  client::Session& session = rig.Open();
  // LOAD_IP_FW of an image outside of VRAM: status not 0, the fence comes all the same.
  const uint32_t wptr = rig.Get("regMP0_SMN_C2PMSG_67");
  std::vector<uint8_t> command(0x400), frame(0x40);
  StoreLe<uint32_t>(&command[8], 6);
  StoreLe<uint64_t>(&command[0x1c], 0x8000000000 + (24560ull << 20));
  StoreLe<uint32_t>(&command[0x24], 4096);
  StoreLe<uint32_t>(&command[0x28], 8);
  StoreLe<uint64_t>(&frame[0], 0x8000000000 + 0x85000);
  StoreLe<uint64_t>(&frame[0xc], 0x8000000000 + 0x86000);
  StoreLe<uint32_t>(&frame[0x14], 0x1234);
  rig.gpu->BarWrite(0, 0x85000, command);
  rig.gpu->BarWrite(0, 0x87000 + wptr * 4, frame);
  ASSERT_TRUE(session.WriteRegister("regMP0_SMN_C2PMSG_67", wptr + 16));
  uint8_t word[4];
  rig.gpu->BarRead(0, 0x86000, word);
  EXPECT_EQ(LoadLe<uint32_t>(word), 0x1234u);
  rig.gpu->BarRead(0, 0x85000 + 0x360, word);
  EXPECT_NE(LoadLe<uint32_t>(word), 0u);
  EXPECT_EQ(rig.counters().psp_rejected, 1u);
}

TEST(Engines, NeedTheirFirmwareAndTheirSwitches) {
  Rig rig;
  client::Session& session = rig.Open();
  const auto page = session.MapHost(0x1000).value();
  const uint32_t fence[] = {0x00030005, Low(page.va), High(page.va), 5};
  ASSERT_TRUE(session.WriteRegister("regSDMA0_F32_CNTL", 1));  // halt
  ASSERT_TRUE(session.SubmitSdma(fence));
  EXPECT_EQ(Word(*page.memory, 0), 0u);
  EXPECT_TRUE(rig.gpu->pending());
  ASSERT_TRUE(session.WriteRegister("regSDMA0_F32_CNTL", 0));
  EXPECT_EQ(rig.gpu->Run(), sim::Work::kIdle);
  EXPECT_EQ(Word(*page.memory, 0), 5u);
}

TEST(Doorbells, PassOnlyWhereTheDriverOpenedTheWay) {
  Rig rig;
  client::Session& session = rig.Open();
  const auto page = session.MapHost(0x1000).value();
  const uint32_t fence[] = {0x00030005, Low(page.va), High(page.va), 5};
  ASSERT_TRUE(session.WriteRegister("regRCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 0));
  ASSERT_TRUE(session.SubmitSdma(fence));
  EXPECT_EQ(rig.counters().doorbells_gated, 1u);
  EXPECT_EQ(Word(*page.memory, 0), 0u);
  ASSERT_TRUE(session.WriteRegister("regRCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1));
  // A slot that belongs to no queue.
  const uint8_t value[8] = {4};
  rig.gpu->BarWrite(2, 0x900, value);
  EXPECT_EQ(rig.counters().doorbells_unclaimed, 1u);
  EXPECT_EQ(Word(*page.memory, 0), 0u);
  // The next doorbell carries the lost one's work too.
  const uint32_t nop[] = {0};
  ASSERT_TRUE(session.SubmitSdma(nop));
  EXPECT_EQ(Word(*page.memory, 0), 5u);
}

}  // namespace
}  // namespace tg::test
