// Reports of recorded traces, word for word, and what must be true of them whatever the words.
//
// The words are in reports/NAME.txt; GOLDEN_UPDATE=1 writes them anew (read the difference before
// it is committed). Everything else is compared with what others say of the same run: tinygrad of
// the card (NAME.tinygrad.json), the proxy of the shared memory (SysmemRegion packets), the order
// in which the driver allocates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "schemas/trace/reader.h"
#include "schemas/trace/trace.pb.h"
#include "tests/decoder/program.h"
#include "tests/decoder/wire_trace.h"
#include "tests/zoo/zoo_file.h"

namespace tg::golden {
namespace {

using nlohmann::json;
using testing::ProgramResult;
using testing::RunDecoder;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Case {
  const char* name;
  const char* verdict;
  int exit_code;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

class Golden : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string name = GetParam().name;
    trace_ = testing::TempFile(name + ".pb");
    const auto trace = zoo::LoadTrace(std::string(GOLDEN_DIR) + "/traces", name, "mock");
    ASSERT_TRUE(trace) << trace.error().message;
    const auto done = zoo::WriteFile(trace_, *trace);
    ASSERT_TRUE(done) << done.error().message;
  }
  json Json(std::vector<std::string> command) {
    command.insert(command.end(), {"--format", "json", trace_});
    return json::parse(RunDecoder(command).out);
  }
  // What tinygrad printed when it had opened the device, one object per start.
  json Tinygrad() {
    const std::string path =
        std::string(GOLDEN_DIR) + "/traces/" + GetParam().name + ".tinygrad.json";
    return json::parse(Slurp(path));
  }

  std::string trace_;
};

// Where the file lies and how the writer packed it is no part of the report.
std::string WithoutFile(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("  trace        /")) line = "  trace        (this file)";
    out += line + '\n';
  }
  return out;
}

TEST_P(Golden, Report) {
  std::string text;
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {}, {"bars"}, {"discovery"}, {"boot"}, {"rings"}, {"vm"}, {"copies"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back(trace_);
    const ProgramResult result = RunDecoder(arguments);
    EXPECT_EQ(result.err, "");
    const bool judges = command.empty() || command[0] == "rings";
    EXPECT_EQ(result.exit_code, judges ? GetParam().exit_code : 0);
    text += "$ rpcdecode" + (command.empty() ? std::string() : " " + command[0]) + "\n" +
            WithoutFile(result.out) + "\n";
  }
  const std::string path = std::string(GOLDEN_DIR) + "/reports/" + GetParam().name + ".txt";
  if (std::getenv("GOLDEN_UPDATE")) std::ofstream(path, std::ios::binary) << text;
  const std::string wanted = Slurp(path);
  if (text == wanted) return;
  std::istringstream got_lines(text), wanted_lines(wanted);
  std::string a, b;
  for (int number = 1;; ++number) {
    const bool more_a = static_cast<bool>(std::getline(got_lines, a));
    const bool more_b = static_cast<bool>(std::getline(wanted_lines, b));
    if (!more_a) a = "(end)";
    if (!more_b) b = "(end)";
    ASSERT_EQ(a, b) << path << ":" << number;
    if (!more_a && !more_b) break;
  }
}

TEST_P(Golden, VerdictAndContract) {
  const json report = Json({});
  EXPECT_EQ(report["schema"], 1);
  EXPECT_EQ(report["verdict"]["kind"], GetParam().verdict);
  EXPECT_EQ(report["session"]["losses"], json::array());
  EXPECT_EQ(report["session"]["unanswered"], json::array());
  EXPECT_EQ(report["session"]["transport"], "unix");
  EXPECT_EQ(report["bars"].size(), 3u);
  for (const char* key : {"device", "ips", "scratch", "boot", "queues", "copies", "warnings"})
    EXPECT_FALSE(report[key].is_null()) << key;
}

// Discovery, properties and target as tinygrad itself had them.
TEST_P(Golden, TheCardAsTinygradSawIt) {
  const json starts = Tinygrad();
  const json report = Json({});
  const json& wanted = starts.back();
  EXPECT_EQ(report["device"]["gfx"], wanted["arch"]);
  for (const auto& [name, value] : wanted["props"].items())
    EXPECT_EQ(report["device"]["props"][name], value) << name;
  EXPECT_EQ(report["pci"]["vram_size"], wanted["vram"]);
  EXPECT_EQ(report["pci"]["large_bar"], wanted["large_bar"]);
  const json& sessions = report["boot_detail"]["sessions"];
  ASSERT_EQ(sessions.size(), starts.size());
  for (size_t i = 0; i < starts.size(); ++i)
    EXPECT_EQ(sessions[i]["kind"], starts[i]["partial"].get<bool>() ? "partial" : "full") << i;
}

TEST_P(Golden, EveryRegisterAccessHasAName) {
  const json regs = Json({"regs"});
  EXPECT_GT(regs["accesses"], 2000);
  EXPECT_EQ(regs["unnamed_accesses"], 0) << regs["registers"][0];
  for (const json& reg : regs["registers"]) EXPECT_FALSE(reg["name"].is_null()) << reg;
  EXPECT_EQ(Json({"regs", "--unknown"})["registers"], json::array());
}

