// The program rpcdecode: subcommands, exit codes, files that are no traces.
#include "tests/decoder/program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/decoder/wire_trace.h"

namespace tg::testing {
namespace {

using nlohmann::json;

std::string WriteTemp(const std::string& name, const std::string& bytes) {
  const std::string path = TempFile(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// Two BARs, one register read, one refusal, two writes.
std::string SmallTrace(bool closed = true) {
  WireTrace trace(TempFile("small.pb"));
  trace.MapBar(0, 0x7f0000000000, 0x10000000);
  trace.MapBar(5, 0x7f0010000000, 0x80000);
  trace.Read(5, 0x378c, 0x6000);
  trace.Write(5, 0x1000, 0x11223344);
  trace.Request({1, 0, 3, 0, 0, 0});
  trace.Reply({1, 0, 0});
  trace.Write(5, 0x1004, 0xfeedbeefcafe0123, 8);
  if (closed) {
    trace.Disconnect("client");
    trace.Close();
  } else {
    trace.Kill();
  }
  return trace.path();
}

bool Contains(const std::string& text, const std::string& wanted) {
  return text.find(wanted) != std::string::npos;
}

TEST(Program, ReportNamesVerdictBarsAndCalls) {
  const ProgramResult r = RunDecoder({SmallTrace()});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.err, "");
  EXPECT_TRUE(r.out.starts_with("refused: MAP_BAR 3 refused, no reason given\n")) << r.out;
  EXPECT_TRUE(Contains(r.out,
                       "MAP_BAR 0: size 0x10000000, addr 0x7f0000000000 (server virtual "
                       "address), 256.0 MiB, record 1"));
  EXPECT_TRUE(Contains(r.out, "6 calls")) << r.out;
  EXPECT_FALSE(Contains(r.out, "\033")) << "no colour into a file";
}

TEST(Program, ReportJsonFollowsTheContract) {
  const ProgramResult r = RunDecoder({"--format", "json", SmallTrace()});
  EXPECT_EQ(r.exit_code, 0);
  const json j = json::parse(r.out);
  EXPECT_EQ(j["schema"], 1);
  EXPECT_EQ(j["verdict"]["kind"], "refused");
  EXPECT_EQ(j["verdict"]["evidence"][0]["seq"], 5);
  EXPECT_EQ(j["session"]["transport"], "unix");
  EXPECT_EQ(j["session"]["revision"], "R2+");
  EXPECT_EQ(j["session"]["calls"], 6);
  EXPECT_EQ(j["session"]["by_command"],
            (json{{"MAP_BAR", 3}, {"MMIO_READ", 1}, {"MMIO_WRITE", 2}}));
  EXPECT_EQ(j["session"]["unanswered"], json::array());
  EXPECT_EQ(j["session"]["losses"], json::array());
  EXPECT_EQ(j["session"]["end"], "closed cleanly: client closed");
  ASSERT_EQ(j["bars"].size(), 2u);
  EXPECT_EQ(j["bars"][1]["index"], 5);
  EXPECT_EQ(j["bars"][1]["size"], 0x80000);
  EXPECT_EQ(j["bars"][1]["address"], 0x7f0010000000);
  EXPECT_EQ(j["bars"][1]["address_kind"], "server virtual address");
  for (const char* key : {"device", "ips", "scratch", "queues", "copies"})
    EXPECT_TRUE(j.contains(key) && j[key].is_null()) << key << ": not observed is null";
  EXPECT_TRUE(j["warnings"].is_array());
}

TEST(Program, LogHasOneLinePerCall) {
  const ProgramResult r = RunDecoder({"log", SmallTrace()});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_TRUE(Contains(r.out, "MAP_BAR 0 = size 0x10000000, addr 0x7f0000000000  <10 us>"));
  EXPECT_TRUE(Contains(r.out, "MMIO_READ bar5+0x378c size=4 = 0x00006000  <10 us>")) << r.out;
  EXPECT_TRUE(Contains(r.out, "MMIO_WRITE bar5+0x1000 size=4 <- 0x11223344\n"));
  EXPECT_TRUE(Contains(r.out, "MMIO_WRITE bar5+0x1004 size=8 <- 0xfeedbeefcafe0123\n"));
  EXPECT_TRUE(Contains(r.out, "MAP_BAR 3 = status=1, no reason given"));
}

TEST(Program, LogFilters) {
  const std::string path = SmallTrace();
  const auto lines = [&](std::vector<std::string> options) {
    options.insert(options.begin(), "log");
    options.push_back(path);
    std::istringstream in(RunDecoder(options).out);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line.substr(0, 9));
    return out;
  };
  using Lines = std::vector<std::string>;
  const std::string r1 = "        1", r2 = "        2", r3 = "        3", r4 = "        4",
                    r5 = "        5", r6 = "        6";
  EXPECT_EQ(lines({"--command", "mmio_write"}), (Lines{r4, r6}));
  EXPECT_EQ(lines({"-c", "MMIO_READ", "-c", "MAP_BAR"}), (Lines{r1, r2, r3, r5}));
  EXPECT_EQ(lines({"--bar", "5"}), (Lines{r2, r3, r4, r6}));
  EXPECT_EQ(lines({"--errors"}), (Lines{r5}));
  EXPECT_EQ(lines({"--bar", "0", "--seq", "2.."}), (Lines{}));
  EXPECT_EQ(lines({"--bar", "5", "--seq", "3..4"}), (Lines{r3, r4}));
  // Requests leave at 10, 30, 50, 70, 80, 100 us.
  EXPECT_EQ(lines({"--bar", "5", "--time", "0.00005..0.00007"}), (Lines{r3, r4}));
}

TEST(Program, LogJsonIsOneObjectPerLine) {
  const ProgramResult r = RunDecoder({"log", "--format", "json", SmallTrace()});
  std::istringstream in(r.out);
  std::vector<json> calls;
  for (std::string line; std::getline(in, line);) {
    const json j = json::parse(line);
    if (j["kind"] == "call") calls.push_back(j);
  }
  ASSERT_EQ(calls.size(), 6u);
  EXPECT_EQ(calls[2]["command"], "MMIO_READ");
  EXPECT_EQ(calls[2]["bar"], 5);
  EXPECT_EQ(calls[2]["arg0"], 0x378c);
  EXPECT_EQ(calls[2]["body"]["value"], 0x6000);
  EXPECT_EQ(calls[2]["latency_ns"], 10000);
  EXPECT_EQ(calls[4]["status"], 1);
  EXPECT_TRUE(calls[5]["status"].is_null());
}

TEST(Program, InfoAndCheckOfAWholeFile) {
  const std::string path = SmallTrace();
  const ProgramResult info = RunDecoder({"info", path});
  EXPECT_EQ(info.exit_code, 0);
  EXPECT_TRUE(Contains(info.out, "producer     wire_trace test\n")) << info.out;
  EXPECT_TRUE(Contains(info.out, "calls        6\n")) << info.out;
  const ProgramResult check = RunDecoder({"check", path});
  EXPECT_EQ(check.exit_code, 0);
  EXPECT_TRUE(check.out.starts_with("ok: ")) << check.out;
  const json j = json::parse(RunDecoder({"check", "--format", "json", path}).out);
  EXPECT_EQ(j["whole"], true);
  EXPECT_EQ(j["skipped"], json::array());
}

TEST(Program, KilledTraceIsDecodedAndSaidToBeIncomplete) {
  const std::string path = SmallTrace(false);
  EXPECT_EQ(RunDecoder({path}).exit_code, 4);
  EXPECT_EQ(RunDecoder({"log", path}).exit_code, 4);
  EXPECT_EQ(RunDecoder({"info", path}).exit_code, 4);
  const ProgramResult check = RunDecoder({"check", path});
  EXPECT_EQ(check.exit_code, 4);
  EXPECT_TRUE(Contains(check.out, "6 calls")) << check.out;
  EXPECT_TRUE(Contains(check.out, "rpcdecode repair")) << check.out;
}

TEST(Program, DamageIsListedWithItsBytes) {
  const std::string path = SmallTrace();
  std::string bytes = ReadFile(path);
  // In the middle of the file, between the first and the last packets.
  const size_t at = bytes.size() - bytes.size() / 8;
  for (size_t i = 0; i < 8; i++) bytes[at + i] = static_cast<char>(0xff);
  const std::string damaged = WriteTemp("damaged.pb", bytes);
  const ProgramResult check = RunDecoder({"check", damaged});
  EXPECT_EQ(check.exit_code, 4) << check.out;
  EXPECT_TRUE(check.out.starts_with("bytes ")) << check.out;
  EXPECT_EQ(RunDecoder({damaged}).exit_code, 4);
}

TEST(Program, RepairGivesACleanFileAtEveryCut) {
  const std::string path = SmallTrace();
  const std::string bytes = ReadFile(path);
  const ProgramResult whole = RunDecoder({"log", "--format", "json", path});
  uint64_t calls_before = 0;
  for (size_t cut = bytes.size(); cut > bytes.size() - 60; cut -= 7) {
    const std::string torn = WriteTemp("torn.pb", bytes.substr(0, cut));
    const std::string repaired = TempFile("repaired.pb");
    const ProgramResult repair = RunDecoder({"repair", torn, "-o", repaired});
    ASSERT_TRUE(repair.exit_code == 0 || repair.exit_code == 4) << repair.err;
    const ProgramResult check = RunDecoder({"check", repaired, "--format", "json"});
    EXPECT_EQ(check.exit_code, 0) << check.out;
    const uint64_t calls = json::parse(check.out)["calls"];
    if (calls_before) {
      EXPECT_LE(calls, calls_before);
    }
    calls_before = calls;
    // What is there before the cut is there afterwards, line by line.
    std::istringstream a(whole.out), b(RunDecoder({"log", "--format", "json", repaired}).out);
    for (std::string x, y; std::getline(b, y) && std::getline(a, x);) {
      if (json::parse(y)["kind"] == "end") break;
      EXPECT_EQ(x, y);
    }
  }
}

TEST(Program, RepairNeverTouchesTheOriginalNorAnExistingFile) {
  const std::string path = SmallTrace(false);
  const std::string bytes = ReadFile(path);
  EXPECT_EQ(RunDecoder({"repair", path, "-o", path}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"repair", path, "-o", path, "--force"}).exit_code, 2);
  const std::string other = WriteTemp("other", "precious");
  const ProgramResult refused = RunDecoder({"repair", path, "-o", other});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(Contains(refused.err, "--force")) << refused.err;
  EXPECT_EQ(ReadFile(other), "precious");
  EXPECT_EQ(RunDecoder({"repair", path, "-o", other, "--force"}).exit_code, 0);
  EXPECT_EQ(RunDecoder({"check", other}).exit_code, 0);
  EXPECT_EQ(ReadFile(path), bytes);
}

TEST(Program, ExportIsValidTraceEventJson) {
  const ProgramResult r = RunDecoder({"export", SmallTrace()});
  EXPECT_EQ(r.exit_code, 0);
  const json j = json::parse(r.out);
  std::vector<json> slices;
  for (const json& event : j["traceEvents"]) {
    if (event["ph"] == "X") slices.push_back(event);
  }
  ASSERT_EQ(slices.size(), 6u);
  EXPECT_EQ(slices[2]["name"], "MMIO_READ bar5+0x378c");
  EXPECT_DOUBLE_EQ(slices[2]["ts"], 50.0);
  EXPECT_DOUBLE_EQ(slices[2]["dur"], 10.0);
  EXPECT_EQ(slices[2]["args"]["seq"], 3);
}

TEST(Program, FollowEndsWithTheTrace) {
  WireTrace trace(TempFile("growing.pb"));
  trace.Read(5, 0x10, 1);
  std::string out;
  const std::string path = trace.path();
  trace.Disconnect("client");
  trace.Close();
  const ProgramResult r = RunDecoder({"log", "--follow", path});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_TRUE(Contains(r.out, "MMIO_READ bar5+0x10 size=4 = 0x00000001"));
}

struct BadFile {
  const char* name;
  std::string bytes;
};

TEST(Program, FilesThatAreNoTraces) {
  const std::vector<BadFile> files = {
      {"empty", ""},
      {"text", "Hello, this is a log file\nwith lines\n"},
      {"zeros", std::string(100000, '\0')},
      {"elf", std::string("\x7f"
                          "ELF",
                          4) +
                  std::string(1000, 'x')},
      {"one_byte", "\x0a"},
      {"huge_length", "\x0a\xff\xff\xff\xff\x7f"},
      {"endless_varint", std::string("\x0a") + std::string(1000, '\xff')},
      {"json", "{\"schema\": 1}"},
  };
  for (const BadFile& file : files) {
    SCOPED_TRACE(file.name);
    const std::string path = WriteTemp(file.name, file.bytes);
    for (const char* command : {"", "info", "log", "check", "export"}) {
      SCOPED_TRACE(command);
      std::vector<std::string> arguments = {path};
      if (*command) arguments.insert(arguments.begin(), command);
      const ProgramResult r = RunDecoder(arguments);
      EXPECT_EQ(r.exit_code, 3) << r.out;
      EXPECT_TRUE(Contains(r.err, path)) << r.err;
    }
    EXPECT_EQ(RunDecoder({"repair", path, "-o", TempFile("out.pb")}).exit_code, 3);
  }
}

TEST(Program, FilesThatCannotBeOpened) {
  const ProgramResult missing = RunDecoder({"/nonexistent/trace.pb"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_TRUE(Contains(missing.err, "/nonexistent/trace.pb")) << missing.err;
  const ProgramResult directory = RunDecoder({std::filesystem::temp_directory_path().string()});
  EXPECT_EQ(directory.exit_code, 3);
  EXPECT_TRUE(Contains(directory.err, "directory")) << directory.err;
  if (geteuid() != 0) {
    const std::string path = SmallTrace();
    chmod(path.c_str(), 0);
    EXPECT_EQ(RunDecoder({path}).exit_code, 3);
  }
}

// On a terminal the report is coloured and paged; each of the usual ways to say no is heard.
TEST(Program, ReportOnATerminal) {
  const std::string trace = SmallTrace();
  const std::string escape = "\x1b[";
  const ProgramResult coloured = RunDecoderOnTerminal({trace, "--no-pager"});
  EXPECT_EQ(coloured.exit_code, RunDecoder({trace}).exit_code);
  EXPECT_TRUE(Contains(coloured.out, escape)) << coloured.out;
  EXPECT_TRUE(Contains(coloured.out, "\r\n")) << "that was no terminal";
  EXPECT_FALSE(Contains(RunDecoder({trace}).out, escape));
  EXPECT_TRUE(Contains(RunDecoder({trace, "--color", "always"}).out, escape));

  std::string plain;  // what a pipe gets, as a terminal shows it
  for (const char c : RunDecoder({trace}).out) plain += c == '\n' ? "\r\n" : std::string(1, c);
  using Environment = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(RunDecoderOnTerminal({trace, "--no-pager"}, Environment{{"NO_COLOR", "1"}}).out, plain);
  EXPECT_EQ(RunDecoderOnTerminal({trace, "--no-pager"}, Environment{{"TERM", "dumb"}}).out, plain);
  EXPECT_EQ(RunDecoderOnTerminal({trace, "--no-pager", "--color", "never"}).out, plain);
  // no-color.org: present and not empty.
  EXPECT_EQ(RunDecoderOnTerminal({trace, "--no-pager"}, Environment{{"NO_COLOR", ""}}).out,
            coloured.out);
  EXPECT_FALSE(Contains(RunDecoderOnTerminal({trace, "--format", "json"}).out, escape));

  const ProgramResult paged =
      RunDecoderOnTerminal({trace}, Environment{{"PAGER", "sed s/^/PAGED/"}});
  EXPECT_TRUE(paged.out.starts_with("PAGED")) << paged.out;
  EXPECT_EQ(paged.exit_code, coloured.exit_code);
  EXPECT_EQ(RunDecoderOnTerminal({trace}, Environment{{"PAGER", ""}}).out, coloured.out);
  EXPECT_EQ(RunDecoderOnTerminal({trace}, Environment{{"PAGER", "cat"}}).out, coloured.out);
}

TEST(Program, Usage) {
  EXPECT_EQ(RunDecoder({}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"log"}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"--nonsense", "x"}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"--format", "xml", "x"}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"log", "x", "--command", "FROBNICATE"}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"log", "x", "--seq", "9..3"}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"log", "x", "--time", "now"}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"log", "x", "--bar", "-1"}).exit_code, 2);
  EXPECT_EQ(RunDecoder({"repair", "x"}).exit_code, 2);
  const ProgramResult help = RunDecoder({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_TRUE(Contains(help.out, "rpcdecode trace.pb")) << help.out;
}

}  // namespace
}  // namespace tg::testing
