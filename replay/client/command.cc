#include "replay/client/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "replay/client/rpc_port.h"
#include "replay/client/session.h"
#include "replay/exit_code.h"

namespace tg::client {
namespace {

struct Options {
  std::string connect;
  std::vector<uint64_t> sizes{1 << 20};
  uint32_t repeat = 4;
  uint32_t barriers = 1;
  uint32_t timeout_ms = 30'000;
  bool full_boot = false;
};

// Where tinygrad would look: REMOTE, else APL_REMOTE_SOCK.
std::string DefaultAddress() {
  if (const char* remote = std::getenv("REMOTE"); remote && *remote)
    return std::string("tcp:") + remote;
  if (const char* path = std::getenv("APL_REMOTE_SOCK"); path && *path)
    return std::string("unix:") + path;
  return "";
}

// No two pages alike.
std::vector<uint8_t> Pattern(uint64_t size, uint64_t seed) {
  std::vector<uint8_t> data(size);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (uint8_t& byte : data) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<uint8_t>(state);
  }
  return data;
}

class Work {
 public:
  explicit Work(const Options& options) : options_(options) {}

  int Run() {
    auto address = wire::ParseAddress(options_.connect);
    if (!address) return Fail(address.error(), replay::kExitUsage);
    auto port = ConnectPort(*address, {});
    if (!port) {
      const bool usage = port.error().code == Error::Code::kUsage;
      return Fail(port.error(), usage ? replay::kExitUsage : replay::kExitUnreadable);
    }
    SessionOptions session_options;
    session_options.force_full_boot = options_.full_boot;
    session_options.wait_timeout = std::chrono::milliseconds(options_.timeout_ms);
    const auto began = std::chrono::steady_clock::now();
    auto session = Session::Open(**port, session_options);
    if (!session) return Fail(session.error(), replay::kExitUnreadable);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    fmt::print("{}: {} boot in {:.2f} s\n", (*session)->arch(),
               (*session)->partial_boot() ? "partial" : "full", took.count());
    const int worked = Copies(**session);
    auto closed = (*session)->Close();
    if (worked != replay::kExitOk) return worked;
    return closed ? replay::kExitOk : Fail(closed.error(), replay::kExitDiverged);
  }

 private:
  int Copies(Session& session) {
    for (uint64_t size : options_.sizes) {
      auto buffer = session.Allocate(size);
      if (!buffer) return Fail(buffer.error(), replay::kExitUnreadable);
      for (uint32_t i = 0; i < options_.repeat; i++) {
        const std::vector<uint8_t> data = Pattern(size, size + i);
        std::vector<uint8_t> back(size);
        auto moved = session.CopyIn(*buffer, data);
        if (moved) moved = session.CopyOut(*buffer, back);
        if (!moved) return Fail(moved.error(), replay::kExitDiverged);
        if (back != data) {
          fmt::print("{} bytes came back wrong\n", size);
          return replay::kExitDiverged;
        }
      }
      fmt::print("{} x {} bytes up and down: the same\n", options_.repeat, size);
    }
    for (uint32_t i = 0; i < options_.barriers; i++)
      if (auto done = session.Barrier(); !done) return Fail(done.error(), replay::kExitDiverged);
    if (options_.barriers) fmt::print("{} barriers on the compute queue\n", options_.barriers);
    return replay::kExitOk;
  }

  static int Fail(const Error& error, int code) {
    fmt::print(stderr, "rpcreplay client: {}\n", error.message);
    return code;
  }

  const Options& options_;
};

}  // namespace

void AddClientCommand(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "client", "Boots a simulated card, copies and waits, as tinygrad does (no real card)");
  auto options = std::make_shared<Options>();
  options->connect = DefaultAddress();
  command
      ->add_option("--connect", options->connect,
                   "Server: unix:/path or tcp:host:port; default: $REMOTE or $APL_REMOTE_SOCK")
      ->required(options->connect.empty());
  command->add_option("--copy", options->sizes, "Sizes to copy up and down, in bytes")
      ->check(CLI::Range(1ull, 1ull << 32))
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "How often each")->capture_default_str();
  command->add_option("--barriers", options->barriers, "Barriers on the compute queue")
      ->capture_default_str();
  command->add_option("--timeout-ms", options->timeout_ms, "How long to wait without progress")
      ->capture_default_str();
  command->add_flag("--full-boot", options->full_boot,
                    "Boot in full whatever state the card is in");
  command->callback([options, &exit_code] { exit_code = Work(*options).Run(); });
}

}  // namespace tg::client
