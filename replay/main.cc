// rpcreplay: plays one side of the TinyGPU RPC without hardware.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "replay/client/command.h"
#include "replay/drive/command.h"
#include "replay/serve/command.h"
#include "replay/sim/gpu.h"
#include "replay/sim/report.h"
#include "replay/sim/server.h"

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailed = 3;

int Complain(const tg::Error& error) {
  std::cerr << "rpcreplay: " << error.message << "\n";
  return error.code == tg::Error::Code::kUsage ? kExitUsage : kExitFailed;
}

std::string DefaultSocket() {
  const char* folder = std::getenv("TMPDIR");
  std::string path = folder && *folder ? folder : "/tmp";
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path + "/rpcreplay.sock";
}

std::string HangHelp() {
  std::string text = "Ways to go wrong, NAME[:ARGUMENT][:after=N][:count=M]; may be repeated:";
  for (const tg::sim::HangInfo& info : tg::sim::HangTable()) {
    text += "\n  " + std::string(info.name) + std::string(info.argument);
    text += " (counts " + std::string(info.counts) + "): " + std::string(info.effect);
  }
  return text;
}

struct SimOptions {
  std::string listen = DefaultSocket();
  std::string asic = "navi31";
  std::string bar0 = "full";
  std::vector<std::string> hangs;
  std::string report;
  bool once = false;
  bool quiet = false;
};

tg::Result<tg::sim::GpuOptions> CardOf(const SimOptions& options) {
  tg::sim::GpuOptions card;
  card.asic = tg::sim::FindAsic(options.asic);
  if (!card.asic) {
    std::string names;
    for (const tg::sim::Asic& asic : tg::sim::AllAsics()) names += " " + std::string(asic.name);
    return tg::Fail(tg::Error::Code::kUsage, "--asic " + options.asic + ": there are" + names);
  }
  if (options.bar0 == "256M") {
    card.bar0_size = tg::sim::kSmallBar0;
  } else if (options.bar0 != "full") {
    return tg::Fail(tg::Error::Code::kUsage, "--bar0 is `full` or `256M`");
  }
  return card;
}

void WriteReport(const SimOptions& options, const tg::sim::Gpu& gpu,
                 const tg::sim::ServerStats& stats) {
  if (!options.quiet) std::cerr << tg::sim::ReportText(gpu, stats);
  if (options.report.empty()) return;
  std::ofstream file(options.report);
  file << tg::sim::ReportJson(gpu, stats);
  file.close();
  if (!file) std::cerr << "rpcreplay: cannot write " << options.report << "\n";
}

int RunSim(const SimOptions& options) {
  const auto card = CardOf(options);
  if (!card) return Complain(card.error());
  auto gpu = tg::sim::Gpu::Create(*card);
  if (!gpu) return Complain(gpu.error());
  for (const std::string& spec : options.hangs) {
    auto rule = tg::sim::ParseHang(spec);
    if (!rule) return Complain(rule.error());
    (*gpu)->hangs().Add(*std::move(rule));
  }
  tg::sim::ServerOptions server_options;
  auto address = tg::wire::ParseAddress(options.listen);
  if (!address) return Complain(address.error());
  server_options.listen = *std::move(address);
  server_options.once = options.once;
  if (!options.quiet)
    server_options.log = [](const std::string& text) {
      std::cerr << "rpcreplay: " << text << "\n";
    };

  // A thread of its own takes the signals, so that they find the server in whatever call it waits.
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  auto server = tg::sim::Server::Listen(**gpu, std::move(server_options));
  if (!server) return Complain(server.error());
  std::cerr << "rpcreplay: " << (*card).asic->product << " listens on "
            << tg::wire::FormatAddress((*server)->address()) << "\n";
  std::thread waiter([&signals, target = server->get()] {
    int signal = 0;
    while (sigwait(&signals, &signal) != 0) {
    }
    target->Stop();
  });

  const auto end = (*server)->Run();
  WriteReport(options, **gpu, (*server)->stats());
  std::cerr.flush();
  if (end == tg::sim::Server::End::kExit) _exit(0);
  // It may be inside Stop(), or still wait for a signal: this one.
  pthread_kill(waiter.native_handle(), SIGTERM);
  waiter.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Plays one side of the TinyGPU RPC without hardware.");
  app.set_version_flag("--version", TINYGPU_VERSION);
  app.require_subcommand(1);

  SimOptions sim;
  CLI::App* sim_command =
      app.add_subcommand("sim", "A TinyGPU server with a simulated AMD GPU behind it");
  sim_command
      ->add_option("--listen", sim.listen,
                   "Where: unix:/path or a path (TinyGPU.app's rules), tcp:host:port "
                   "(serve.py's rules)")
      ->capture_default_str();
  sim_command->add_option("--asic", sim.asic, "Which card: navi31 or navi48")
      ->capture_default_str();
  sim_command->add_option("--bar0", sim.bar0, "Size of BAR 0: full or 256M")->capture_default_str();
  sim_command->add_option("--hang", sim.hangs, HangHelp())->allow_extra_args(false);
  sim_command->add_option("--report", sim.report, "Write a JSON report here at the end");
  sim_command->add_flag("--once", sim.once, "End after the first client");
  sim_command->add_flag("--quiet", sim.quiet, "Print only where it listens");

  int exit_code = 0;
  tg::replay::AddServeCommand(app, exit_code);
  tg::client::AddClientCommand(app, exit_code);
  tg::replay::AddDriveCommand(app, exit_code);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kExitUsage;
  }
  return sim_command->parsed() ? RunSim(sim) : exit_code;
}
