#include "replay/drive/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "replay/drive/driver.h"
#include "replay/exit_code.h"
#include "replay/proof.h"
#include "replay/script/format.h"
#include "schemas/wire/address.h"

namespace tg::replay {
namespace {

using std::chrono::milliseconds;

struct Options {
  std::string trace;
  std::string upstream;
  std::string speed = "max";
  std::string polls = "wait";
  std::string addresses = "stop";
  uint64_t stop_at = 0;
  uint32_t connection = 0;
  double timeout = 30;
  double poll_timeout = 10;
  bool list = false;
  bool allow_writes = false;
  bool allow_reset = false;
  bool read_only = false;
  bool partial = false;
  bool step = false;
};

void Say(const std::string& text) {
  fmt::print(stderr, "rpcreplay: {}\n", text);
}

int Quit(int code, const std::string& text) {
  Say(text);
  return code;
}

milliseconds Milliseconds(double seconds) {
  return milliseconds(static_cast<int64_t>(seconds * 1000));
}

// A line from standard input; false at its end or after a signal.
bool ReadLine(std::string& line) {
  line.clear();
  for (;;) {
    char c = 0;
    if (!WaitReadable(STDIN_FILENO, Deadline::Never()).ok()) return false;
    if (read(STDIN_FILENO, &c, 1) != 1) return false;
    if (c == '\n') return true;
    if (line.size() < 64) line += c;
  }
}

// --step: Enter sends one call, a number so many, `c` all, `q` stops.
class Stepper {
 public:
  bool operator()(uint64_t call, const std::string& text) {
    if (free_ > 0) {
      if (free_ != UINT64_MAX) free_--;
      return true;
    }
    fmt::print(stderr, "next: #{} {} [Enter, number, c, q] ", call, text);
    std::string line;
    if (!ReadLine(line) || line == "q") return false;
    if (line == "c") {
      free_ = UINT64_MAX;
    } else if (!line.empty()) {
      const uint64_t count = std::strtoull(line.c_str(), nullptr, 10);
      free_ = count > 0 ? count - 1 : 0;
    }
    return true;
  }

 private:
  uint64_t free_ = 0;
};

class DriveCommand {
 public:
  explicit DriveCommand(const Options& options) : options_(options) {}

  int Run() {
    auto script = Script::FromFile(options_.trace);
    if (!script) return Quit(kExitUnreadable, script.error().message);
    survey_ = Examine(**script);
    if (survey_.calls == 0) return Quit(kExitLacking, options_.trace + " holds no calls");
    if (options_.list) return List("");
    if (options_.upstream.empty()) return Quit(kExitUsage, "--upstream is missing (or --list)");
    const Result<wire::Address> address = wire::ParseAddress(options_.upstream);
    if (!address) return Quit(kExitUsage, address.error().message);
    upstream_ = *address;
    driver_.permission = {options_.allow_writes, options_.allow_reset, options_.read_only};
    driver_.speed = options_.speed == "max" ? 0 : std::strtod(options_.speed.c_str(), nullptr);
    driver_.exact_polls = options_.polls == "exact";
    driver_.addresses = options_.addresses == "rewrite" ? AddressPolicy::kRewrite
                        : options_.addresses == "keep"  ? AddressPolicy::kKeep
                                                        : AddressPolicy::kStop;
    driver_.stop_at = options_.stop_at;
    driver_.timeout = Milliseconds(options_.timeout);
    driver_.poll_timeout = Milliseconds(options_.poll_timeout);

    auto reader = trace::TraceReader::Open(options_.trace);
    if (!reader) return Quit(kExitUnreadable, reader.error().message);
    words_ = DeviceWords::Read(**reader);
    if (const int code = Check(); code != kExitOk) return code;
    if (const int code = Permit(); code != kExitOk) return code;
    return Drive();
  }

 private:
  // What the trace lacks for being sent, said before anything is.
  int Check() {
    const Survey& s = survey_;
    for (const std::string& gap : s.gaps) Say("gap " + gap);
    if (!s.whole_file)
      Say(fmt::format("the trace was not closed cleanly ({}): its last call is #{}", s.end_text,
                      s.calls));
    if (s.raw_after)
      Say(fmt::format("the stream lost its framing after call #{}: it can be sent up to there",
                      *s.raw_after));
    if (options_.read_only) return kExitOk;
    int code = kExitOk;
    const auto reaches = [&](uint64_t call) {
      return options_.stop_at == 0 || call <= options_.stop_at;
    };
    if (s.payloads.count > 0 && reaches(s.payloads.first)) {
      Say(
          fmt::format("{} requests were recorded without their data, so they cannot be sent.\n"
                      "  first: {}\n  body policy of this trace: {}\n"
                      "  record again with: rpcproxy --bodies full",
                      s.payloads.count, s.payloads.example,
                      s.body_policy.empty() ? "not recorded" : s.body_policy));
      code = kExitLacking;
    }
    if (s.breaks && reaches(s.first_break + 1)) {
      Say(fmt::format("calls are missing after #{}: the recording can be sent up to there",
                      s.first_break));
      code = kExitLacking;
    }
    if (s.regions > 0) {  // over TCP ring bytes are requests of their own
      uint64_t unseen = 0, first = 0;
      for (const auto& [call, bell] : words_.bells())
        if (!bell.observed && reaches(call) && unseen++ == 0) first = call;
      if (unseen > 0) {
        Say(
            fmt::format("what {} doorbells announced is not in the trace (first: call #{}): the "
                        "device would run on memory that nobody filled.\n"
                        "  record again with: rpcproxy --sysmem full",
                        unseen, first));
        code = kExitLacking;
      }
    }
    if (code != kExitOk && options_.partial) return kExitOk;
    if (code != kExitOk) Say("nothing was sent; --stop-at ends before, --partial goes ahead");
    return code;
  }

