// rpcproxy: see options.cc for what it takes.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "proxy/capture/capture.h"
#include "proxy/defaults.h"
#include "proxy/launcher.h"
#include "proxy/listener.h"
#include "proxy/log.h"
#include "proxy/options.h"
#include "proxy/proxy.h"
#include "proxy/status.h"
#include "proxy/verdict.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/trace/writer.h"

namespace tg::proxy {
namespace {

namespace pb = tinygpu::trace;

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr rlim_t kWantedFiles = 10240;  // what macOS takes at most
constexpr uint64_t kDrainMs = 2000;     // for the session to end by itself when the child is gone

int ExitCode(const Error& error) {
  return error.code == Error::Code::kUsage ? kUsage : kFailure;
}

// 128 regions of a client pass through as descriptors, and clients wait: macOS' default is 256.
void RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kWantedFiles) return;
  limit.rlim_cur =
      limit.rlim_max == RLIM_INFINITY ? kWantedFiles : std::min(limit.rlim_max, kWantedFiles);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string DefaultTraceName() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "rpcproxy-%Y%m%d-%H%M%S.pb", &local);
  return text;
}

// An existing trace may be the one of the hang somebody is after: it is kept under another name.
void KeepOldTrace(const std::string& path, const LogFn& log) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return;
  const std::string old = path + ".old";
  if (std::rename(path.c_str(), old.c_str()) == 0)
    log(LogLevel::kInfo, "the trace that was there is now " + old);
}

pb::Header MakeHeader(const CommandLine& line, const wire::Address& listen,
                      const wire::Address& upstream, uint64_t start_mono_ns) {
  pb::Header header;
  header.set_start_mono_ns(start_mono_ns);
  header.set_start_wall_ns(
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count()));
  header.set_producer("rpcproxy " TINYGPU_VERSION);
  utsname host{};
  if (::uname(&host) == 0) {
    header.set_host(host.nodename);
    header.set_os(fmt::format("{} {} {}", host.sysname, host.release, host.machine));
  }
  header.set_body_policy(std::string(BodyPolicyName(line.session.bodies)));
  header.set_listen(wire::FormatAddress(listen));
  header.set_upstream(wire::FormatAddress(upstream));
  header.set_proxy_pid(static_cast<uint32_t>(::getpid()));
  header.set_durability(line.durability);
  return header;
}

pb::End MakeEnd(const std::string& reason, const Counters& counters, uint64_t calls) {
  pb::End end;
  end.set_reason(reason);
  end.set_calls(calls);
  for (uint32_t command = 0; command < counters.by_command.size(); command++)
    if (counters.by_command[command] > 0)
      (*end.mutable_by_command())[command] = counters.by_command[command];
  end.set_to_server(counters.to_server);
  end.set_to_client(counters.to_client);
  end.set_descriptors(counters.descriptors);
  end.set_errors(counters.errors);
  return end;
}

// One run of the proxy, from the first signal handler to the last.
class Run {
 public:
  Run(const CommandLine& line, LogFn log) : line_(line), log_(std::move(log)) {
    uv_loop_init(&loop_);
    launcher_ = std::make_unique<Launcher>(&loop_, log_);
  }
  ~Run() { uv_loop_close(&loop_); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  int Main();

 private:
  Result<wire::Address> Upstream(const std::optional<wire::Address>& listen);
  Result<std::unique_ptr<Listener>> Listen(const wire::Address& upstream);
  void WatchSignals();
  void OnSignal(int number);
  Result<void> StartChild();
  void ChildExited(int status);
  void Stop(const std::string& reason);

  const CommandLine& line_;
  LogFn log_;
  uv_loop_t loop_;
  std::unique_ptr<trace::TraceWriter> writer_;
  std::unique_ptr<Capture> capture_;
  std::unique_ptr<VerdictTeller> verdict_;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<Proxy> proxy_;
  std::vector<std::unique_ptr<uv_signal_t>> signals_;
  std::unique_ptr<uv_timer_t> drain_;
  uint64_t drain_until_ = 0;
  int status_ = 0;
  std::string reason_;
  std::shared_ptr<const RuleSet> rules_;
};

Result<wire::Address> Run::Upstream(const std::optional<wire::Address>& listen) {
  if (line_.upstream) return *line_.upstream;
  auto choice = DefaultUpstream(::getenv, listen);
  if (!choice) return tl::unexpected(std::move(choice.error()));
  for (const std::string& note : choice->notes) log_(LogLevel::kWarn, note);
  return choice->address;
}

Result<std::unique_ptr<Listener>> Run::Listen(const wire::Address& upstream) {
  if (line_.listen) return Listener::Open(*line_.listen, log_);
  wire::Address address = DefaultListen(::getenv);
  if (line_.verb == CommandLine::Verb::kRun && !upstream.is_unix()) {
    // Only this child will use it: any free port.
    address = {wire::Address::Kind::kTcp, "", "127.0.0.1", 0};
    return Listener::Open(address, log_);
  }
  if (!upstream.is_unix()) {
    address = {wire::Address::Kind::kTcp, "", "127.0.0.1", wire::kDefaultTcpPort};
    return Listener::Open(address, log_);
  }
  auto listener = Listener::Open(address, log_);
  if (listener || line_.verb != CommandLine::Verb::kRun) return listener;
  // Another proxy has the default path; this child does not care which one it gets.
  log_(LogLevel::kInfo, listener.error().message);
  address.path = fmt::format("{}/rpcproxy-{}.sock", TempDir(::getenv), ::getpid());
  return Listener::Open(address, log_);
}

void Run::WatchSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    auto& handle = signals_.emplace_back(std::make_unique<uv_signal_t>());
    uv_signal_init(&loop_, handle.get());
    handle->data = this;
    uv_signal_start(
        handle.get(), [](uv_signal_t* h, int n) { static_cast<Run*>(h->data)->OnSignal(n); },
        number);
  }
}

