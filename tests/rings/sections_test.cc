#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "decoder/report/copies_section.h"
#include "decoder/report/rings_section.h"
#include "tests/model/feeder.h"
#include "tests/rings/hex.h"

namespace tg::report {
namespace {

using model::Feeder;
using ::testing::HasSubstr;
using ::testing::Not;

// Field report B07 as calls (TCP).
class RingsSection : public ::testing::Test {
 protected:
  RingsSection() {
    f_.Connect("tcp");
    f_.MapBar(0, 256 << 20);
    f_.MapBar(2, 2 << 20);
    f_.MapBar(5, 1 << 20);
    Region(0, 0x10000, 0x10000000);
    Region(1, 0x4000, 0x80000000);
    f_.W("regSDMA0_QUEUE0_RB_BASE", 0x10000000 >> 8);
    f_.W("regSDMA0_QUEUE0_RB_CNTL", 1 | 14 << 1);
  }
  void Region(uint32_t handle, uint64_t size, uint64_t address) {
    std::vector<uint8_t> list;
    for (uint64_t at = 0; at < size; at += 4096) test::Append(list, Feeder::Bytes(address + at, 8));
    f_.Request(wire::Command::kMapSysmem, 0, size);
    const size_t bytes = list.size();
    f_.Reply(bytes, handle, std::move(list));
  }
  void Hang() {
    const auto ring = test::Bytes(
        "080000d000100080000000008d010000ffffffff0400ff0f"
        "01000000ff0f00000000000000000010010000000000002001000000"
        "0500030040100080000000008e010000");
    f_.Request(wire::Command::kSysmemWrite, 0, 0x2480, 68, 0, ring);
    f_.Write(2, 0x800, 0x24c4, 8);
    f_.Read(5, 0x4b8c, 0x2480);
    f_.Read(5, 0x4b94, 0x24c4);
    f_.Request(wire::Command::kSysmemRead, 1, 0x1000, 8);
    f_.Reply(8, 0, Feeder::Bytes(0xc3, 8));
  }
  std::string Text(const RingsOptions& options = {}) {
    Output out(nullptr);
    QueuesText(QueuesJson(queues_, options), out, true);
    return out.text();
  }
  Feeder f_;
  model::DeviceQueues queues_{f_.device};
};

TEST_F(RingsSection, JsonContract) {
  Hang();
  const Json queues = QueuesJson(queues_);
  ASSERT_EQ(queues.size(), 1u);
  const Json& q = queues[0];
  EXPECT_EQ(q["name"], "SDMA0");
  EXPECT_EQ(q["kind"], "sdma");
  EXPECT_EQ(q["ring_va"], 0x10000000);
  EXPECT_EQ(q["ring_size"], 0x10000);
  EXPECT_EQ(q["rptr"], 0x2480);
  EXPECT_EQ(q["wptr"], 0x24c4);
  EXPECT_EQ(q["outstanding_bytes"], 68);
  EXPECT_EQ(q["outstanding_packets"], 3);
  ASSERT_EQ(q["packets"].size(), 3u);
  EXPECT_EQ(q["packets"][0]["offset"], 0x2480);
  EXPECT_EQ(q["packets"][0]["op"], "POLL_REGMEM");
  EXPECT_EQ(q["packets"][0]["here"], true);
  EXPECT_EQ(q["packets"][0]["memory"], 195);
  EXPECT_EQ(q["packets"][0]["fields"]["reference"], 397);
  EXPECT_EQ(q["packets"][1]["fields"]["bytes"], 4096);
  EXPECT_EQ(q["packets"][1]["fields"]["src"], 0x110000000);
  EXPECT_EQ(q["packets"][2]["op"], "FENCE");
  EXPECT_EQ(q["stuck"]["op"], "POLL_REGMEM");
  EXPECT_EQ(q["stuck"]["wants"], "[0x80001000] >= 397");
  EXPECT_EQ(q["stuck"]["has"], "195");
  EXPECT_EQ(q["missing_fence"]["value"], 398);
  EXPECT_EQ(q["missing_fence"]["has"], nullptr);
  EXPECT_EQ(q["headline"],
            "SDMA0 rptr 0x2480 wptr 0x24c4, 68 bytes / 3 packets left; waiting: POLL_REGMEM "
            "[0x80001000] >= 397, memory holds 195");
  EXPECT_EQ(q["last_doorbell"]["value"], 0x24c4);
}

// What was not observed is null, not zero and not an empty list.
TEST_F(RingsSection, NotObservedIsNull) {
  f_.Write(2, 0x800, 0x24c4, 8);
  const Json q = QueuesJson(queues_)[0];
  EXPECT_EQ(q["rptr"], nullptr);
  EXPECT_EQ(q["outstanding_bytes"], nullptr);
  EXPECT_EQ(q["outstanding_packets"], nullptr);
  EXPECT_EQ(q["packets"], nullptr);
  EXPECT_EQ(q["stuck"], nullptr);
  EXPECT_EQ(q["missing_fence"], nullptr);
  EXPECT_EQ(q["wptr_memory"], nullptr);
  EXPECT_EQ(q["state"], "pointers_not_observed");
  EXPECT_THAT(Text(), HasSubstr("ring content not observed"));
  EXPECT_EQ(CopiesJson(queues_), nullptr);
}

TEST_F(RingsSection, TextMarksTheReadPointer) {
  Hang();
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("=>   0x2480  POLL_REGMEM [0x80001000] >= 397  [memory holds 195, "
                              "not reached]  address: region 1+0x1000 (assumed)  <- the GPU's read "
                              "pointer"));
  EXPECT_THAT(text, HasSubstr("0x2498  COPY_LINEAR 4096 bytes 0x110000000 -> 0x120000000"));
  EXPECT_THAT(text,
              HasSubstr("fence missing: [0x80001040] = 398 (submission 1), memory not observed"));
  EXPECT_THAT(text, HasSubstr("#1 ring 0x2480..0x24c4 doorbell 0x24c4"));
}

TEST_F(RingsSection, WindowAndQueue) {
  Hang();
  RingsOptions options;
  options.queue = "sdma0";
  ASSERT_TRUE(ParseWindow("[.-4:.+1]", options));
  const Json q = QueuesJson(queues_, options)[0];
  EXPECT_EQ(q["packets"].size(), 2u);
  EXPECT_EQ(q["packets_left_out"], 1);
  options.queue = "compute0";
  EXPECT_TRUE(QueuesJson(queues_, options).empty());
}

TEST(ParseWindowTest, Forms) {
  RingsOptions o;
  ASSERT_TRUE(ParseWindow("[.-4:.+8]", o));
  EXPECT_EQ(o.before, 4u);
  EXPECT_EQ(o.after, 8u);
  o = {};
  ASSERT_TRUE(ParseWindow(".:.+2", o));
  EXPECT_EQ(o.before, 0u);
  EXPECT_EQ(o.after, 2u);
  o = {};
  ASSERT_TRUE(ParseWindow("[.-1:]", o));
  EXPECT_EQ(o.before, 1u);
  EXPECT_FALSE(o.after);
  for (const char* bad : {"", "4", "[.+4:.+8]", "[.-4:8]", "[.-x:.+8]", "[.-4:.+8]x", "[.-:.]"}) {
    EXPECT_FALSE(ParseWindow(bad, o)) << bad;
  }
}

TEST_F(RingsSection, Copies) {
  Region(2, 2 << 20, 0x110000000);
  Hang();
  const Json copies = CopiesJson(queues_);
  EXPECT_EQ(copies["copies"], 1);
  EXPECT_EQ(copies["bytes"], 4096);
  EXPECT_EQ(copies["by_direction"]["unknown"]["copies"], 1);
  EXPECT_EQ(copies["sizes"][0]["size"], 4096);
  Output out(nullptr);
  CopiesText(copies, out);
  EXPECT_THAT(out.text(), HasSubstr("4.0 KiB in 1 copies"));
  // It stands behind the packet that the engine waits at.
  EXPECT_EQ(copies["not_done"]["copies"], 1);
  EXPECT_EQ(copies["not_done"]["bytes"], 4096);
  EXPECT_THAT(out.text(), HasSubstr("not known to be done: 1 of them, 4.0 KiB"));
  EXPECT_THAT(out.text(), Not(HasSubstr("none observed")));
}

}  // namespace
}  // namespace tg::report
