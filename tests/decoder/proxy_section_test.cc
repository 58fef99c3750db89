// What the proxy did because it was told to: shown as such, and no evidence against the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/decoder/program.h"
#include "tests/decoder/wire_trace.h"

namespace tg::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Recording : public WireTrace {
 public:
  explicit Recording(const std::string& name) : WireTrace(TempFile(name)) {
    MapBar(0, 0x7f0000000000, 0x10000000);
    MapBar(2, 0x7f0020000000, 0x200000);
    MapBar(5, 0x7f0010000000, 0x80000);
    Read(5, 0x378c, 0x6000);
  }
  uint64_t Ask(const wire::RequestHeader& header, std::string_view refused,
               std::string_view injected, std::vector<uint8_t> payload = {}) {
    Advance(1000);
    trace::RequestRecord record;
    record.header = header;
    record.payload.size = payload.size();
    record.payload.data = payload;
    record.refused = refused;
    record.injected = injected;
    return writer().Request(record, now());
  }
  void Answer(uint64_t call, wire::ReplyHeader header, std::string_view injected,
              std::vector<uint8_t> body) {
    Advance(1000);
    trace::ReplyRecord record;
    record.call = call;
    record.reply = header;
    record.injected = injected;
    record.body.size = body.size();
    record.body.data = body;
    writer().Reply(record, now());
  }
  std::string Done() {
    Disconnect("client");
    Close();
    return path();
  }
};

const std::vector<uint8_t> kOnes(4, 0xff);
const std::vector<uint8_t> kNo{'n', 'o'};

json Report(const std::string& path) {
  return json::parse(RunDecoder({path, "--format", "json"}).out);
}

TEST(ProxySection, NothingWhenTheProxyDidNothing) {
  Recording trace("plain.pb");
  const std::string path = trace.Done();
  const json report = Report(path);
  EXPECT_EQ(report["proxy"]["guarded"], 0);
  EXPECT_EQ(report["proxy"]["entries"], json::array());
  EXPECT_THAT(RunDecoder({path}).out, Not(HasSubstr("Made by the proxy")));
}

