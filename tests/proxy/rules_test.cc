// The grammar of --deny and --inject, and what is decided by it. Register addresses are worked out
// from the kernel's offset headers: dword = base of the block + offset, times four.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "proxy/rules/policy.h"
#include "proxy/rules/rule.h"
#include "schemas/wire/bytes.h"
#include "tests/amd/discovery_binary.h"

namespace tg::proxy {
namespace {

using ::testing::HasSubstr;
using wire::Command;
using Kind = Decision::Kind;

constexpr uint64_t kScratch7 = (0xA000 + 0x2047) * 4;  // gc 11.0.0, base 1
constexpr uint64_t kIhWptr = (0x10A0 + 0x84) * 4;      // osssys 6.0.0, base 0
constexpr uint64_t kMmIndex = 0, kMmData = 4, kMmIndexHi = 24;
constexpr uint64_t kPcieIndex2 = 0x38, kPcieData2 = 0x3c;  // nbio 4.3.0, base 0
constexpr uint64_t kMemsize = 0x378c;

amd::DiscoveryBinary Navi31() {
  amd::DiscoveryBinary b;
  b.Ip(amd::kHwGc, 0, {11, 0, 0}, {0x1260, 0xA000, 0x1C000, 0x2402C00});
  b.Ip(amd::kHwSdma0, 0, {6, 0, 0}, {0x1260, 0xA000, 0x1C000, 0x2402C00});
  b.Ip(amd::kHwMmhub, 0, {3, 0, 0}, {0x1A000, 0x2408800});
  b.Ip(amd::kHwNbif, 0, {4, 3, 0}, {0, 0x14, 0xD20, 0x10400, 0x241B000, 0x4040000});
  b.Ip(amd::kHwMp0, 0, {13, 0, 0}, {0x16000, 0xDC0000, 0xE00000, 0xE40000, 0x243FC00});
  b.Ip(amd::kHwMp1, 0, {13, 0, 0}, {0x16000, 0xDC0000, 0xE00000, 0xE40000, 0x243FC00});
  b.Ip(amd::kHwHdp, 0, {6, 0, 0}, {0xF20, 0x240A400});
  b.Ip(amd::kHwOsssys, 0, {6, 0, 0}, {0x10A0, 0x240A000});
  b.Gc(1, {{0x0c, 6}, {0x10, 4}, {0x38, 32}, {0x3c, 16}, {0x40, 32}, {0x44, 64}, {0x4c, 2}});
  b.Sum();
  return b;
}

// A connection as the session would tell the policy of it.
class Connection {
 public:
  explicit Connection(const RuleOptions& options, Policy::Link link = {}) {
    auto rules = MakeRuleSet(options);
    EXPECT_TRUE(rules) << (rules ? "" : rules.error().message);
    if (rules && *rules) policy_ = std::make_unique<Policy>(*rules, link);
  }
  Decision Ask(const wire::RequestHeader& header, std::vector<uint8_t> payload = {},
               std::vector<uint8_t> body = {}) {
    wire::RequestEvent event;
    event.kind = wire::RequestEvent::Kind::kRequest;
    event.header = header;
    payload.resize(static_cast<size_t>(std::min<uint64_t>(
        std::max<uint64_t>(payload.size(), wire::PayloadSize(header)), 1 << 20)));
    event.payload = payload;
    event.payload_size = wire::PayloadSize(header);
    Decision decision = policy_->OnRequest(event, revision);
    if (decision.kind != Kind::kForward) return decision;
    policy_->OnForwarded(event, ++call_);
    if (!wire::FindCommand(header.command)->reply) return decision;
    wire::ReplyEvent reply;
    reply.kind = wire::ReplyEvent::Kind::kReply;
    reply.request = {header, call_};
    reply.reply = {0, body.size(), header.command == 1 ? 32ull << 30 : 0};  // MAP_BAR
    reply.body_size = body.size();
    reply.body = body;
    policy_->OnReply(reply);
    return decision;
  }
  Kind Read(uint32_t bar, uint64_t offset, uint64_t size = 4) {
    return Ask({static_cast<uint8_t>(Command::kMmioRead), 0, bar, offset, size, 0}).kind;
  }
  Kind Write(uint32_t bar, uint64_t offset, uint32_t value = 0) {
    std::vector<uint8_t> payload(4);
    StoreLe(payload.data(), value);
    return Ask({static_cast<uint8_t>(Command::kMmioWrite), 0, bar, offset, 4, 0}, payload).kind;
  }
  // The driver's first step on a large BAR.
  void Discover() {
    Ask({static_cast<uint8_t>(Command::kMapBar), 0, 0, 0, 0, 0});
    Ask({static_cast<uint8_t>(Command::kMapBar), 0, 5, 0, 0, 0});
    std::vector<uint8_t> size(4);
    StoreLe<uint32_t>(size.data(), 24560);
    Ask({static_cast<uint8_t>(Command::kMmioRead), 0, 5, kMemsize, 4, 0}, {}, size);
    Ask({static_cast<uint8_t>(Command::kMmioRead), 0, 0, (24560ull << 20) - 0x10000, 0x2800, 0}, {},
        Navi31().bytes());
  }
  Policy& policy() { return *policy_; }
  wire::Revision revision = wire::Revision::kR2;