  // Finds out what may be sent. Without a proof or the user's word nothing is.
  int Permit() {
    if (options_.read_only) return kExitOk;
    if (!options_.allow_writes) {
      Result<UniqueFd> connected = Connect(upstream_, Deadline::InOrNever(driver_.timeout));
      if (!connected) return Quit(kExitUnreadable, connected.error().message);
      if (survey_.revision != wire::Revision::kR1) {
        const LiveReply proof =
            Exchange(connected->get(), ProofRequest(), {}, wire::Revision::kR2, driver_.timeout);
        if (proof.end == LiveReply::End::kInterrupted) return kExitInterrupted;
        if (proof.end == LiveReply::End::kAnswered && proof.reply == kProofReply) {
          driver_.permission.writes = driver_.permission.reset = true;
          connection_ = std::move(*connected);
          return kExitOk;
        }
      }
      connected->reset();
      return List(
          fmt::format("nothing was sent: {} did not prove to be a simulator. It may be a "
                      "real card, which this can reset or wedge; --allow-writes sends the "
                      "above all the same, --read-only sends the reads alone",
                      wire::FormatAddress(upstream_)));
    }
    if (options_.allow_reset) return kExitOk;
    // Half a session is worse than none: look before the first call.
    auto script = Script::FromFile(options_.trace);
    if (!script) return Quit(kExitUnreadable, script.error().message);
    for (; const Step* step = (*script)->At(0); (*script)->Pop()) {
      const Call* call = step->kind == Step::Kind::kCall ? &step->call : nullptr;
      if (step->kind == Step::Kind::kRun)
        for (const Call& one : step->run->pattern)
          if (HarmOf(one.request.command) == Harm::kReset) call = &one;
      if (!call || HarmOf(call->request.command) != Harm::kReset) continue;
      if (options_.stop_at != 0 && call->number > options_.stop_at) break;
      return Quit(kExitUsage,
                  fmt::format("nothing was sent: {} needs --allow-reset besides --allow-writes",
                              FormatCall(*call, (*script)->revision())));
    }
    return kExitOk;
  }

  // Prints what would be sent. `reason` ends it, when that is not what was asked for.
  int List(const std::string& reason) {
    auto script = Script::FromFile(options_.trace);
    if (!script) return Quit(kExitUnreadable, script.error().message);
    uint32_t ordinal = 0;
    for (; const Step* step = (*script)->At(0); (*script)->Pop()) {
      if (Deadline::interrupt.load(std::memory_order_relaxed)) return kExitInterrupted;
      if (options_.stop_at != 0 && step->number > options_.stop_at) break;
      if (step->kind == Step::Kind::kConnect) ordinal++;
      if (options_.connection != 0 && ordinal != 0 && ordinal != options_.connection) continue;
      const wire::Revision revision = (*script)->revision();
      switch (step->kind) {
        case Step::Kind::kConnect:
          fmt::print("connect\n");
          break;
        case Step::Kind::kDisconnect:
          fmt::print("close\n");
          break;
        case Step::Kind::kCall:
          if (Sends(step->call)) fmt::print("{}\n", FormatCall(step->call, revision));
          break;
        case Step::Kind::kRun:
          for (const Call& call : step->run->pattern)
            if (Sends(call)) fmt::print("{}\n", FormatCall(call, revision));
          fmt::print("... {} calls of this kind in all, up to #{}\n", step->run->issued,
                     step->run->first + step->run->issued - 1);
          break;
        case Step::Kind::kGap:
          fmt::print("-- {}\n", step->text);
          break;
        case Step::Kind::kRaw:
          fmt::print("-- the stream lost its framing: nothing behind can be sent\n");
          break;
        default:
          break;
      }
      if (std::fflush(stdout) != 0) return kExitUnreadable;
    }
    return reason.empty() ? kExitOk : Quit(kExitUsage, reason);
  }

  bool Sends(const Call& call) const {
    return call.refused.empty() && !call.autopsy() &&
           (!options_.read_only || HarmOf(call.request.command) == Harm::kNone);
  }