void Run::OnSignal(int number) {
  if (number == SIGUSR1) {
    log_(LogLevel::kInfo, "snapshot of shared memory");
    proxy_->Snapshot();
    return;
  }
  if (launcher_->running()) {
    launcher_->Forward(number);
    return;
  }
  if (number == SIGUSR2) return;
  Stop(fmt::format("signal {} ({})", number, ::strsignal(number)));
}

Result<void> Run::StartChild() {
  const wire::Address& at = proxy_->listener().address();
  std::vector<std::pair<std::string, std::string>> environment;
  if (at.is_unix()) {
    // REMOTE would have the client go to that host instead.
    environment = {{"APL_REMOTE_SOCK", at.path}, {"REMOTE", ""}};
  } else {
    environment = {{"REMOTE", fmt::format("{}:{}", at.host, at.port)}};
  }
  return launcher_->Start(line_.command, environment, [this](int status) { ChildExited(status); });
}

void Run::ChildExited(int status) {
  status_ = status;
  pb::SessionEvent event;
  event.set_kind(pb::SessionEvent::CHILD_EXIT);
  event.set_exit_status(status);
  event.set_text(line_.command[0]);
  proxy_->Note(event);
  log_(LogLevel::kInfo,
       fmt::format("{} ended with status {}", Printable(line_.command[0]), status));
  drain_ = std::make_unique<uv_timer_t>();
  uv_timer_init(&loop_, drain_.get());
  drain_->data = this;
  drain_until_ = uv_now(&loop_) + kDrainMs;
  uv_timer_start(
      drain_.get(),
      [](uv_timer_t* timer) {
        auto* self = static_cast<Run*>(timer->data);
        if (self->proxy_->busy() && uv_now(timer->loop) < self->drain_until_) return;
        self->Stop("child exited");
      },
      0, 10);
}

void Run::Stop(const std::string& reason) {
  if (!reason_.empty()) return;
  reason_ = reason;
  for (auto& handle : signals_) {
    uv_signal_stop(handle.get());
    uv_close(reinterpret_cast<uv_handle_t*>(handle.get()), nullptr);
  }
  if (drain_) uv_close(reinterpret_cast<uv_handle_t*>(drain_.get()), nullptr);
  proxy_->Stop(reason, [this] { uv_stop(&loop_); });
}