 private:
  std::unique_ptr<Policy> policy_;
  uint64_t call_ = 0;
};

RuleOptions Deny(std::vector<std::string> rules) {
  RuleOptions options;
  options.deny = std::move(rules);
  return options;
}
RuleOptions Inject(std::vector<std::string> rules) {
  RuleOptions options;
  options.inject = std::move(rules);
  return options;
}
RuleOptions ReadOnly() {
  RuleOptions options;
  options.read_only = true;
  return options;
}
wire::RequestHeader Plain(Command command, uint32_t bar = 0, uint64_t arg0 = 0, uint64_t arg1 = 0) {
  return {static_cast<uint8_t>(command), 0, bar, arg0, arg1, 0};
}

// ---- grammar ---------------------------------------------------------------------------------

TEST(Rules, WhenCountsAsStraceDoes) {
  struct Row {
    const char* text;
    std::vector<uint64_t> of_first_twelve;
  };
  const Row rows[] = {
      {"1", {1}},
      {"3", {3}},
      {"4+", {4, 5, 6, 7, 8, 9, 10, 11, 12}},
      {"2+3", {2, 5, 8, 11}},
      {"3..5", {3, 4, 5}},
      {"2..9+3", {2, 5, 8}},
      {"0x2..0x3", {2, 3}},
      {"7..7", {7}},
  };
  for (const Row& row : rows) {
    std::string problem;
    const auto when = ParseWhen(row.text, problem);
    ASSERT_TRUE(when) << row.text << ": " << problem;
    std::vector<uint64_t> holds;
    for (uint64_t i = 1; i <= 12; i++)
      if (when->Holds(i)) holds.push_back(i);
    EXPECT_EQ(holds, row.of_first_twelve) << row.text;
  }
  for (const char* bad : {"", "0", "+", "5..4", "..4", "4..", "1+0", "x", "-1", "1..3+", "1+2+3",
                          "99999999999999999999"}) {
    std::string problem;
    EXPECT_FALSE(ParseWhen(bad, problem)) << bad;
    EXPECT_THAT(problem, HasSubstr("when= takes")) << bad;
  }
}

TEST(Rules, TheExampleOfTheManual) {
  const auto rule = ParseInject("MMIO_READ:bar=5:reg=IH_RB_WPTR:when=100+:value=0xffffffff");
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_EQ(rule->commands, 1u << 6);
  EXPECT_EQ(rule->bar, 5u);
  EXPECT_EQ(rule->name, "IH_RB_WPTR");
  EXPECT_EQ(rule->when, (When{100, UINT64_MAX, 1}));
  EXPECT_EQ(rule->action.kind, ActionKind::kValue);
  EXPECT_EQ(rule->action.value, 0xffffffffu);
}

TEST(Rules, CommandsMayBeListedAndPatterns) {
  EXPECT_EQ(ParseDeny("CFG_WRITE,reset")->commands, (1u << 4) | (1u << 5));
  EXPECT_EQ(ParseDeny("mmio_*")->commands, (1u << 6) | (1u << 7));
  EXPECT_EQ(ParseDeny("all")->commands, 0x1fffu);
  EXPECT_EQ(ParseDeny("bar=2")->commands, 0x1fffu);
  EXPECT_EQ(ParseDeny("reg=0x100-0x1ff")->commands,  // what has an offset
            (1u << 3) | (1u << 4) | (1u << 6) | (1u << 7) | (1u << 9) | (1u << 10));
  EXPECT_EQ(ParseDeny("reg=SCRATCH_REG*")->commands, (1u << 6) | (1u << 7));
  EXPECT_EQ(ParseInject("all:drop")->commands, (1u << 7) | (1u << 10));
}

TEST(Rules, ErrorTextTakesTheRest) {
  const auto rule = ParseInject("MAP_BAR:bar=2:error=BAR 2: no such resource (bar=2:when=1)");
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_EQ(rule->action.text, "BAR 2: no such resource (bar=2:when=1)");
  EXPECT_EQ(rule->when, When{});
  EXPECT_EQ(ParseInject("PING:delay=20:error=")->action.text, "");
}

TEST(Rules, MistakesAreNamed) {
  const std::pair<const char*, const char*> deny[] = {
      {"", "is empty"},
      {"MMIO", "'MMIO' is no command"},
      {"MMIO_READ,", "'' is no command"},
      {"MMIO_READ:bar=x", "bar= takes a number"},
      {"MMIO_READ:bar=4294967296", "bar= takes a number"},
      {"MMIO_READ:bar=1:bar=2", "given twice"},
      {"MMIO_READ:reg=0x20-0x10", "LO not above HI"},
      {"MMIO_READ:reg=0x20-", "LO not above HI"},
      {"MMIO_READ:reg=", "reg= takes"},
      {"MMIO_READ:reg=NO_SUCH_REGISTER", "no register of the known cards is called"},
      {"CFG_READ:reg=SCRATCH_REG7", "goes with MMIO_READ and MMIO_WRITE"},
      {"RESET:reg=0x10", "commands that have an offset"},
      {"MMIO_READ:bar=0:reg=SCRATCH_REG7", "one of BAR 5"},
      {"MMIO_READ:value=1", "it takes bar=, reg= and when="},
      {"MMIO_READ:when=0", "when= takes"},
  };
  for (const auto& [text, why] : deny) {
    const auto rule = ParseDeny(text);
    ASSERT_FALSE(rule) << text;
    EXPECT_EQ(rule.error().code, Error::Code::kUsage);
    EXPECT_THAT(rule.error().message, HasSubstr("--deny '" + std::string(text) + "'"));
    EXPECT_THAT(rule.error().message, HasSubstr(why)) << text;
  }
  const std::pair<const char*, const char*> inject[] = {
      {"MMIO_READ", "what is to be done?"},
      {"MMIO_WRITE:value=1", "value goes with MMIO_READ, SYSMEM_READ or CFG_READ"},
      {"MMIO_READ,MMIO_WRITE:value=1", "value goes with"},
      {"MMIO_READ:drop", "drop goes with MMIO_WRITE or SYSMEM_WRITE"},
      {"MMIO_WRITE:error=no", "error goes with a command that is answered"},
      {"RESET:short=1", "short goes with"},
      {"MMIO_READ:value=", "value= takes a number"},
      {"MMIO_READ:value=0x10000000000000000", "value= takes a number"},
      {"MMIO_READ:value=1:short=2", "one of value="},
      {"MMIO_READ:drop=1", "'drop' takes no value"},
      {"MMIO_READ:delay=0", "delay= takes"},
      {"MMIO_READ:delay=600001", "delay= takes"},
      {"MMIO_READ:explode", "is not known"},
  };
  for (const auto& [text, why] : inject) {
    const auto rule = ParseInject(text);
    ASSERT_FALSE(rule) << text;
    EXPECT_THAT(rule.error().message, HasSubstr(why)) << text;
  }
  EXPECT_FALSE(ParseDeny(std::string(kMaxRuleText + 1, 'A')));
}

TEST(Rules, AnyTextEndsInARuleOrAnError) {
  std::mt19937 random(8);
  const std::string pieces[] = {"MMIO_READ", ":",  "=",           "reg",     "bar",   "when",
                                "0x",        "-",  "..",          "+",       "value", "*",
                                "error",     ",",  "drop",        "\xff",    "close", "5",
                                "delay",     "\0", "reg=0x1-0x2", "SCRATCH*"};
  int good = 0;
  for (int i = 0; i < 20000; i++) {
    std::string text;
    for (unsigned n = random() % 10; n > 0; n--) text += pieces[random() % std::size(pieces)];
    const auto deny = ParseDeny(text);
    if (deny) {
      EXPECT_NE(deny->commands, 0u) << text;
      EXPECT_LE(deny->low, deny->high) << text;
    }
    const auto inject = ParseInject(text);
    if (inject) good++;
    if (inject && inject->action.kind == ActionKind::kNone) {
      EXPECT_GT(inject->action.delay_ms, 0u) << text;
    }
  }
  EXPECT_GT(good, 10);
}

TEST(Rules, Patterns) {
  EXPECT_TRUE(GlobMatch("", ""));
  EXPECT_TRUE(GlobMatch("*", ""));
  EXPECT_FALSE(GlobMatch("?", ""));
  EXPECT_TRUE(GlobMatch("A*C", "ABBBC"));
  EXPECT_TRUE(GlobMatch("*B*C", "ABXBC"));
  EXPECT_FALSE(GlobMatch("A*C", "ABCD"));
  EXPECT_TRUE(GlobMatch("A?C*", "ABC"));
  // Quadratic at worst, never exponential.
  EXPECT_FALSE(GlobMatch(std::string(40, '*') + "B", std::string(400, 'A')));
  EXPECT_TRUE(NameMatches("SCRATCH_REG7", "regSCRATCH_REG7"));
  EXPECT_TRUE(NameMatches("REGSCRATCH_REG?", "regSCRATCH_REG7"));
  EXPECT_TRUE(NameMatches("MM_INDEX", "mmMM_INDEX"));
  EXPECT_FALSE(NameMatches("SCRATCH_REG", "regSCRATCH_REG7"));
}

TEST(Rules, SeveralInOneOption) {
  const auto rules = MakeRuleSet(Deny({"RESET;CFG_WRITE", "MMIO_WRITE:bar=2"}));
  ASSERT_TRUE(rules);
  EXPECT_EQ((*rules)->deny.size(), 3u);
  EXPECT_FALSE(MakeRuleSet(Deny({"RESET;"})));
  EXPECT_EQ(*MakeRuleSet({}), nullptr);
  RuleOptions options = Deny({"MMIO_WRITE:reg=SCRATCH_REG7"});
  options.asic = "navi99";
  EXPECT_THAT(MakeRuleSet(options).error().message, HasSubstr("navi31"));
  options = Inject({"MMIO_READ:reg=regGCVM_L2_PROTECTION_FAULT_STATUS:value=0"});
  options.asic = "navi48";  // gfx12 calls it _LO32
  EXPECT_THAT(MakeRuleSet(options).error().message, HasSubstr("navi48 has no register"));
}

// ---- the guard -------------------------------------------------------------------------------

TEST(Guard, ReadOnlyKeepsWritesAndNothingElse) {
  Connection c(ReadOnly(), {.app_server = false});
  for (const Command command : {Command::kReset, Command::kCfgWrite, Command::kResizeBar}) {
    const Decision decision = c.Ask(Plain(command));
    EXPECT_EQ(decision.kind, Kind::kAnswer);
    EXPECT_TRUE(decision.guard);
    EXPECT_EQ(decision.text, "rpcproxy --read-only: " +
                                 std::string(wire::CommandName(static_cast<uint8_t>(command))) +
                                 " is not passed on");
  }
  EXPECT_EQ(c.Ask(Plain(Command::kMmioWrite, 5, 0, 4)).kind, Kind::kDrop);
  EXPECT_EQ(c.Ask(Plain(Command::kSysmemWrite, 1, 0, 4)).kind, Kind::kDrop);
  for (const Command command :
       {Command::kProbe, Command::kMapBar, Command::kMapSysmemFd, Command::kCfgRead,
        Command::kMmioRead, Command::kMapSysmem, Command::kSysmemRead, Command::kPing})
    EXPECT_EQ(c.Ask(Plain(command, 0, 0, 0)).kind, Kind::kForward) << static_cast<int>(command);
}

TEST(Guard, WhatTinyGpuAppReadsAsRequestsIsKept) {
  for (const RuleOptions& options : {ReadOnly(), Deny({"PING"})}) {
    Connection app(options);
    EXPECT_EQ(app.Ask(Plain(Command::kProbe, 0, 0, 8)).kind, Kind::kAnswer);
    EXPECT_EQ(app.Ask(Plain(Command::kProbe, 0, 0, 0)).kind, Kind::kForward);
    EXPECT_EQ(app.Ask(Plain(Command::kSysmemWrite, 0, 0, 8)).kind, Kind::kDrop);
  }
  Connection tcp(Deny({"PING"}), {.app_server = false});
  EXPECT_EQ(tcp.Ask(Plain(Command::kProbe, 0, 0, 8)).kind, Kind::kForward);
  EXPECT_EQ(tcp.Ask(Plain(Command::kSysmemWrite, 0, 0, 8)).kind, Kind::kForward);
}

TEST(Guard, OldFramesEndTheConnectionUnlessAskedFor) {
  Connection c(Deny({"RESET"}));
  c.revision = wire::Revision::kR1;
  EXPECT_EQ(c.Ask(Plain(Command::kMapBar, 0)).kind, Kind::kClose);
  Connection given(Deny({"RESET"}), {.app_server = true, .r1_given = true});
  given.revision = wire::Revision::kR1;
  EXPECT_EQ(given.Ask(Plain(Command::kMapBar, 0)).kind, Kind::kForward);
  EXPECT_EQ(given.Ask(Plain(Command::kReset)).kind, Kind::kAnswer);
  std::string text;
  EXPECT_TRUE(given.policy().StopsAtRaw(text));
  EXPECT_FALSE(Connection(Inject({"PING:close"})).policy().StopsAtRaw(text));
}

TEST(Guard, RangesOfABarThatIsNamed) {
  Connection c(Deny({"MMIO_WRITE:bar=0:reg=0x1000-0x1fff"}));
  EXPECT_EQ(c.Write(0, 0xffc), Kind::kForward);
  EXPECT_EQ(c.Write(0, 0x1000), Kind::kDrop);
  EXPECT_EQ(c.Write(0, 0x1ffc), Kind::kDrop);
  EXPECT_EQ(c.Write(0, 0x2000), Kind::kForward);
  EXPECT_EQ(c.Read(0, 0x1000), Kind::kForward);
  EXPECT_EQ(c.Write(1, 0x1000), Kind::kForward);
  EXPECT_EQ(c.Ask(Plain(Command::kMmioWrite, 0, 0xf00, 0x101)).kind, Kind::kDrop);  // reaches in
  EXPECT_EQ(c.Ask(Plain(Command::kMmioWrite, 0, 0xf00, 0x100)).kind, Kind::kForward);
  EXPECT_EQ(c.Ask(Plain(Command::kMmioWrite, 0, ~0ull - 7, 64)).kind, Kind::kDrop);  // wraps
  EXPECT_EQ(c.Write(256, 0x1000), Kind::kDrop);  // the app cuts 256 to 0
}

TEST(Guard, NamesAreKeptUntilTheyAreKnown) {
  Connection c(Deny({"MMIO_WRITE:reg=SCRATCH_REG7"}));
  // Nothing is known: registers of BAR 5 are kept, but for those with a fixed place.
  const Decision early = c.Ask(Plain(Command::kMmioWrite, 5, 0x1000, 4));
  EXPECT_EQ(early.kind, Kind::kDrop);
  EXPECT_THAT(early.by, HasSubstr("cannot be told before the card's discovery table was read"));
  EXPECT_EQ(c.Write(5, kMmIndexHi, 0), Kind::kForward);
  EXPECT_EQ(c.Write(5, kMmIndex, 0x80000000), Kind::kForward);
  EXPECT_EQ(c.Write(5, kMmData, 1), Kind::kForward);  // VRAM
  EXPECT_EQ(c.Write(0, 0x1000), Kind::kForward);
  EXPECT_EQ(c.Read(5, kScratch7), Kind::kForward);
  c.Discover();
  EXPECT_EQ(c.policy().TakeNotes().size(), 1u);
  EXPECT_EQ(c.Write(5, 0x1000), Kind::kForward);
  EXPECT_EQ(c.Write(5, kScratch7 - 4), Kind::kForward);
  const Decision known = c.Ask(Plain(Command::kMmioWrite, 5, kScratch7, 4));
  EXPECT_EQ(known.kind, Kind::kDrop);
  EXPECT_EQ(known.by, "--deny MMIO_WRITE:reg=SCRATCH_REG7");
  EXPECT_EQ(c.Ask(Plain(Command::kMmioWrite, 5, kScratch7 - 4, 8)).kind, Kind::kDrop);
  EXPECT_EQ(c.Ask(Plain(Command::kMmioWrite, 5, kScratch7 + 3, 1)).kind, Kind::kDrop);
  EXPECT_EQ(c.Ask(Plain(Command::kMmioWrite, 5, 0, 1 << 20)).kind, Kind::kDrop);  // too long
}

TEST(Guard, AsicSaysWhereNamesAre) {
  RuleOptions options = Deny({"MMIO_WRITE:reg=SCRATCH_REG*"});
  options.asic = "navi31";
  Connection c(options);
  EXPECT_EQ(c.Write(5, 0x1000), Kind::kForward);
  EXPECT_EQ(c.Write(5, kScratch7), Kind::kDrop);
  EXPECT_EQ(c.Write(5, kScratch7 - 4), Kind::kDrop);  // SCRATCH_REG6
}

TEST(Guard, IndexRegistersAreSeenThrough) {
  for (const char* rule : {"MMIO_WRITE:reg=SCRATCH_REG7", "MMIO_WRITE:reg=0x3011c"}) {
    RuleOptions options = Deny({rule});
    options.asic = "navi31";
    Connection c(options);
    EXPECT_EQ(c.Write(5, kPcieData2, 7), Kind::kDrop) << rule;  // no index was seen
    EXPECT_EQ(c.Write(5, kPcieIndex2, 0x1000), Kind::kForward);
    EXPECT_EQ(c.Write(5, kPcieData2, 7), Kind::kForward);
    EXPECT_EQ(c.Write(5, kPcieIndex2, kScratch7), Kind::kForward);
    EXPECT_EQ(c.Write(5, kPcieData2, 7), Kind::kDrop) << rule;
    EXPECT_EQ(c.Read(5, kPcieData2), Kind::kForward);  // a read is not denied
    EXPECT_EQ(c.Write(5, kMmIndex, kScratch7), Kind::kForward);
    EXPECT_EQ(c.Write(5, kMmData, 7), Kind::kDrop) << rule;
    // Index and data in one message.
    std::vector<uint8_t> both(8);
    StoreLe<uint32_t>(both.data(), static_cast<uint32_t>(kScratch7));
    EXPECT_EQ(c.Ask(Plain(Command::kMmioWrite, 5, kMmIndex, 8), both).kind, Kind::kDrop) << rule;
    // A window seen through another.
    EXPECT_EQ(c.Write(5, kMmIndex, kPcieData2), Kind::kForward);
    EXPECT_EQ(c.Write(5, kMmData, 7), Kind::kDrop) << rule;
    // A byte of the index: where it points now is not known.
    EXPECT_EQ(c.Write(5, kMmIndex, 0x1000), Kind::kForward);
    EXPECT_EQ(c.Write(5, kMmData, 7), Kind::kForward);
    EXPECT_EQ(c.Ask(Plain(Command::kMmioWrite, 5, kMmIndex + 1, 1), {0x80}).kind, Kind::kForward);
    EXPECT_EQ(c.Write(5, kMmData, 7), Kind::kDrop) << rule;
  }
}

TEST(Guard, EachDeviceHasItsOwnMap) {
  Connection c(Deny({"MMIO_WRITE:reg=SCRATCH_REG7"}), {.app_server = false});
  c.Discover();
  EXPECT_EQ(c.Write(5, 0x1000), Kind::kForward);
  wire::RequestHeader other = Plain(Command::kMmioWrite, 5, 0x1000, 4);
  for (uint32_t dev = 1; dev < 200; dev++) {
    other.dev = dev;
    EXPECT_EQ(c.Ask(other).kind, Kind::kDrop) << dev;
  }
  EXPECT_EQ(c.Write(5, 0x1000), Kind::kForward);
}

TEST(Guard, WhenLetsSomeThrough) {
  Connection c(Deny({"RESET:when=2+"}));
  EXPECT_EQ(c.Ask(Plain(Command::kReset)).kind, Kind::kForward);
  EXPECT_EQ(c.Ask(Plain(Command::kReset)).kind, Kind::kAnswer);
  EXPECT_EQ(c.Ask(Plain(Command::kReset)).kind, Kind::kAnswer);
}

// Whatever comes, with --read-only no request that changes something is forwarded.
TEST(Guard, NoWritePassesWhateverComes) {
  std::mt19937_64 random(1);
  Connection c(ReadOnly());
  for (int i = 0; i < 200000; i++) {
    wire::RequestHeader header{static_cast<uint8_t>(random() % wire::kCommandCount),
                               static_cast<uint32_t>(random() % 3),
                               static_cast<uint32_t>(random()),
                               random(),
                               random() % 64,
                               random()};
    const auto command = static_cast<Command>(header.command);
    const bool write = command == Command::kReset || command == Command::kCfgWrite ||
                       command == Command::kResizeBar || command == Command::kMmioWrite ||
                       command == Command::kSysmemWrite;
    const bool kept = c.Ask(header).kind != Kind::kForward;
    if (write) {
      ASSERT_TRUE(kept) << i;
    } else if (command != Command::kProbe) {
      ASSERT_FALSE(kept) << i;
    }
  }
}

// ---- injection -------------------------------------------------------------------------------

TEST(Inject, StrikesWhenItsTurnHasCome) {
  Connection c(Inject({"MMIO_READ:bar=5:reg=IH_RB_WPTR:when=3..4:value=0xffffffff"}));
  EXPECT_EQ(c.Ask(Plain(Command::kMmioRead, 5, kIhWptr, 4)).change.kind, ActionKind::kNone);
  ASSERT_EQ(c.policy().TakeNotes().size(), 1u);  // not known yet; does not strike or count
  c.Discover();
  c.policy().TakeNotes();
  std::vector<bool> struck;
  for (int i = 0; i < 6; i++) {
    c.Read(5, kIhWptr + 4);  // another register
    const Decision decision = c.Ask(Plain(Command::kMmioRead, 5, kIhWptr, 4));
    EXPECT_EQ(decision.kind, Kind::kForward);
    struck.push_back(decision.change.kind == ActionKind::kValue);
    if (struck.back()) {
      EXPECT_EQ(decision.change.value, 0xffffffffu);
      EXPECT_EQ(decision.change.by,
                "--inject MMIO_READ:bar=5:reg=IH_RB_WPTR:when=3..4:value=0xffffffff");
    }
  }
  EXPECT_EQ(struck, (std::vector<bool>{false, false, true, true, false, false}));
}

TEST(Inject, EachActionSaysWhatHappens) {
  Connection c(Inject({"MAP_BAR:bar=2:error=no BAR 2", "MMIO_WRITE:bar=2:drop", "PING:close",
                       "CFG_READ:delay=30", "SYSMEM_READ:delay=5:short=3"}),
               {.app_server = false});
  Decision d = c.Ask(Plain(Command::kMapBar, 2));
  EXPECT_EQ(d.kind, Kind::kAnswer);
  EXPECT_FALSE(d.guard);
  EXPECT_EQ(d.text, "no BAR 2");
  EXPECT_EQ(d.by, "--inject MAP_BAR:bar=2:error=no BAR 2");
  EXPECT_EQ(c.Ask(Plain(Command::kMapBar, 1)).kind, Kind::kForward);
  EXPECT_EQ(c.Write(2, 0x800), Kind::kDrop);
  EXPECT_EQ(c.Write(0, 0x800), Kind::kForward);
  EXPECT_EQ(c.Ask(Plain(Command::kPing)).kind, Kind::kClose);
  d = c.Ask(Plain(Command::kCfgRead, 0, 0, 4));
  EXPECT_EQ(d.kind, Kind::kForward);
  EXPECT_EQ(d.delay_ms, 30u);
  d = c.Ask(Plain(Command::kSysmemRead, 0, 0, 16));
  EXPECT_EQ(d.change.kind, ActionKind::kShort);
  EXPECT_EQ(d.change.bytes, 3u);
  EXPECT_EQ(d.delay_ms, 5u);
}

TEST(Inject, TheFirstRuleStrikesAndAllCount) {
  Connection c(Inject({"PING:when=2:error=first", "PING:when=2+:error=second"}));
  EXPECT_EQ(c.Ask(Plain(Command::kPing)).kind, Kind::kForward);
  EXPECT_EQ(c.Ask(Plain(Command::kPing)).text, "first");
  EXPECT_EQ(c.Ask(Plain(Command::kPing)).text, "second");
}

TEST(Inject, TheGuardComesFirst) {
  RuleOptions options = Inject({"RESET:when=1:error=x", "MMIO_WRITE:when=1:drop"});
  options.deny = {"RESET"};
  Connection c(options);
  EXPECT_TRUE(c.Ask(Plain(Command::kReset)).guard);
  EXPECT_FALSE(c.Ask(Plain(Command::kMmioWrite, 0, 0, 4)).guard);
}

}  // namespace
}  // namespace tg::proxy
