// Queues fed by the device model from RPC calls, as a trace has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decoder/model/queue_device.h"
#include "decoder/model/queue_state.h"
#include "tests/model/feeder.h"
#include "tests/rings/hex.h"

namespace tg::model {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Command = wire::Command;

std::vector<uint8_t> B07Ring() {
  return test::Bytes(
      "080000d000100080000000008d010000ffffffff0400ff0f"
      "01000000ff0f00000000000000000010010000000000002001000000"
      "0500030040100080000000008e010000");
}

class DeviceQueuesTest : public ::testing::Test {
 protected:
  void MapBars() {
    f.MapBar(0, 256 << 20);
    f.MapBar(2, 2 << 20);
    f.MapBar(5, 1 << 20);
  }
  // MAP_SYSMEM as serve.py answers it: one u64 per page.
  void MapSysmem(uint32_t handle, uint64_t size, uint64_t address) {
    std::vector<uint8_t> list;
    for (uint64_t at = 0; at < size; at += 4096) {
      const auto page = Feeder::Bytes(address + at, 8);
      list.insert(list.end(), page.begin(), page.end());
    }
    f.Request(Command::kMapSysmem, 0, size);
    const size_t bytes = list.size();
    f.Reply(bytes, handle, std::move(list));
  }
  void SysmemWrite(uint32_t handle, uint64_t offset, std::vector<uint8_t> data) {
    const size_t size = data.size();
    f.Request(Command::kSysmemWrite, handle, offset, size, 0, std::move(data));
  }
  void SysmemRead(uint32_t handle, uint64_t offset, uint64_t value) {
    f.Request(Command::kSysmemRead, handle, offset, 8);
    f.Reply(8, 0, Feeder::Bytes(value, 8));
  }
  // A one-page-table world: identity for 4 KiB pages of host memory, as the driver maps them.
  void MapVa(uint64_t va, uint64_t dma, uint64_t bytes) {
    const uint64_t index = va - 0x200000000000;
    const uint64_t tables[3] = {0x2000000, 0x2001000, next_table_};
    f.Write(0, (index >> 39 & 511) * 8, tables[0] | 1, 8);
    f.Write(0, tables[0] + (index >> 30 & 511) * 8, tables[1] | 1, 8);
    f.Write(0, tables[1] + (index >> 21 & 511) * 8, tables[2] | 1, 8);
    next_table_ += 0x1000;
    for (uint64_t at = 0; at < bytes; at += 4096) {
      // gfx11: valid, system, snooped, RWX
      f.Write(0, tables[2] + ((index + at) >> 12 & 511) * 8, (dma + at) | 0x77, 8);
    }
  }

  Feeder f;
  DeviceQueues queues{f.device};
  uint64_t next_table_ = 0x2002000;
};

// Field report B07 over TCP. The trace has no page tables: addresses are the regions' own.
TEST_F(DeviceQueuesTest, B07OverTcp) {
  f.Connect("tcp");
  MapBars();
  MapSysmem(0, 0x10000, 0x10000000);
  MapSysmem(1, 0x4000, 0x80000000);
  f.W("regSDMA0_QUEUE0_RB_BASE", 0x10000000 >> 8);
  f.W("regSDMA0_QUEUE0_RB_CNTL", 1 | 14 << 1);  // 64 KiB
  SysmemWrite(0, 0x2480, B07Ring());
  f.Write(2, 0x800, 0x24c4, 8);
  // bar5+0x4b8c, bar5+0x4b94: read and write pointer of SDMA0 on gfx11
  f.Read(5, 0x4b8c, 0x2480);
  f.Read(5, 0x4b94, 0x24c4);
  for (int i = 0; i < 3; ++i) SysmemRead(1, 0x1000, 0xc3);
  queues.Finish();
  const auto index = queues.queues().FindByName("sdma0");
  ASSERT_TRUE(index);
  const QueueState state = StateOf(queues.queues(), *index);
  EXPECT_EQ(state.headline,
            "SDMA0 rptr 0x2480 wptr 0x24c4, 68 bytes / 3 packets left; waiting: POLL_REGMEM "
            "[0x80001000] >= 397, memory holds 195");
  ASSERT_EQ(state.items.size(), 3u);
  EXPECT_TRUE(state.items[0].here);
}

TEST_F(DeviceQueuesTest, B07Variants) {
  f.Connect("tcp");
  MapBars();
  MapSysmem(0, 0x10000, 0x10000000);
  MapSysmem(1, 0x4000, 0x80000000);
  SysmemWrite(0, 0x2480, B07Ring());
  f.Write(2, 0x800, 0x24c4, 8);
  const auto line = [&] {
    return StateOf(queues.queues(), *queues.queues().FindByName("SDMA0")).headline;
  };
  EXPECT_THAT(line(), StartsWith("SDMA0 pointers not read by client; doorbell says 0x24c4"));
  SysmemRead(1, 0x1000, 0xc3);
  f.Read(5, 0x4b8c, 0x24c4);
  f.Read(5, 0x4b94, 0x24c4);
  EXPECT_THAT(line(), StartsWith("SDMA0 rptr 0x24c4 wptr 0x24c4, ring drained, fence not seen"));
}

TEST_F(DeviceQueuesTest, B07WithoutSnapshotOnTheUnixPath) {
  f.Connect("unix");
  MapBars();
  f.Region(0, 0x100000, {{0x10000000, 0x100000}});
  f.W("regSDMA0_QUEUE0_RB_BASE", 0x10000000 >> 8);
  f.W("regSDMA0_QUEUE0_RB_CNTL", 1 | 18 << 1);
  f.Write(2, 0x800, 0x24c4, 8);
  f.Read(5, 0x4b8c, 0x2480);
  const QueueState state = StateOf(queues.queues(), 0);
  EXPECT_EQ(state.headline,
            "SDMA0 rptr 0x2480 wptr 0x24c4, 68 bytes left; ring content not observed");
}

// Field report B08 through the doorbell BAR.
TEST_F(DeviceQueuesTest, B08Doorbells) {
  f.Connect("unix");
  MapBars();
  f.W("regSDMA0_QUEUE0_RB_BASE", 0x10000000 >> 8);
  f.W("regSDMA0_QUEUE0_RB_CNTL", 1 | 18 << 1);
  for (uint64_t value : {0x0c5416c0, 0x0c541780, 0x0c541840}) f.Write(2, 0x800, value, 8);
  f.Read(5, 0x4b8c, 0x0c541840);
  f.Write(2, 0x800, 0x0c642840, 8);
  const Queue& queue = queues.queues().queues()[0];
  EXPECT_EQ(queue.RingOffset(queue.submissions[0].end), 0x416c0u);
  EXPECT_EQ(queue.RingOffset(queue.submissions[1].end), 0x41780u);
  EXPECT_EQ(queue.RingOffset(queue.submissions[2].end), 0x41840u);
  const auto warnings = queues.queues().warnings();
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0].text, HasSubstr("warm start"));
  EXPECT_THAT(warnings[1].text, HasSubstr("OVERRUN"));
}

