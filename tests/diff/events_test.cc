// What a trace becomes as a stream of events: each kind, what is left out, what is made relative;
// and differences of synthetic sessions, each found as exactly one.
#include "decoder/diff/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "decoder/diff/diff.h"
#include "decoder/diff/event.h"
#include "tests/diff/recorder.h"

namespace tg::diff {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Recorder;
using ::testing::SizeIs;
using Scene = std::function<void(Recorder&)>;

// Events as "kind what = value", from the one behind the first n on (those of opening the device).
std::vector<std::string> Events(const Scene& scene, StreamOptions options = {}, size_t n = 6) {
  Recorder recorder("events.pb");
  recorder.Open();
  scene(recorder);
  const std::string path = recorder.Done();
  auto reader = trace::TraceReader::Open(path);
  EventStream stream(std::move(*reader), std::move(options));
  Token token;
  std::vector<std::string> lines;
  while (stream.Next(token)) {
    const Event& e = *token.event;
    std::string line = std::string(EventKindName(e.kind)) + " " + e.What();
    if (!e.Value().empty()) line += " = " + e.Value();
    for (const PacketSeen& packet : e.packets) line += "; " + packet.Text();
    lines.push_back(line);
  }
  EXPECT_EQ(lines.back(), "end end = client closed first");
  lines.pop_back();
  lines.erase(lines.begin(), lines.begin() + static_cast<ptrdiff_t>(std::min(n, lines.size())));
  return lines;
}

std::vector<uint8_t> Fill(size_t size, uint8_t byte) {
  return std::vector<uint8_t>(size, byte);
}

// The root table, two more, and a leaf table at VRAM 0x2002000.
void Tables(Recorder& r) {
  r.Write(0, 0, 0x2000000 | 1, 8);
  r.Write(0, 0x2000000, 0x2001000 | 1, 8);
  r.Write(0, 0x2001000, 0x2002000 | 1, 8);
}

TEST(Events, OpeningTheDevice) {
  EXPECT_THAT(Events([](Recorder&) {}, {}, 0),
              ElementsAre("call RESIZE_BAR 0 = 0x0 0x0", "call MAP_BAR 0 = size 0x10000000",
                          "call MAP_BAR 2 = size 0x2000", "call MAP_BAR 5 = size 0x100000",
                          "register mmRCC_CONFIG_MEMSIZE = 0x6000"));
}

TEST(Events, RegistersByNameAndPollsByTheirLastValue) {
  EXPECT_THAT(
      Events(
          [](Recorder& r) {
            r.W("regSCRATCH_REG7", 0xa0000008);
            for (int i = 0; i < 50; i++) r.R("regCP_STAT", i < 49 ? 1 : 0);
            r.R("regSCRATCH_REG6", 1);
            r.W("regSCRATCH_REG6", 5);
            r.W("regSCRATCH_REG6", 5);
          },
          {}, 5),
      ElementsAre("register regSCRATCH_REG7 = 0xa0000008", "register regCP_STAT = 0x0",
                  "register regSCRATCH_REG6 = 0x1", "register regSCRATCH_REG6 = 0x5, 2 times"));
}

TEST(Events, ThroughWindowsItIsTheTargetThatCounts) {
  // MM_INDEX with bit 31 selects VRAM; MM_DATA is what lies there.
  const auto lines = Events(
      [](Recorder& r) {
        r.Write(5, 0x18, 0);
        r.Write(5, 0x0, 0x80001000);
        r.Read(5, 0x4, 0x1234);
      },
      {}, 5);
  EXPECT_THAT(lines, ElementsAre("register mmMM_INDEX_HI = 0x0", "register mmMM_INDEX = 0x80001000",
                                 "register mmMM_DATA = 0x1234", "vram VRAM 0x1000+0x4 = 0x1234"));
}

TEST(Events, ConfigurationSpace) {
  EXPECT_THAT(Events(
                  [](Recorder& r) {
                    r.CfgRead(4, 2, 0x7);
                    r.CfgRead(4, 2, 0x3);
                    r.CfgWrite(4, 2, 0x7);
                  },
                  {}, 5),
              ElementsAre("config CFG_READ 0x4 size 2 = 0x3", "config CFG_WRITE 0x4 size 2 = 0x7"));
}

TEST(Events, PageTableEntriesByRegionAndOffset) {
  const auto lines = Events(
      [](Recorder& r) {
        r.Region(7, 0x10000, {{0x7000'0000, 0x8000}, {0x9000'0000, 0x8000}});
        Tables(r);
        for (uint64_t i = 0; i < 16; i++)
          r.Write(0, 0x2002000 + i * 8,
                  (i < 8 ? 0x7000'0000 : 0x9000'0000 - 0x8000) + i * 0x1000 + 0x77, 8);
        r.Write(0, 0x2002080, 0x4000'0077, 8);
        r.Read(0, 0x2002000, 0x7000'0077, 8);
        r.Read(0, 0x2002008, 0x7000'1077, 8);
        r.Read(0, 0x2002010, ~0ull, 8);
      },
      {}, 5);
  EXPECT_THAT(lines,
              ElementsAre("call MAP_SYSMEM_FD = asked 0x10000, granted 0x10000",
                          "page-table page table 0x0 = 1 entry -> VRAM 0x2000000 flags 0x1",
                          "page-table page table 0x2000000 = 1 entry -> VRAM 0x2001000 flags 0x1",
                          "page-table page table 0x2001000 = 1 entry -> VRAM 0x2002000 flags 0x1",
                          "page-table page table 0x2002000 = 16 entries -> region 0+0x0 flags 0x77",
                          "page-table page table 0x2002080 = 1 entry -> DMA 0x40000000 flags 0x77",
                          "page-table page table 0x2002010 = 0xffffffffffffffff, not the "
                          "0x70002077 that was written"));
}

TEST(Events, BlocksInVram) {
  // A queue descriptor, a firmware image, a page of zeros.
  EXPECT_THAT(Events(
                  [](Recorder& r) {
                    r.Write(0, 0x9b000, Fill(0x800, 0x5a));
                    r.Write(0, 0x100000, Fill(0x3000, 0xa5));
                    r.Write(0, 0x86000, Fill(0x1000, 0));
                    r.Read(0, 0x86000, 0, 4);
                    r.Read(0, 0x86000, 1, 4);
                  },
                  {}, 5),
              ElementsAre(HasSubstr("vram VRAM 0x9b000+0x800 = content "),
                          HasSubstr("vram VRAM 0x100000+0x3000 = content "),
                          "vram VRAM 0x86000+0x1000 = zeros", "vram VRAM 0x86000+0x4 = 0x1"));
}

TEST(Events, DoorbellsWithTheirPackets) {
  const auto lines = Events([](Recorder& r) {
    r.Boot();
    r.Queues();
    r.SdmaSubmit(1, 0);
    r.Timeline(1);
    r.ComputeSubmit(2, 1);
    r.Timeline(2);
    r.ComputeRead(r.compute_wptr());
    r.SdmaRead(r.sdma_wptr());
  });
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[lines.size() - 2],
            "doorbell doorbell bar2+0x800 = 0x44; POLL_REGMEM [0x150003ff0] >= 0; COPY_LINEAR 4096 "
            "bytes 0x160000000 -> 0x170000000; FENCE [0x150003ff0] = 1");
  EXPECT_THAT(lines.back(), HasSubstr("doorbell doorbell bar2+0x18 = "));
  EXPECT_THAT(lines.back(), HasSubstr("DISPATCH_DIRECT"));
  EXPECT_THAT(lines.back(), HasSubstr("RELEASE_MEM"));
}

// The proxy's copies of a ring come late in a trace by as much as its thread lagged.
TEST(Events, PacketsThatComeLateBelongToTheirDoorbell) {
  const auto scene = [](bool late) {
    return [late](Recorder& r) {
      r.Boot();
      r.Queues();
      if (late) r.Write(2, 0x800, 0x44, 8);
      r.SdmaSubmit(1, 0, false);
      if (!late) r.Write(2, 0x800, 0x44, 8);
      r.W("regSCRATCH_REG6", 1);
    };
  };
  EXPECT_EQ(Events(scene(true)), Events(scene(false)));
}

TEST(Events, Interrupts) {
  const auto lines = Events(
      [](Recorder& r) {
        r.Interrupt(10, 0);  // UTCL2, a page fault
        r.HandlerEnd();
      },
      {}, 5);
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], HasSubstr("interrupt interrupt "));
}

TEST(Events, InterruptsThrownAwayUnread) {
  EXPECT_THAT(Events(
                  [](Recorder& r) {
                    r.Drain();
                    r.R("regIH_RB_WPTR", 16 << 2);
                    r.W("regIH_RB_RPTR", 16);
                  },
                  {}, 5),
              ElementsAre("interrupt interrupts discarded unread = 2"));
}

TEST(Events, WaitingIsNoEventUnlessTheCardIsGone) {
  EXPECT_THAT(Events([](Recorder& r) { r.Wait(5); }, {}, 5), IsEmpty());
  EXPECT_THAT(Events(
                  [](Recorder& r) {
                    for (int i = 0; i < 5; i++) r.R("regIH_RB_WPTR", 0xffffffff);
                  },
                  {}, 5),
              ElementsAre("register regIH_RB_WPTR = 0xffffffff"));
}

TEST(Events, RefusalsAndUnanswered) {
  EXPECT_THAT(Events(
                  [](Recorder& r) {
                    r.Request(wire::Command::kMapSysmemFd, 0, 0x4000);
                    r.Reply(5, 0, {'n', 'o', ' ', 'w', 'y'}, 1);
                  },
                  {}, 5),
              ElementsAre("call MAP_SYSMEM_FD = refused: no wy"));
}

TEST(Events, UnfinishedSubmissionsAreTold) {
  StreamOptions options;
  Recorder probe("probe.pb");
  const Scene scene = [](Recorder& r) {
    r.Boot();
    r.Queues();
    r.SdmaSubmit(1, 0);
  };
  probe.Open();
  scene(probe);
  options.unfinished[probe.call] = "SDMA0 submission 1 never finished";
  probe.Done();
  EXPECT_EQ(Events(scene, options).back(), "fence SDMA0 submission 1 never finished");
}

TEST(Events, StrictKeepsWhatIsLeftOutElse) {
  StreamOptions strict;
  strict.strict = true;
  const Scene scene = [](Recorder& r) {
    r.Wait(5);
    r.R("regCP_STAT", 1);
    r.R("regCP_STAT", 0);
  };
  EXPECT_THAT(Events(scene, strict, 5), SizeIs(12));
  EXPECT_THAT(Events(scene, {}, 5), SizeIs(1));
}

TEST(Events, FilterByNameBarCommandPhaseAndKind) {
  const Scene scene = [](Recorder& r) {
    r.Boot();
    r.CfgRead(4, 2, 7);
    r.Write(0, 0x9b000, Fill(0x800, 1));
  };
  const auto count = [&](std::vector<std::string> only, std::vector<std::string> ignore) {
    StreamOptions options;
    options.filter.only = std::move(only);
    options.filter.ignore = std::move(ignore);
    Recorder recorder("filter.pb");
    scene(recorder);
    auto reader = trace::TraceReader::Open(recorder.Done());
    EventStream stream(std::move(*reader), options);
    Token token;
    size_t n = 0;
    while (stream.Next(token)) n++;
    return n;
  };
  const size_t all = count({}, {});
  EXPECT_EQ(count({"regSCRATCH_REG7"}, {}), 2u);
  EXPECT_EQ(count({"SCRATCH_REG?"}, {}), 3u);
  EXPECT_EQ(count({"bar0"}, {}), 1u);
  EXPECT_EQ(count({"CFG_READ"}, {}), 1u);
  EXPECT_EQ(count({"MAP_BAR", "RESIZE_BAR"}, {}), 4u);
  EXPECT_EQ(count({"register"}, {"*SCRATCH*"}), 2u);
  EXPECT_EQ(count({"decision"}, {}), 1u);
  EXPECT_EQ(count({}, {"bar5"}), all - 5);
}

// ---- differences of whole sessions -----------------------------------------------------------

struct Pair {
  const char* what;
  Scene a, b;
  Difference::Kind kind;
  const char* event;  // in the first line of the side that has something
};

void Work(Recorder& r, int launches, uint64_t timeline = 1) {
  for (int i = 0; i < launches; i++, timeline++) {
    r.ComputeSubmit(static_cast<uint32_t>(timeline), static_cast<uint32_t>(timeline - 1));
    r.Timeline(timeline);
    r.ComputeRead(r.compute_wptr());
    r.Drain();
  }
}

Scene Session(const Scene& middle) {
  return [middle](Recorder& r) {
    r.Open();
    r.Boot();
    r.Queues();
    middle(r);
    r.Finish();
  };
}

DiffResult DiffOf(const Scene& a, const Scene& b, const DiffOptions& options = {}) {
  Recorder first("a.pb"), second("b.pb");
  a(first);
  b(second);
  auto result = Diff(first.Done(), second.Done(), options);
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

TEST(Sessions, OneDifferenceEachAndTheMirrorWhenSwapped) {
  const std::vector<Pair> pairs = {
      {"a launch more", Session([](Recorder& r) { Work(r, 6); }),
       Session([](Recorder& r) { Work(r, 7); }), Difference::Kind::kExtra, "doorbell bar2+0x18"},
      {"a submission missing, though its doorbells' values move", Session([](Recorder& r) {
         Work(r, 3);
         r.SdmaSubmit(4, 3);
         r.Timeline(4);
         r.SdmaRead(r.sdma_wptr());
         Work(r, 3, 5);
       }),
       Session([](Recorder& r) { Work(r, 6); }), Difference::Kind::kMissing, "doorbell bar2+0x800"},
      {"another size of a copy", Session([](Recorder& r) {
         Work(r, 2);
         r.SdmaSubmit(3, 2);
         r.SdmaRead(r.sdma_wptr());
         r.Timeline(3);
         Work(r, 2, 4);
       }),
       Session([](Recorder& r) {
         Work(r, 2);
         r.SdmaSubmit(3, 2, true, 0x2000);
         r.SdmaRead(r.sdma_wptr());
         r.Timeline(3);
         Work(r, 2, 4);
       }),
       Difference::Kind::kValue, "doorbell bar2+0x800"},
      {"a wait of seconds is none, an interrupt is one", Session([](Recorder& r) {
         Work(r, 2);
         r.Wait(9);
       }),
       Session([](Recorder& r) {
         Work(r, 2);
         r.Interrupt(10, 0);
         r.HandlerEnd();
       }),
       Difference::Kind::kExtra, "interrupt"},
      {"the last one never ends", Session([](Recorder& r) { Work(r, 4); }),
       Session([](Recorder& r) {
         Work(r, 3);
         r.ComputeSubmit(4, 3);
       }),
       Difference::Kind::kExtra, "COMPUTE0 submission 4 never finished"},
  };
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.what);
    const DiffResult there = DiffOf(pair.a, pair.b), back = DiffOf(pair.b, pair.a);
    ASSERT_EQ(there.total, 1u) << DiffText(there, {});
    ASSERT_EQ(back.total, 1u) << DiffText(back, {});
    const Difference &d = there.differences[0], &m = back.differences[0];
    EXPECT_EQ(d.kind, pair.kind) << DiffText(there, {});
    EXPECT_EQ(d.at_a, m.at_b);
    EXPECT_EQ(d.count_a, m.count_b);
    EXPECT_EQ(d.count_b, m.count_a);
    const std::vector<Token>& side = d.b.empty() ? d.a : d.b;
    ASSERT_FALSE(side.empty());
    EXPECT_THAT(side[0].event->What(), HasSubstr(pair.event));
  }
}