struct Region {
  uint64_t asked = 0, granted = 0;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // DMA address, length
  std::optional<uint64_t> Dma(uint64_t offset) const {
    for (const auto& [address, length] : ranges) {
      if (offset < length) return address + offset;
      offset -= length;
    }
    return std::nullopt;
  }
};

// Of the newest client, as the proxy wrote them down from the server's own table.
std::map<uint32_t, Region> RegionsOf(const std::string& path) {
  std::map<uint32_t, Region> regions;
  auto reader = trace::TraceReader::Open(path);
  trace::Record record;
  while (reader && (*reader)->Next(record)) {
    if (record.kind != trace::Record::Kind::kPacket || !record.packet) continue;
    if (record.packet->has_event() &&
        record.packet->event().kind() == tinygpu::trace::SessionEvent::CONNECT)
      regions.clear();
    if (!record.packet->has_region()) continue;
    const auto& packet = record.packet->region();
    Region& region = regions[packet.index()];
    region.asked = packet.asked();
    region.granted = packet.granted();
    region.ranges.clear();
    for (int i = 0; i < packet.address_size(); ++i)
      region.ranges.emplace_back(packet.address(i), packet.length(i));
  }
  return regions;
}

// The driver allocates in this order: compute ring, its queue page, (EOP buffer in VRAM,) SDMA
// ring, its queue page, 32 staging buffers, the signal page (amd-boot).
TEST_P(Golden, RingsAndStagingLeadToTheRegionsTheProxySaw) {
  const std::map<uint32_t, Region> regions = RegionsOf(trace_);
  ASSERT_GE(regions.size(), 37u);
  const json report = Json({});
  std::map<std::string, uint64_t> rings;
  for (const json& queue : report["queues"]) {
    ASSERT_FALSE(queue["ring_va"].is_null()) << queue["name"];
    rings[queue["name"]] = queue["ring_va"];
  }
  std::map<uint32_t, uint64_t> va_of;
  const json map = Json({"vm"});
  for (const json& m : map["mappings"]) {
    if (m["kind"] != "sysmem") continue;
    const uint32_t index = m["region"];
    EXPECT_EQ(m["region_offset"], 0) << "region " << index << " is mapped in one piece";
    // The server rounds small requests up; the driver maps what it asked for.
    EXPECT_EQ(m["size"], (regions.at(index).asked + 0xfff) & ~0xfffull) << index;
    EXPECT_TRUE(va_of.emplace(index, m["va"]).second) << "region " << index << " mapped twice";
  }
  EXPECT_EQ(va_of.at(0), rings.at("COMPUTE0"));
  EXPECT_EQ(va_of.at(2), rings.at("SDMA0"));
  EXPECT_EQ(regions.at(0).granted, 16u << 20);
  EXPECT_EQ(regions.at(2).granted, 16u << 20);
  for (uint32_t slot = 4; slot < 36; ++slot) EXPECT_EQ(regions.at(slot).granted, 2u << 20) << slot;
  for (uint32_t index = 0; index < 37; ++index) {
    ASSERT_TRUE(va_of.contains(index)) << "region " << index << " is mapped";
    const Region& region = regions.at(index);
    if (index > 8 && index < 34) continue;  // the other staging buffers: the map has them all
    for (const uint64_t offset : {uint64_t{0}, region.asked - region.asked % 8 - 8}) {
      const json walk = Json({"vm", "walk", std::to_string(va_of[index] + offset)});
      EXPECT_EQ(walk["end"], "mapped");
      EXPECT_EQ(walk["target"]["kind"], "sysmem");
      EXPECT_EQ(walk["target"]["region"], index);
      EXPECT_EQ(walk["target"]["region_offset"], offset);
      ASSERT_TRUE(region.Dma(offset)) << index;
      EXPECT_EQ(walk["target"]["address"], *region.Dma(offset)) << index;
    }
  }
}

// Everything the driver submitted was seen and is packets.
TEST_P(Golden, EverySubmittedByteDecodes) {
  const json report = Json({});
  for (const json& queue : report["queues"]) {
    uint64_t next = 0, bytes = 0;
    for (const json& submission : queue["submissions"]["listed"]) {
      EXPECT_FALSE(submission["written_seq"].is_null()) << queue["name"] << submission;
      EXPECT_GT(submission["packets"], 0) << queue["name"] << submission;
      if (GetParam().exit_code == 0) {
        EXPECT_FALSE(submission["retired_seq"].is_null()) << queue["name"] << submission;
        EXPECT_EQ(submission["retired_by_host"], false) << queue["name"] << submission;
      }
      // Without a gap, unless the queue was set up anew.
      EXPECT_TRUE(submission["offset"] == 0 || submission["offset"] == next) << submission;
      next = submission["end_offset"];
      bytes += submission["bytes"].get<uint64_t>();
    }
    EXPECT_EQ(bytes, queue["submissions"]["bytes"]) << queue["name"];
  }
  for (const json& warning : report["warnings"]) EXPECT_NE(warning["rule"], "ring-not-packets");
}

INSTANTIATE_TEST_SUITE_P(
    Traces, Golden,
    ::testing::Values(Case{"navi31_large", "healthy", 0}, Case{"navi31_small", "healthy", 0},
                      Case{"navi48_large", "healthy", 0}, Case{"navi48_small", "healthy", 0},
                      Case{"mock", "healthy", 0}, Case{"mock_hang", "hang", 1}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace tg::golden