// The driver's own way on the Unix path: page tables, set-up, doorbell, then what the proxy stored.
TEST_F(DeviceQueuesTest, UnixPathWithPageTablesAndSnapshots) {
  f.Connect("unix");
  MapBars();
  f.W("regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32", 1);
  f.W("regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32", 0);
  f.Region(0, 0x10000, {{0x101000000, 0x10000}});    // ring
  f.Region(1, 0x4000, {{0x102000000, 0x4000}});      // queue page
  f.Region(2, 0x4000, {{0x103000000, 0x4000}});      // signals
  f.Region(3, 0x200000, {{0x104000000, 0x200000}});  // staging
  MapVa(0x200000000000, 0x101000000, 0x10000);
  MapVa(0x200000200000, 0x102000000, 0x4000);
  MapVa(0x200000400000, 0x103000000, 0x4000);
  MapVa(0x200000600000, 0x104000000, 0x200000);
  // VRAM at 0x200000800000: a 2 MiB leaf (PDE_PTE) in the third level.
  f.Write(0, 0x2001000 + 4 * 8, (0x4000000ull | 0x71) | 1ull << 54, 8);
  f.W("regSDMA0_QUEUE0_RB_RPTR", 0);
  f.W("regSDMA0_QUEUE0_RB_RPTR_HI", 0);
  f.W("regSDMA0_QUEUE0_RB_WPTR", 0);
  f.W("regSDMA0_QUEUE0_RB_WPTR_HI", 0);
  f.W("regSDMA0_QUEUE0_RB_BASE", 0);
  f.W("regSDMA0_QUEUE0_RB_BASE_HI", 0x20);
  f.W("regSDMA0_QUEUE0_RB_RPTR_ADDR_LO", 0x200080);
  f.W("regSDMA0_QUEUE0_RB_RPTR_ADDR_HI", 0x2000);
  f.W("regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_LO", 0x200038);
  f.W("regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_HI", 0x2000);
  f.W("regSDMA0_QUEUE0_DOORBELL_OFFSET", 512 << 2);
  f.W("regSDMA0_QUEUE0_RB_CNTL", 1 | 14 << 1);
  auto ring = test::Dwords("d0000008 00403ff0 00002000 00000000 ffffffff 0fff0004");
  test::Append(ring,
               test::Dwords("00000001 00003fff 00000000 00600000 00002000 00800000 00002000"));
  test::Append(ring, test::Dwords("00030005 00403ff0 00002000 00000001"));
  f.Write(2, 0x800, 0x44, 8);
  f.Snapshot(0, 0, ring);
  f.Snapshot(2, 0x3ff0, Feeder::Bytes(0, 8));
  f.Snapshot(1, 0x80, Feeder::Bytes(0x18, 8));
  EXPECT_EQ(queues.queues().queues()[0].submissions[0].content, Submission::Content::kPending);
  f.Snapshot(1, 0x38, Feeder::Bytes(0x44, 8));
  const Queue& queue = queues.queues().queues()[0];
  EXPECT_EQ(queue.submissions[0].content, Submission::Content::kObserved);
  const QueueState state = StateOf(queues.queues(), 0);
  EXPECT_EQ(state.headline,
            "SDMA0 rptr 0x18 wptr 0x44, 44 bytes / 2 packets left; at: COPY_LINEAR 16384 bytes "
            "0x200000600000 -> 0x200000800000");
  ASSERT_TRUE(state.missing);
  EXPECT_EQ(state.missing->fence.value, 1u);
  EXPECT_EQ(state.missing->memory, 0u);
  const CopyTotals& up = queues.copies().totals(CopyDirection::kHostToVram);
  EXPECT_EQ(up.copies, 1u);
  EXPECT_EQ(up.bytes, 0x4000u);
  EXPECT_EQ(queues.copies().staging().uses, 1u);
  // The signal arrives.
  f.Snapshot(2, 0x3ff0, Feeder::Bytes(1, 8));
  f.Snapshot(1, 0x80, Feeder::Bytes(0x44, 8));
  EXPECT_EQ(StateOf(queues.queues(), 0).kind, QueueState::Kind::kIdle);
  EXPECT_EQ(queue.submissions[0].retired_call, f.call);
}

