// What the proxy says when a client is gone, on traces of the zoo.
#include "proxy/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>
#include <vector>

#include "tests/proxy/rig.h"
#include "tests/zoo/zoo_file.h"

namespace tg::proxy {
namespace {

using test::Eventually;
using test::TempDir;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct VerdictTest : testing::Test {
  TempDir dir;
  std::mutex mutex;
  std::vector<std::pair<LogLevel, std::string>> lines;
  LogFn log = [this](LogLevel level, std::string_view text) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(level, text);
  };

  std::string Trace(const std::string& name, size_t bytes = ~size_t{0}) {
    auto trace = zoo::LoadTrace(ZOO_TRACES, name);
    EXPECT_TRUE(trace.has_value());
    trace->resize(std::min(bytes, trace->size()));
    const std::string path = dir / (name + " it's.pb");
    EXPECT_TRUE(zoo::WriteFile(path, *trace).has_value());
    return path;
  }
};

TEST_F(VerdictTest, OfAHang) {
  const std::string path = Trace("sdma_stall");
  VerdictTeller teller(path, log);
  teller.ClientGone();
  teller.TraceClosed();
  EXPECT_THAT(
      lines,
      ElementsAre(
          Pair(LogLevel::kWarn, AllOf(HasSubstr("verdict: hang: SDMA0 stuck at COPY_LINEAR"),
                                      HasSubstr("(high confidence)"))),
          Pair(LogLevel::kWarn,
               AllOf(HasSubstr("advice: RESTART PROCESS: "), HasSubstr("AM_RESET=1"))),
          Pair(LogLevel::kWarn, "more: rpcdecode '" + (dir / "sdma_stall it'\\''s.pb") + "'")));
}

TEST_F(VerdictTest, OfAHealthyRunIsNoWarning) {
  VerdictTeller teller(Trace("copies"), log);
  teller.ClientGone();
  teller.TraceClosed();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], Pair(LogLevel::kInfo, HasSubstr("verdict: healthy: 41 submissions")));
}

TEST_F(VerdictTest, ATraceThatGrowsIsToldOncePerClient) {
  const std::string path = Trace("copies", 500000);
  VerdictTeller teller(path, log, {.settle_ms = 10, .budget_ms = 8000});
  teller.ClientGone();
  ASSERT_TRUE(Eventually(
      [&] {
        const std::lock_guard lock(mutex);
        return lines.size() >= 2;
      },
      10000));
  const auto whole = zoo::LoadTrace(ZOO_TRACES, "copies");
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(reinterpret_cast<const char*>(whole->data()) + 500000,
             static_cast<std::streamsize>(whole->size() - 500000));
  file.close();
  teller.ClientGone();
  teller.TraceClosed();
  const std::lock_guard lock(mutex);
  EXPECT_THAT(lines.back(), Pair(testing::_, HasSubstr("more: rpcdecode")));
  EXPECT_THAT(lines[lines.size() - 2], Pair(testing::_, HasSubstr("healthy: 41 submissions")));
}

TEST_F(VerdictTest, TooLongATraceIsSaid) {
  VerdictTeller teller(Trace("sdma_stall"), log, {.settle_ms = 10, .budget_ms = 0});
  teller.ClientGone();
  teller.TraceClosed();
  EXPECT_THAT(lines, ElementsAre(Pair(LogLevel::kInfo, HasSubstr("too long for a verdict"))));
}

TEST_F(VerdictTest, NoClientNoVerdict) {
  VerdictTeller(Trace("sdma_stall"), log).TraceClosed();
  EXPECT_TRUE(lines.empty());
}

TEST_F(VerdictTest, NoTrace) {
  VerdictTeller teller(dir / "none.pb", log);
  teller.ClientGone();
  teller.TraceClosed();
  EXPECT_THAT(lines, ElementsAre(Pair(LogLevel::kWarn, HasSubstr("no verdict: "))));
}

}  // namespace
}  // namespace tg::proxy