TEST(ProxySection, EachActionIsNamed) {
  Recording trace("actions.pb");
  // As proxy/session.cc records them.
  for (int i = 0; i < 3; i++)
    trace.Ask({7, 0, 2, 0x800, 8, 0}, "--read-only", "", {1, 0, 0, 0, 0, 0, 0, 0});
  const uint64_t refused = trace.Ask({5, 0, 0, 0, 0, 0}, "--read-only", "");
  trace.Answer(refused, {1, 2, 0}, "--read-only", kNo);
  const uint64_t value = trace.Ask({6, 0, 5, 0x4490, 4, 0}, "", "");
  trace.Answer(value, {0, 4, 0}, "--inject MMIO_READ:value=0xffffffff; the server said 0x20",
               kOnes);
  const uint64_t error =
      trace.Ask({1, 0, 1, 0, 0, 0}, "--inject MAP_BAR:error=no", "--inject MAP_BAR:error=no");
  trace.Answer(error, {1, 2, 0}, "--inject MAP_BAR:error=no", kNo);
  trace.Ask({7, 0, 0, 0, 4, 0}, "--inject MMIO_WRITE:drop", "--inject MMIO_WRITE:drop",
            {1, 2, 3, 4});
  const uint64_t late = trace.Ask({3, 0, 0, 0, 4, 0}, "", "--inject CFG_READ:delay=50");
  trace.Answer(late, {0, 0x744c1002, 0}, "", {});
  const uint64_t own = trace.Ask({6, 0, 5, 0x30118, 4, 0}, "", "autopsy: regSCRATCH_REG6");
  trace.Answer(own, {0, 4, 0}, "autopsy: regSCRATCH_REG6", {1, 0, 0, 0});
  trace.Ask({6, 0, 5, 0x3011c, 4, 0}, "", "autopsy: regSCRATCH_REG7");
  const std::string path = trace.Done();

  const json report = Report(path);
  const json& proxy = report["proxy"];
  EXPECT_EQ(proxy["guarded"], 4);
  EXPECT_EQ(proxy["injected"], 4);
  EXPECT_EQ(proxy["autopsy"], 2);
  ASSERT_EQ(proxy["entries"].size(), 8u);
  EXPECT_EQ(proxy["entries"][0]["kind"], "guard");
  EXPECT_EQ(proxy["entries"][0]["count"], 3);
  EXPECT_EQ(proxy["entries"][0]["first_seq"], 5);
  EXPECT_EQ(proxy["entries"][0]["last_seq"], 7);
  EXPECT_EQ(proxy["entries"][1]["command"], "RESET");
  EXPECT_EQ(proxy["entries"][2]["text"], "--inject MMIO_READ:value=0xffffffff");
  EXPECT_EQ(proxy["entries"][2]["detail"], "the server said 0x20");
  EXPECT_EQ(proxy["entries"][5]["text"], "--inject CFG_READ:delay=50");
  EXPECT_EQ(proxy["entries"][6]["kind"], "autopsy");
  EXPECT_EQ(proxy["entries"][6]["answered"], 1);
  EXPECT_EQ(proxy["entries"][7]["answered"], 0);
  EXPECT_EQ(report["session"]["guarded"], 4);
  EXPECT_EQ(report["session"]["injected"], 4);
  // The proxy's own questions are no calls of the client, and nothing of the client is unanswered.
  EXPECT_EQ(report["session"]["unanswered_total"], 0);
  EXPECT_EQ(report["session"]["doorbells"], 0) << "none reached the device";
  EXPECT_EQ(report["refusals_total"], 0) << "the server refused nothing";

  const std::string text = RunDecoder({path}).out;
  EXPECT_THAT(text, HasSubstr("Made by the proxy, not by the device"));
  EXPECT_THAT(text,
              HasSubstr("guard    MMIO_WRITE bar2+0x800, 3 times up to record 7: --read-only"));
  EXPECT_THAT(text, HasSubstr("--inject MMIO_READ:value=0xffffffff; the server said 0x20"));
  EXPECT_THAT(text, HasSubstr("not answered"));
  EXPECT_THAT(text, HasSubstr("not the device alone: --read-only at record 5"));

  const std::string log = RunDecoder({"log", path}).out;
  EXPECT_THAT(log, HasSubstr("kept from the server: --read-only"));
  EXPECT_THAT(log, HasSubstr("injected: --inject CFG_READ:delay=50"));
  EXPECT_THAT(
      log, HasSubstr("answer injected: --inject MMIO_READ:value=0xffffffff; the server said 0x20"));
  EXPECT_THAT(log, HasSubstr("injected: autopsy: regSCRATCH_REG6"));
}

// Registers that read all ones because the proxy said so: the card is not lost.
TEST(ProxySection, InjectedOnesAreNoLostDevice) {
  for (const bool injected : {false, true}) {
    Recording trace(injected ? "ones_injected.pb" : "ones.pb");
    for (uint64_t reg = 0; reg < 20; reg++) trace.Read(5, 0x4480 + 4 * reg, 1);
    for (uint64_t reg = 0; reg < 20; reg++) {
      const uint64_t call = trace.Ask({6, 0, 5, 0x4480 + 4 * reg, 4, 0}, "", "");
      trace.Answer(call, {0, 4, 0},
                   injected ? "--inject MMIO_READ:value=0xffffffff; the server said 0x1" : "",
                   kOnes);
    }
    const json report = Report(trace.Done());
    if (!injected) {
      EXPECT_EQ(report["verdict"]["kind"], "device_lost") << report["verdict"].dump(2);
      continue;
    }
    EXPECT_NE(report["verdict"]["kind"], "device_lost") << report["verdict"].dump(2);
    EXPECT_THAT(report["verdict"]["summary"].get<std::string>(),
                HasSubstr("--inject MMIO_READ:value=0xffffffff at record"));
    EXPECT_LE(report["verdict"]["certainty"].get<int>(), 70);
    EXPECT_EQ(report["proxy"]["injected"], 20);
  }
}

// A fault status that the autopsy read is the device's own and counts.
TEST(ProxySection, AutopsyIsEvidence) {
  Recording trace("autopsy.pb");
  const uint64_t own = trace.Ask({6, 0, 5, 0x30118, 4, 0}, "", "autopsy: regSCRATCH_REG6");
  trace.Answer(own, {0, 4, 0}, "autopsy: regSCRATCH_REG6", {1, 0, 0, 0});
  const json report = Report(trace.Done());
  EXPECT_EQ(report["session"]["calls"], 4);  // three MAP_BAR and a read
  EXPECT_EQ(report["scratch"]["reg6"], 1);
}

}  // namespace
}  // namespace tg::testing