// A torn copy is not read as packets.
TEST_F(DeviceQueuesTest, TornBytesAreNotObserved) {
  f.Connect("unix");
  MapBars();
  f.Region(0, 0x10000, {{0x10000000, 0x10000}});
  f.Region(1, 0x4000, {{0x20000000, 0x4000}});
  f.W("regSDMA0_QUEUE0_RB_WPTR", 0);
  f.W("regSDMA0_QUEUE0_RB_BASE", 0x10000000 >> 8);
  f.W("regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_LO", 0x20000038);
  f.W("regSDMA0_QUEUE0_RB_CNTL", 1 | 14 << 1);
  f.Write(2, 0x800, 0x18, 8);
  tinygpu::trace::Packet packet;
  packet.mutable_sysmem()->set_index(0);
  packet.mutable_sysmem()->set_data(std::string(24, '\x08'));
  packet.mutable_sysmem()->set_torn(true);
  f.Packet(packet);
  f.Snapshot(1, 0x38, Feeder::Bytes(0x18, 8));
  EXPECT_EQ(queues.queues().queues()[0].submissions[0].content, Submission::Content::kNotObserved);
  EXPECT_FALSE(StateOf(queues.queues(), 0).ring_observed);
}

// Recovery sets the compute queue up again: how it stood before is kept.
TEST_F(DeviceQueuesTest, WhatRecoveryWipesOutIsKept) {
  f.Connect("tcp");
  MapBars();
  MapSysmem(0, 0x10000, 0x10000000);
  MapSysmem(1, 0x4000, 0x20000000);
  const auto set_up = [&] {
    f.W("regGRBM_GFX_CNTL", 1 << 2);
    f.W("regCP_HQD_PQ_BASE", 0x10000000 >> 8);
    f.W("regCP_HQD_PQ_BASE_HI", 0);
    f.W("regCP_HQD_PQ_RPTR_REPORT_ADDR", 0x20000080);
    f.W("regCP_HQD_PQ_WPTR_POLL_ADDR", 0x20000038);
    f.W("regCP_HQD_PQ_DOORBELL_CONTROL", 0x40000018);
    f.W("regCP_HQD_PQ_CONTROL", 0x50d);  // 64 KiB
    f.W("regCP_HQD_PQ_WPTR_LO", 0);
    f.W("regCP_HQD_PQ_WPTR_HI", 0);
    f.W("regCP_HQD_ACTIVE", 1);
    f.W("regGRBM_GFX_CNTL", 0);
  };
  set_up();
  SysmemWrite(0, 0, test::Dwords("c0053c00 00000015 20001000 00000000 00000002 ffffffff 00000004"));
  SysmemWrite(1, 0x38, Feeder::Bytes(7, 8));
  f.Write(2, 0x18, 7, 8);
  SysmemRead(1, 0x80, 0);
  SysmemRead(1, 0x1000, 1);
  EXPECT_TRUE(queues.abandoned().empty());
  set_up();
  ASSERT_EQ(queues.abandoned().size(), 1u);
  EXPECT_EQ(queues.abandoned().at(0).state.headline,
            "COMPUTE0 rptr 0x0 wptr 0x7, 28 bytes / 1 packet left; waiting: WAIT_REG_MEM "
            "[0x20001000] >= 2, memory holds 1");
  EXPECT_THAT(StateOf(queues.queues(), 0).headline, StartsWith("COMPUTE0 set up again at call"));
}

}  // namespace
}  // namespace tg::model