// Nobody tells which region an address belongs to: any mapping will do, as long as it is two-way.
TEST(Sessions, AddressesThatNoRegionExplainsMapTwoWay) {
  const auto scene = [](std::vector<uint64_t> pages) {
    return Session([pages](Recorder& r) {
      Tables(r);
      for (size_t i = 0; i < pages.size(); i++) {
        r.Write(0, 0x2002000 + i * 8, pages[i] | 0x77, 8);
        r.W("regSCRATCH_REG7", static_cast<uint32_t>(i));
      }
    });
  };
  const Scene a = scene({0x1000'0000, 0x1000'5000, 0x1000'0000, 0x1000'9000, 0x1000'5000});
  EXPECT_EQ(
      DiffOf(a, scene({0x7000'3000, 0x2000'0000, 0x7000'3000, 0x5000'0000, 0x2000'0000})).total,
      0u);
  EXPECT_EQ(
      DiffOf(a, scene({0x7000'3000, 0x2000'0000, 0x7000'4000, 0x5000'0000, 0x2000'0000})).total,
      1u);
  // Two pages of the first become one of the second.
  EXPECT_EQ(
      DiffOf(a, scene({0x7000'3000, 0x2000'0000, 0x7000'3000, 0x2000'0000, 0x2000'0000})).total,
      1u);
}

TEST(Sessions, LossesAreNoDifferences) {
  const auto scene = [](bool lost) {
    return Session([lost](Recorder& r) {
      for (uint32_t i = 0; i < 100; i++) {
        if (lost && i >= 40 && i < 70) continue;
        if (lost && i == 70) {
          tinygpu::trace::Packet packet;
          packet.mutable_loss()->set_cause(tinygpu::trace::Loss::DISK_FULL);
          packet.mutable_loss()->set_calls(30);
          r.Packet(packet);
        }
        r.W("regSCRATCH_REG7", i);
      }
    });
  };
  const DiffResult result = DiffOf(scene(false), scene(true));
  EXPECT_EQ(result.total, 0u) << DiffText(result, {});
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_THAT(DiffText(result, {}),
              HasSubstr("B lost 30 records while recording: gaps are no differences"));
  EXPECT_EQ(DiffOf(scene(true), scene(false)).total, 0u);
}

TEST(Sessions, ATraceThatStopsIsNoDifference) {
  const auto scene = [](Recorder& r, uint32_t n) {
    r.Open();
    for (uint32_t i = 0; i < n; i++) r.W("regSCRATCH_REG7", i);
  };
  Recorder whole("whole.pb"), cut("cut.pb");
  scene(whole, 100);
  scene(cut, 60);
  const std::string a = whole.Done(), b = cut.Killed();
  const auto there = Diff(a, b, {}), back = Diff(b, a, {});
  EXPECT_EQ(there->total, 0u);
  EXPECT_EQ(there->exit_code(), 4);
  EXPECT_THAT(DiffText(*there, {}), HasSubstr("B ends early after event 65"));
  EXPECT_THAT(DiffText(*there, {}), HasSubstr("no difference up to there"));
  EXPECT_THAT(DiffText(*back, {}), HasSubstr("A ends early after event 65"));
  EXPECT_EQ(Diff(b, b, {})->exit_code(), 0);
}

TEST(Sessions, AFilterThatMatchesNothingSaysSo) {
  DiffOptions options;
  options.filter.only = {"regSCRATCH_REGG"};
  const Scene scene = Session([](Recorder& r) { Work(r, 1); });
  const DiffResult result = DiffOf(scene, scene, options);
  EXPECT_THAT(result.notes, ElementsAre("'regSCRATCH_REGG' matches no event of either trace"));
}

}  // namespace
}  // namespace tg::diff
