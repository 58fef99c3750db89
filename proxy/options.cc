#include "proxy/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string_view>
#include <thread>

namespace tg::proxy {
namespace {

constexpr char kAbout[] =
    "Stands between tinygrad and the server of its eGPU (TinyGPU.app or serve.py), passes every "
    "byte "
    "and descriptor on unchanged, and writes a trace of them for rpcdecode.";
constexpr char kFooter[] =
    "ADDR is unix:/path, a bare path, or tcp:host:port. Examples:\n"
    "  rpcproxy run -o trace.pb -- python train.py\n"
    "  rpcproxy serve -o trace.pb      then: APL_REMOTE_SOCK=$TMPDIR/rpcproxy.sock python "
    "train.py\n"
    "  rpcproxy serve --listen tcp:127.0.0.1:7000 --upstream tcp:gpuhost:6667\n"
    "  rpcproxy status\n"
    "kill -USR1 takes a snapshot of the shared memory; SIGINT and SIGTERM close the trace.";

struct Raw {
  std::string listen, upstream, bodies = "head", protocol = "auto";
  bool autopsy = false;
  double autopsy_after = 5;
};

void AddOptions(CLI::App& sub, CommandLine& line, Raw& raw) {
  sub.add_option("-l,--listen", raw.listen,
                 "where clients connect (default: rpcproxy.sock in the temporary directory)")
      ->envname("RPCPROXY_LISTEN");
  sub.add_option("-u,--upstream", raw.upstream,
                 "the server (default: where tinygrad itself would connect)")
      ->envname("RPCPROXY_UPSTREAM");
  sub.add_option("-o,--output", line.trace,
                 "trace file, mode 0600; an existing one is kept as FILE.old (default: "
                 "rpcproxy-DATE-TIME.pb)");
  sub.add_option(
         "--app", line.app,
         "executable to start as 'APP server PATH' when nobody listens upstream (default on "
         "macOS: the app in /Applications; 'none' for never)")
      ->envname("RPCPROXY_APP");
  sub.add_option("--bodies", raw.bodies,
                 "what to keep of payloads over 4 KiB: full (needed for replay), head or hash")
      ->check(CLI::IsMember({"full", "head", "hash"}))
      ->capture_default_str();
  sub.add_option("--sysmem", line.sysmem, "what to keep of shared memory: none, rings or full")
      ->check(CLI::IsMember({"none", "rings", "full"}))
      ->capture_default_str();
  sub.add_option("--durability", line.durability,
                 "process: the trace survives the death of any process; machine: also of the "
                 "machine, by forcing it to disk before each access with side effects (slow)")
      ->check(CLI::IsMember({"process", "machine"}))
      ->capture_default_str();
  sub.add_flag("!--no-verdict", line.verdict,
               "do not say what a session came to when its client is gone");
  sub.add_option("--protocol", raw.protocol, "frame format: auto, r1 (26 bytes) or r2 (33 bytes)")
      ->check(CLI::IsMember({"auto", "r1", "r2"}))
      ->capture_default_str();
  sub.add_flag("--hold-upstream", line.session.hold_upstream,
               "keep the server's connection when the client goes: closing it unpins memory that "
               "the card may still be writing to");
  sub.add_flag("--read-only", line.rules.read_only,
               "refuse RESET, CFG_WRITE and RESIZE_BAR with an error text, drop posted writes")
      ->group("Guard");
  sub.add_option("--deny", line.rules.deny,
                 "RULE[;RULE...]: keep such requests from the server. RULE is "
                 "COMMANDS[:bar=N][:reg=NAME|0xLO-0xHI][:when=N|N+|N+S|N..M]; may be repeated")
      ->allow_extra_args(false)
      ->group("Guard");
  sub.add_option("--inject", line.rules.inject,
                 "RULE:ACTION: make a fault. ACTION is value=V, short=N, error=TEXT, drop, close "
                 "or delay=MS, for example MMIO_READ:reg=IH_RB_WPTR:when=100+:value=0xffffffff; "
                 "may be repeated")
      ->allow_extra_args(false)
      ->group("Faults on demand");
  sub.add_option("--asic", line.rules.asic,
                 "where the registers that rules name are, before the client has read the card's "
                 "own table: " +
                     KnownAsics())
      ->group("Guard");
  sub.add_flag("--autopsy", raw.autopsy,
               "after a stall, and when the client has left, read fault, queue and scratch "
               "registers through the client's connection. RISK: on a card in a bad state a read "
               "can hang the bus, and on a Mac the machine")
      ->group("Autopsy");
  sub.add_option("--autopsy-after", raw.autopsy_after, "seconds a stall lasts before")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str()
      ->group("Autopsy");
  // Client and server need a processor each: where there is no third one, long enough for a turn of
  // theirs and no longer.
  if (std::thread::hardware_concurrency() <= 2) line.session.spin_us = 50;
  sub.add_option("--spin-us", line.session.spin_us,
                 "poll that many microseconds before sleeping while traffic is dense; 0: never")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  sub.add_option("--log-level", line.log_level, "debug, info, warn, error or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
}

std::optional<wire::Address> Address(const std::string& option, const std::string& text,
                                     CommandLine& line) {
  if (text.empty()) return std::nullopt;
  auto address = wire::ParseAddress(text);
  if (address) return *address;
  std::fprintf(stderr, "rpcproxy: %s: %s\n", option.c_str(), address.error().message.c_str());
  line.verb = CommandLine::Verb::kExit;
  line.exit_code = 2;
  return std::nullopt;
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  Raw raw;
  std::vector<std::string> words(argv + 1, argv + argc);
  // What follows "--" belongs to the child, however it looks.
  bool split = false;
  if (const auto dashes = std::find(words.begin(), words.end(), "--"); dashes != words.end()) {
    line.command.assign(dashes + 1, words.end());
    words.erase(dashes, words.end());
    split = true;
  }
  const auto is_verb = [](const std::string& word) {
    return word == "serve" || word == "run" || word == "status";
  };
  const auto is_global = [](const std::string& word) {
    return word == "-h" || word == "--help" || word == "--version";
  };
  if (words.empty() || (!is_verb(words[0]) && !is_global(words[0])))
    words.insert(words.begin(), split ? "run" : "serve");

  CLI::App app(kAbout, "rpcproxy");
  app.footer(kFooter);
  app.set_version_flag("--version", "rpcproxy " TINYGPU_VERSION);
  app.require_subcommand(1);
  CLI::App* serve = app.add_subcommand("serve", "listen until a signal comes (the default)");
  CLI::App* run = app.add_subcommand("run", "start CMD with its environment pointing here");
  CLI::App* status = app.add_subcommand("status",
                                        "say who listens and who is connected, without "
                                        "connecting to anything");
  AddOptions(*serve, line, raw);
  AddOptions(*run, line, raw);
  run->prefix_command();

  std::string format = "text";
  status->add_option("--format", format, "text or json")->check(CLI::IsMember({"text", "json"}));
  status->add_option("-l,--listen", raw.listen, "where a proxy would listen");
  status->add_option("-u,--upstream", raw.upstream, "where the server would be");

  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    line.verb = CommandLine::Verb::kExit;
    line.exit_code = code == 0 ? 0 : 2;
    return line;
  }
  line.verb = run->parsed()      ? CommandLine::Verb::kRun
              : status->parsed() ? CommandLine::Verb::kStatus
                                 : CommandLine::Verb::kServe;
  line.json = format == "json";
  if (line.verb == CommandLine::Verb::kRun) {
    if (!split) line.command = run->remaining();
    if (line.command.empty() || (!split && line.command[0].starts_with('-'))) {
      std::fprintf(stderr, "rpcproxy run: %s\n",
                   line.command.empty()
                       ? "no command: write rpcproxy run [OPTIONS] -- CMD [ARGS...]"
                       : ("unknown option " + line.command[0]).c_str());
      line.verb = CommandLine::Verb::kExit;
      line.exit_code = 2;
      return line;
    }
  } else if (split) {
    std::fprintf(stderr, "rpcproxy: a command after -- needs: rpcproxy run\n");
    line.verb = CommandLine::Verb::kExit;
    line.exit_code = 2;
    return line;
  }
  if (raw.protocol == "r1") line.session.revision = wire::Revision::kR1;
  if (raw.protocol == "r2") line.session.revision = wire::Revision::kR2;
  if (raw.autopsy) {
    line.session.autopsy.emplace();
    line.session.autopsy->after_stall_ms = static_cast<uint64_t>(raw.autopsy_after * 1000);
  }
  line.session.bodies = *ParseBodyPolicy(raw.bodies);
  line.session.machine_durability = line.durability == "machine";
  line.session.capture_sysmem = line.sysmem != "none";
  line.listen = Address("--listen", raw.listen, line);
  if (line.verb != CommandLine::Verb::kExit)
    line.upstream = Address("--upstream", raw.upstream, line);
  return line;
}

}  // namespace tg::proxy