int Run::Main() {
  const auto fail = [&](const Error& error) {
    log_(LogLevel::kError, error.message);
    return ExitCode(error);
  };
  auto rules = MakeRuleSet(line_.rules);
  if (!rules) return fail(rules.error());
  rules_ = std::move(*rules);
  auto upstream =
      Upstream(line_.listen ? line_.listen : std::optional<wire::Address>(DefaultListen(::getenv)));
  if (!upstream) return fail(upstream.error());
  if (line_.listen && *line_.listen == *upstream)
    return fail({Error::Code::kUsage, "--listen and --upstream are the same address"});
  auto listener = Listen(*upstream);
  if (!listener) return fail(listener.error());

  const std::string trace = line_.trace.empty() ? DefaultTraceName() : line_.trace;
  KeepOldTrace(trace, log_);
  auto sink = trace::OpenFileSink(trace, true);
  if (!sink) return fail(sink.error());
  trace::WriterOptions writer_options;
  writer_options.start_mono_ns = uv_hrtime();
  auto writer = trace::TraceWriter::Create(
      std::move(*sink), writer_options,
      MakeHeader(line_, (*listener)->address(), *upstream, writer_options.start_mono_ns));
  if (!writer) return fail(writer.error());
  writer_ = std::move(*writer);

  ProxyOptions options;
  options.session = line_.session;
  options.session.rules = rules_;
  if (options.session.autopsy && rules_) options.session.autopsy->asic = rules_->asic;
  if (const auto policy = ParseSysmemPolicy(line_.sysmem)) {
    CaptureOptions capture;
    capture.policy = *policy;
    capture.clock_ns = [] { return uv_hrtime(); };
    capture.say = [log = log_](bool warning, const std::string& text) {
      log(warning ? LogLevel::kWarn : LogLevel::kInfo, text);
    };
    capture_ = std::make_unique<Capture>(*writer_, std::move(capture));
    options.session.capture = capture_.get();
  }
  options.connect.upstream = *upstream;
  options.connect.app = line_.app == "none" ? "" : line_.app.empty() ? DefaultApp() : line_.app;
  const wire::Address at = (*listener)->address();
  if (line_.verdict) {
    verdict_ = std::make_unique<VerdictTeller>(trace, log_);
    options.client_gone = [this] { verdict_->ClientGone(); };
  }
  proxy_ = std::make_unique<Proxy>(&loop_, options, std::move(*listener), *writer_, log_);
  WatchSignals();
  proxy_->Start();
  if (rules_) log_(LogLevel::kWarn, "not a mere relay: " + Printable(DescribeRules(*rules_), 2000));
  if (options.session.autopsy)
    log_(LogLevel::kWarn,
         fmt::format("--autopsy: registers will be read after a stall of {:.1f} s and when the "
                     "client leaves; on a card in a bad state a read can hang the bus",
                     static_cast<double>(options.session.autopsy->after_stall_ms) / 1000));
  log_(LogLevel::kInfo, fmt::format("listening on {}, server {}, trace {}", wire::FormatAddress(at),
                                    wire::FormatAddress(*upstream), trace));
  if (line_.verb == CommandLine::Verb::kRun) {
    if (auto started = StartChild(); !started) {
      status_ = launcher_->start_failure_status();
      log_(LogLevel::kError, started.error().message);
      Stop("the command could not be started");
    }
  } else {
    log_(LogLevel::kInfo,
         at.is_unix() ? fmt::format("point the client here: APL_REMOTE_SOCK={}", at.path)
                      : fmt::format("point the client here: REMOTE={}:{}", at.host, at.port));
  }
  uv_run(&loop_, UV_RUN_DEFAULT);

  const Counters counters = proxy_->counters();
  proxy_.reset();
  uv_run(&loop_, UV_RUN_DEFAULT);  // closes what is left
  // Its last snapshots belong before the end of the trace.
  if (capture_) capture_->Stop(kDrainMs);
  capture_.reset();
  const uint64_t calls = writer_->calls();
  if (auto closed = writer_->Close(MakeEnd(reason_, counters, calls), uv_hrtime()); !closed)
    log_(LogLevel::kError, "the trace could not be closed: " + closed.error().message);
  log_(LogLevel::kInfo, fmt::format("{} calls, {} bytes of trace in {}; see: rpcdecode {}", calls,
                                    writer_->bytes_written(), trace, trace));
  writer_.reset();
  if (verdict_) verdict_->TraceClosed();
  return status_;
}

int Status(const CommandLine& line) {
  const wire::Address listen = line.listen.value_or(DefaultListen(::getenv));
  wire::Address upstream;
  if (line.upstream) {
    upstream = *line.upstream;
  } else {
    const auto choice = DefaultUpstream(::getenv, listen);
    if (!choice) {
      std::fprintf(stderr, "rpcproxy: %s\n", choice.error().message.c_str());
      return ExitCode(choice.error());
    }
    upstream = choice->address;
  }
  const StatusReport report = GatherStatus(listen, upstream, ::getenv);
  const std::string text = line.json ? StatusJson(report) : StatusText(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

int Main(int argc, char** argv) {
  const CommandLine line = ParseCommandLine(argc, argv);
  if (line.verb == CommandLine::Verb::kExit) return line.exit_code;
  if (line.verb == CommandLine::Verb::kStatus) return Status(line);
  // Writing to a socket nobody reads, or past a file size limit, is an error code like others.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  RaiseFileLimit();
  auto log = StartLog(line.log_level);
  if (!log) {
    std::fprintf(stderr, "rpcproxy: %s\n", log.error().message.c_str());
    return kUsage;
  }
  for (const std::string& argument : DangerousArguments(argc, argv))
    (*log)(LogLevel::kWarn,
           "'" + Printable(argument, 120) +
               "' in the command line: tinygrad ends such processes (pkill -f). Give it by the "
               "environment instead: RPCPROXY_LISTEN, RPCPROXY_UPSTREAM, RPCPROXY_APP");
  const int status = Run(line, *log).Main();
  StopLog();
  return status;
}

}  // namespace
}  // namespace tg::proxy

int main(int argc, char** argv) {
  return tg::proxy::Main(argc, argv);
}