  int Drive() {
    auto script = Script::FromFile(options_.trace);
    if (!script) return Quit(kExitUnreadable, script.error().message);
    Driver driver(std::move(*script), survey_, words_, upstream_, driver_, Say);
    driver.Adopt(std::move(connection_));
    driver.set_only(options_.connection);
    if (options_.step) driver.set_step(Stepper());
    const DriveResult result = driver.Run();
    const DriveCounters& c = driver.counters();
    std::string counts = fmt::format("{} calls sent, {} replies as recorded", c.sent, c.compared);
    if (c.repeated > 0) counts += fmt::format(", {} polls repeated", c.repeated);
    if (c.passed > 0) counts += fmt::format(", {} recorded polls left out", c.passed);
    if (c.left_out > 0) counts += fmt::format(", {} calls left out", c.left_out);
    if (c.altered > 0)
      counts += fmt::format(", {} not compared (altered by the proxy then)", c.altered);
    if (c.words > 0) counts += fmt::format(", {} words of shared memory stored", c.words);
    if (c.fences > 0) counts += fmt::format(", {} fences seen", c.fences);
    if (c.rewritten > 0) counts += fmt::format(", {} addresses rewritten", c.rewritten);
    int code = kExitOk;
    switch (result.kind) {
      case DriveResult::Kind::kFinished:
        if (c.different > 0) counts += fmt::format(", {} replies differ", c.different);
        return Quit(c.different > 0 ? kExitDiverged : kExitOk, "done: " + counts);
      case DriveResult::Kind::kStopped:
        return Quit(kExitOk, result.text + "; " + counts);
      case DriveResult::Kind::kDiverged:
        code = kExitDiverged;
        break;
      case DriveResult::Kind::kForbidden:
        code = kExitUsage;
        break;
      case DriveResult::Kind::kLacking:
        code = kExitLacking;
        break;
      case DriveResult::Kind::kSilent:
        code = kExitSilent;
        break;
      case DriveResult::Kind::kInterrupted:
        code = kExitInterrupted;
        break;
      case DriveResult::Kind::kFailed:
        code = kExitUnreadable;
        break;
    }
    Say(result.text);
    const std::vector<std::string> history = driver.history();
    fmt::print(stderr, "  last {} events:\n", history.size());
    for (const std::string& line : history) fmt::print(stderr, "    {}\n", line);
    return Quit(code, counts);
  }

  const Options& options_;
  DriverOptions driver_;
  wire::Address upstream_;
  Survey survey_;
  DeviceWords words_;
  UniqueFd connection_;
};

void OnSignal(int) {
  Deadline::interrupt.store(true, std::memory_order_relaxed);
}

std::string CheckSpeed(const std::string& text) {
  if (text == "max") return "";
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end != text.c_str() && *end == '\0' && value > 0 && value < 1e9
             ? ""
             : "max, or a number above 0: 1 keeps the recorded timing, 10 is ten times as fast";
}

}  // namespace

void AddDriveCommand(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* drive = app.add_subcommand(
      "drive",
      "Play the client of a trace: send what it sent and compare the replies. Only a server that "
      "proves to be `rpcreplay sim` or `serve` is sent anything, unless an option below says so");
  drive->add_option("trace", options->trace, "Trace recorded with rpcproxy --bodies full")
      ->required();
  drive->add_option("--upstream,-u", options->upstream,
                    "unix:/path, a bare path, or tcp:host:port");
  drive->add_flag("--list", options->list, "Only print what would be sent");
  drive
      ->add_option("--speed", options->speed,
                   "max (no waiting), 1 (the recorded timing), 10 (ten times as fast), ...")
      ->check(CheckSpeed)
      ->capture_default_str();
  drive
      ->add_option("--polls", options->polls,
                   "wait: repeat a read until it brings the recorded value. exact: send as many as "
                   "recorded")
      ->check(CLI::IsMember({"wait", "exact"}))
      ->capture_default_str();
  drive
      ->add_option("--addresses", options->addresses,
                   "When the server gives other DMA addresses than recorded: stop; rewrite the "
                   "page-table entries that hold them; keep the recorded ones (simulators only)")
      ->check(CLI::IsMember({"stop", "rewrite", "keep"}))
      ->capture_default_str();
  drive->add_option("--stop-at", options->stop_at, "Last call to send");
  drive->add_flag("--step", options->step,
                  "Ask before each call: Enter sends it, a number so many, c the rest, q stops");
  drive->add_option("--connection", options->connection,
                    "Play only the n-th connection of the trace, from 1");
  drive->add_flag("--read-only", options->read_only,
                  "Send reads alone (to any server): differences are counted, not stopped at");
  drive->add_flag("--allow-writes", options->allow_writes,
                  "Also send writes to a server that may be a real card. They can wedge it");
  drive->add_flag("--allow-reset", options->allow_reset,
                  "With --allow-writes: also RESET and CFG_WRITE");
  drive->add_flag("--partial", options->partial,
                  "Start although data or calls are missing, and stop where the first is");
  drive->add_option("--timeout", options->timeout, "Seconds to wait for a reply; 0 for ever")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  drive
      ->add_option("--poll-timeout", options->poll_timeout,
                   "Seconds to repeat a poll that does not bring the recorded value")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  drive->callback([options, &exit_code] {
    std::signal(SIGINT, OnSignal);
    std::signal(SIGTERM, OnSignal);
    std::signal(SIGPIPE, SIG_IGN);
    exit_code = DriveCommand(*options).Run();
  });
}

}  // namespace tg::replay
