// rpcdecode: reads traces of the TinyGPU RPC and says what happened.
//
// Exit codes: 0 healthy or nothing to find, 1 difference or hang found, 2 usage, 3 unreadable,
// 4 decoded but incomplete.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "decoder/diff/diff.h"
#include "decoder/export/chrome.h"
#include "decoder/report/analysis.h"
#include "decoder/report/bars_section.h"
#include "decoder/report/boot_section.h"
#include "decoder/report/copies_section.h"
#include "decoder/report/discovery_section.h"
#include "decoder/report/feed.h"
#include "decoder/report/files.h"
#include "decoder/report/log.h"
#include "decoder/report/regs_section.h"
#include "decoder/report/report.h"
#include "decoder/report/rings_section.h"
#include "decoder/report/vm_section.h"

namespace {

using tg::report::LogOptions;
using tg::report::Output;

constexpr int kUsage = 2, kUnreadable = 3;

struct Options {
  std::string file;
  std::string format = "text";
  std::string colour = "auto";
  bool no_pager = false;
  uint64_t at = UINT64_MAX;  // newest record that counts
  bool json() const { return format == "json"; }
};

// One that knows no control sequences.
bool DumbTerminal() {
  const char* term = std::getenv("TERM");
  return term && std::string(term) == "dumb";
}

// Standard output, through a pager when a person reads a long text.
class Screen {
 public:
  Screen(const Options& options, bool may_page) {
    const bool terminal = isatty(STDOUT_FILENO) == 1;
    const char* no_colour = std::getenv("NO_COLOR");
    const bool plain = (no_colour && *no_colour) || DumbTerminal();
    colour_ = options.colour == "always" || (options.colour == "auto" && terminal && !plain);
    if (options.json()) colour_ = false;
    if (!terminal || !may_page || options.no_pager || options.json()) return;
    const char* pager = std::getenv("PAGER");
    const std::string command = pager ? pager : "less -FRX";
    if (command.empty() || command == "cat") return;
    pipe_ = popen(command.c_str(), "w");
  }
  ~Screen() {
    if (pipe_) pclose(pipe_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  std::FILE* file() const { return pipe_ ? pipe_ : stdout; }
  bool colour() const { return colour_; }

 private:
  std::FILE* pipe_ = nullptr;
  bool colour_ = false;
};

int Complain(const tg::Error& error) {
  std::fprintf(stderr, "rpcdecode: %s\n", error.message.c_str());
  return error.code == tg::Error::Code::kUsage ? kUsage : kUnreadable;
}

// A file that cannot be opened as a trace, whatever the reason.
int Unreadable(const tg::Error& error) {
  Complain(error);
  return kUnreadable;
}

// Of a subcommand that printed what there is: whole, incomplete, or nothing at all.
int FileExitCode(const tg::trace::TraceReader& reader, const std::string& path) {
  const tg::report::FileFacts facts = tg::report::ReadFileFacts(reader, path);
  if (const auto some = tg::report::AnythingRead(facts); !some) return Complain(some.error());
  return facts.whole() ? 0 : 4;
}

int Report(const Options& options) {
  auto reader = tg::trace::TraceReader::Open(options.file);
  if (!reader) return Unreadable(reader.error());
  const auto analysis = tg::report::Analyse(**reader, options.file);
  if (const auto some = tg::report::AnythingRead(analysis->file); !some)
    return Complain(some.error());
  const tg::report::Report report(*analysis);
  const Screen screen(options, true);
  Output out(screen.file(), screen.colour());
  if (options.json())
    out.Write(report.ToJson());
  else
    report.ToText(out);
  return report.exit_code();
}

struct LogFlags {
  LogOptions log;
  std::vector<std::string> commands;
  std::string seq;
  std::string time;
  int64_t bar = -1;
};

// A subcommand that prints one section; the code is the section's, or 4 for an incomplete trace.
template <typename Print>
int Section(const Options& options, const Print& print) {
  auto reader = tg::trace::TraceReader::Open(options.file);
  if (!reader) return Unreadable(reader.error());
  const Screen screen(options, true);
  Output out(screen.file(), screen.colour());
  const tg::Result<int> code = print(**reader, out);
  if (!code) return Complain(code.error());
  return *code != 0 ? *code : FileExitCode(**reader, options.file);
}

struct RingsFlags {
  tg::report::RingsOptions options;
  std::string window;
  uint64_t at = 0;
};

// A section made from the device model after the trace, or after record --at; `print` gets the
// document's maker.
template <typename Make, typename Text>
int DeviceSection(const Options& options, const Make& make, const Text& text) {
  return Section(options, [&](tg::trace::TraceReader& reader, Output& out) -> tg::Result<int> {
    tg::model::Device device;
    tg::report::FeedUpTo(reader, device, options.at);
    const tg::report::Json document = make(device);
    if (options.json())
      out.Line(tg::report::Dump(document, true));
    else
      text(document, out);
    return 0;
  });
}

int Bars(const Options& options) {
  return Section(options, [&](tg::trace::TraceReader& reader, Output& out) -> tg::Result<int> {
    tg::model::Device device;
    tg::model::SessionModel session;
    tg::report::FeedUpTo(reader, options.at, [&](const tg::trace::Record& record) {
      session.Add(record);
      device.Feed(record);
    });
    const auto document = tg::report::BarsSectionJson(device, session.session().link);
    if (options.json())
      out.Line(tg::report::Dump(document, true));
    else
      tg::report::BarsSectionText(document, out);
    return 0;
  });
}

struct VmFlags {
  std::vector<std::string> words;  // [map | walk ADDRESS | who ADDRESS] TRACE, in any order
  std::string walk, who;           // the same as options
};

int Vm(Options& options, const VmFlags& flags) {
  namespace report = tg::report;
  const auto usage = [](const char* text) { return Complain({tg::Error::Code::kUsage, text}); };
  std::string what = !flags.who.empty() ? "who" : !flags.walk.empty() ? "walk" : "map";
  std::string address = flags.who.empty() ? flags.walk : flags.who;
  for (const std::string& word : flags.words) {
    if (what == "map" && (word == "map" || word == "walk" || word == "who")) {
      what = word;
    } else if (what != "map" && address.empty() && report::ParseAddress(word)) {
      address = word;
    } else if (options.file.empty()) {
      options.file = word;
    } else {
      return Complain(what == "map" ? tg::Error{tg::Error::Code::kUsage, "vm: one trace at a time"}
                                    : report::ParseAddress(word).error());
    }
  }
  if (options.file.empty()) return usage("vm: no trace given");
  if (what != "map" && address.empty()) return usage("vm: no address given");
  if (what == "map")
    return DeviceSection(
        options, [](const tg::model::Device& device) { return report::VmMapJson(device); },
        report::VmMapText);
  const auto va = report::ParseAddress(address);
  if (!va) return Complain(va.error());
  if (what == "walk")
    return DeviceSection(
        options, [&](const tg::model::Device& device) { return report::VmWalkJson(device, *va); },
        report::VmWalkText);
  return Section(options, [&](tg::trace::TraceReader& reader, Output& out) -> tg::Result<int> {
    const auto who = report::VmWhoJson(options.file, *va, options.at);
    if (!who) return tl::unexpected(who.error());
    tg::trace::Record record;
    while (reader.Next(record)) continue;
    if (options.json())
      out.Line(report::Dump(*who, true));
    else
      report::VmWhoText(*who, out);
    return 0;
  });
}

struct DiffFlags {
  std::string good, hung;
  tg::diff::DiffOptions options;
  bool side_by_side = false;
  size_t width = 0;  // 0: the terminal's
};

size_t TerminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
  return 100;
}

int Diff(const Options& options, DiffFlags& flags) {
  const bool terminal = isatty(STDERR_FILENO) == 1 && !DumbTerminal();
  if (terminal) {
    flags.options.progress = [](double share) {
      std::fprintf(stderr, "\rrpcdecode diff: %3.0f %%", share * 100);
    };
  }
  const auto result = tg::diff::Diff(flags.good, flags.hung, flags.options);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (!result) return Unreadable(result.error());
  const Screen screen(options, true);
  Output out(screen.file(), screen.colour());
  out.Write(options.json()
                ? tg::diff::DiffJson(*result)
                : tg::diff::DiffText(*result, {flags.side_by_side, screen.colour(),
                                               flags.width ? flags.width : TerminalWidth()}));
  return result->exit_code();
}

int Log(const Options& options, LogFlags& flags) {
  LogOptions& log = flags.log;
  log.json = options.json();
  for (const std::string& name : flags.commands) {
    const tg::wire::CommandInfo* info = tg::wire::FindCommandByName(name);
    if (!info) {
      std::string known;
      for (uint8_t i = 0; i < tg::wire::kCommandCount; i++)
        known += fmt::format(" {}", tg::wire::CommandName(i));
      return Complain({tg::Error::Code::kUsage,
                       fmt::format("no command is called '{}'; there are:{}", name, known)});
    }
    log.commands.push_back(static_cast<uint8_t>(info->command));
  }
  if (flags.bar >= 0) log.bar = static_cast<uint32_t>(flags.bar);
  if (!flags.seq.empty() && !tg::report::ParseRange(flags.seq, 1, log.seq_first, log.seq_last)) {
    return Complain({tg::Error::Code::kUsage,
                     fmt::format("--seq {}: a range of records is A..B, A.. or ..B", flags.seq)});
  }
  if (!flags.time.empty() &&
      !tg::report::ParseRange(flags.time, 1e9, log.time_first_ns, log.time_last_ns)) {
    return Complain({tg::Error::Code::kUsage,
                     fmt::format("--time {}: a range of seconds is A..B, A.. or ..B", flags.time)});
  }
  auto reader = tg::trace::TraceReader::Open(options.file);
  if (!reader) return Unreadable(reader.error());
  const Screen screen(options, !log.follow);
  Output out(screen.file(), screen.colour());
  tg::report::PrintLog(**reader, log, out);
  return FileExitCode(**reader, options.file);
}

int Finish(const tg::Result<int>& result) {
  return result ? *result : Complain(result.error());
}

int Export(const Options& options, const std::string& to, bool raw) {
  auto reader = tg::trace::TraceReader::Open(options.file);
  if (!reader) return Unreadable(reader.error());
  std::FILE* file = stdout;
  if (to != "-") {
    file = std::fopen(to.c_str(), "wb");
    if (!file)
      return Complain(
          {tg::Error::Code::kUsage, fmt::format("cannot write {}: {}", to, std::strerror(errno))});
  }
  bool failed = false;
  {
    Output out(file);
    tg::report::ExportChrome(**reader, raw, out);
    failed = out.failed();
  }
  if (file != stdout && std::fclose(file) != 0) failed = true;
  if (failed && file != stdout)
    return Complain({tg::Error::Code::kIo, fmt::format("cannot write all of {}", to)});
  return FileExitCode(**reader, options.file);
}

}  // namespace

int main(int argc, char** argv) {
  // `rpcdecode log | head` ends by a failed write, not by a signal.
  std::signal(SIGPIPE, SIG_IGN);

  CLI::App app{
      "Decodes a trace of the TinyGPU RPC, as rpcproxy records it.\n"
      "`rpcdecode trace.pb` prints the report: verdict, session, BARs, calls, warnings.",
      "rpcdecode"};
  app.set_version_flag("--version", std::string("rpcdecode " TINYGPU_VERSION));
  Options options;
  LogFlags log;
  std::string repaired, exported = "-";
  bool force = false, raw_export = false;

  const auto common = [&options](CLI::App* sub) {
    if (sub->get_name() != "vm") sub->add_option("trace", options.file, "trace file");
    sub->add_option("--format", options.format, "text or json")
        ->check(CLI::IsMember({"text", "json"}));
    sub->add_option("--color", options.colour, "auto, always or never")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    sub->add_flag("--no-pager", options.no_pager, "print directly, also on a terminal");
  };
  common(&app);
  CLI::App* info = app.add_subcommand("info", "header, size, packets, how the trace ends");
  CLI::App* log_app = app.add_subcommand("log", "one line per call, waits folded");
  CLI::App* check = app.add_subcommand("check", "verify every packet, list damaged ranges");
  CLI::App* repair = app.add_subcommand("repair", "keep what is whole as a closed trace");
  CLI::App* export_app =
      app.add_subcommand("export", "calls as Trace Event JSON for Perfetto or chrome://tracing");
  CLI::App* rings_app =
      app.add_subcommand("rings", "queues: pointers, outstanding packets, submissions");
  CLI::App* copies_app = app.add_subcommand("copies", "what the SDMA engines moved");
  CLI::App* bars_app = app.add_subcommand("bars", "PCI, BARs, whether the card answers");
  CLI::App* regs_app = app.add_subcommand("regs", "registers by name, their fields and history");
  CLI::App* discovery_app = app.add_subcommand("discovery", "IP blocks and device properties");
  CLI::App* boot_app = app.add_subcommand("boot", "boot phases, PSP, SMU, interrupts, faults");
  CLI::App* vm_app = app.add_subcommand("vm", "the GPU's address space");
  for (CLI::App* sub : {info, log_app, check, repair, export_app, rings_app, copies_app, bars_app,
                        regs_app, discovery_app, boot_app, vm_app})
    common(sub);
  tg::report::RegsOptions regs;
  regs_app->add_option("--name", regs.glob, "only names that match this pattern, e.g. '*RB_WPTR*'");
  regs_app->add_option("--block", regs.block, "only this block, e.g. GC");
  regs_app->add_flag("--unknown", regs.unknown_only, "only registers without a name");
  regs_app->add_flag("--history", regs.history, "every kept access");
  VmFlags vm;
  vm_app->add_option("what", vm.words, "map, walk ADDRESS or who ADDRESS, and the trace");
  vm_app->add_option("--walk", vm.walk, "where this address leads");
  vm_app->add_option("--who", vm.who, "every write to the entries that map this address");
  for (CLI::App* sub : {regs_app, discovery_app, boot_app, bars_app, vm_app, copies_app})
    sub->add_option("--at", options.at, "as it was after this record");
  RingsFlags rings;
  rings_app->add_option("--queue", rings.options.queue, "only this queue, e.g. sdma0");
  CLI::Option* rings_at = rings_app->add_option("--at", rings.at, "state after this record");
  rings_app->add_option("--window", rings.window, "packets around the read pointer: [.-4:.+8]");
  DiffFlags diff;
  CLI::App* diff_app = app.add_subcommand("diff", "the first real difference of two traces");
  diff_app->add_option("good", diff.good, "trace of a good run")->required();
  diff_app->add_option("hung", diff.hung, "trace to compare with it")->required();
  diff_app->add_option("--format", options.format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  diff_app->add_option("--color", options.colour, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  diff_app->add_flag("--no-pager", options.no_pager, "never use a pager");
  diff_app->add_flag("--strict", diff.options.strict, "compare everything but times");
  diff_app->add_flag("--side-by-side", diff.side_by_side, "context of both in two columns");
  diff_app->add_option("--width", diff.width, "columns of text (default: the terminal's, or 100)")
      ->check(CLI::Range(40, 1000));
  const std::string globs = "register (glob), barN, command, phase or kind of event";
  diff_app->add_option("--only", diff.options.filter.only, "only this " + globs)
      ->allow_extra_args(false);
  diff_app->add_option("--ignore", diff.options.filter.ignore, "leave out this " + globs)
      ->allow_extra_args(false);
  app.require_subcommand(0, 1);

  log_app->add_flag("--raw", log.log.raw, "do not fold repeated calls");
  log_app->add_flag("!--no-names", log.log.names, "calls alone: no register names, no fields");
  log_app->add_flag("--errors", log.log.errors, "only refused, unanswered or cut-off calls");
  log_app->add_flag("--follow,-f", log.log.follow, "go on while the trace grows");
  log_app->add_option("--command,-c", log.commands, "only this command (may be repeated)")
      ->allow_extra_args(false);
  log_app->add_option("--bar", log.bar, "only accesses to this BAR")->check(CLI::Range(0u, ~0u));
  log_app->add_option("--seq", log.seq, "only records A..B");
  log_app->add_option("--time", log.time, "only seconds A..B since the start");
  repair->add_option("-o,--output", repaired, "file to write")->required();
  repair->add_flag("--force", force, "replace the output file if it exists");
  export_app->add_option("-o,--output", exported, "file to write (default: standard output)");
  export_app->add_flag("--raw", raw_export, "do not fold repeated calls");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (diff_app->parsed()) return Diff(options, diff);
  if (vm_app->parsed()) return Vm(options, vm);
  if (options.file.empty()) {
    std::fprintf(stderr, "rpcdecode: no trace given; try `rpcdecode trace.pb` or --help\n");
    return kUsage;
  }
  const bool may_page = !repair->parsed() && !export_app->parsed();
  if (log_app->parsed()) return Log(options, log);
  namespace report = tg::report;
  using tg::model::Device;
  if (bars_app->parsed()) return Bars(options);
  if (regs_app->parsed()) {
    return DeviceSection(
        options, [&](const Device& device) { return report::RegsJson(device, regs); },
        report::RegsText);
  }
  if (discovery_app->parsed()) {
    return DeviceSection(options, report::DiscoverySectionJson,
                         [](const report::Json& json, Output& out) {
                           report::DiscoverySectionText(json, out, true);
                         });
  }
  if (boot_app->parsed()) {
    return DeviceSection(
        options, report::BootSectionJson,
        [](const report::Json& json, Output& out) { report::BootSectionText(json, out, true); });
  }
  if (rings_app->parsed()) {
    if (*rings_at) rings.options.at = rings.at;
    rings.options.json = options.json();
    if (!rings.window.empty()) {
      const auto parsed = tg::report::ParseWindow(rings.window, rings.options);
      if (!parsed) return Complain(parsed.error());
    }
    return Section(options, [&](tg::trace::TraceReader& reader, Output& out) {
      return tg::report::PrintRings(reader, rings.options, out);
    });
  }
  if (copies_app->parsed()) {
    return Section(options, [&](tg::trace::TraceReader& reader, Output& out) {
      return tg::report::PrintCopies(reader, options.json(), out, options.at);
    });
  }
  if (export_app->parsed()) return Export(options, exported, raw_export);
  if (!info->parsed() && !check->parsed() && !repair->parsed()) return Report(options);

  const Screen screen(options, may_page);
  Output out(screen.file(), screen.colour());
  if (info->parsed()) return Finish(tg::report::PrintInfo(options.file, options.json(), out));
  if (check->parsed()) return Finish(tg::report::CheckTrace(options.file, options.json(), out));
  return Finish(tg::report::RepairTrace(options.file, repaired, force, out));
}
