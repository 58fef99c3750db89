#include "replay/serve/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "replay/exit_code.h"
#include "replay/net/socket.h"
#include "replay/script/script.h"
#include "replay/script/survey.h"
#include "replay/serve/engine.h"
#include "replay/serve/player.h"
#include "replay/serve/server.h"
#include "replay/serve/shadow.h"
#include "schemas/wire/address.h"

namespace tg::replay {
namespace {

struct Options {
  std::string trace;
  std::string listen;
  std::string mode = "strict";
  std::string polls;  // by mode
  std::string on_divergence = "stop";
  uint64_t at = 0;
  uint32_t connection = 0;
  bool replace = false;
  bool partial = false;
  bool recorded_memory = false;
  bool loop = false;
  double idle_timeout = 300;
  double accept_timeout = 0;
  unsigned silence_ms = 20;
};

void Say(const std::string& text) {
  fmt::print(stderr, "rpcreplay: {}\n", text);
}

// `text` is several lines: the first after the name, the others as they are.
int Quit(int code, const std::string& text) {
  Say(text);
  return code;
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

class ServeCommand {
 public:
  explicit ServeCommand(const Options& options) : options_(options) {}

  int Run() {
    const Result<wire::Address> address = wire::ParseAddress(options_.listen);
    if (!address) return Quit(kExitUsage, address.error().message);
    auto script = Script::FromFile(options_.trace);
    if (!script) return Quit(kExitUnreadable, script.error().message);
    survey_ = Examine(**script);
    if (const int code = Check(*address); code != kExitOk) return code;
    if (survey_.regions > 0 && options_.mode != "state") {
      auto reader = trace::TraceReader::Open(options_.trace);
      if (!reader) return Quit(kExitUnreadable, reader.error().message);
      words_ = DeviceWords::Read(**reader);
    }
    Result<Listener> listener = Listener::Open(*address, options_.replace);
    if (!listener)
      return Quit(listener.error().code == Error::Code::kUsage ? kExitUsage : kExitUnreadable,
                  listener.error().message);
    Say(fmt::format("serving {} ({} calls, {} connection{}) on {}", options_.trace, survey_.calls,
                    survey_.connection_count, survey_.connection_count == 1 ? "" : "s",
                    wire::FormatAddress(listener->address())));
    int code = kExitOk;
    do {
      code = Play(*listener);
    } while (options_.loop && (code == kExitOk || code == kExitDiverged));
    return code;
  }

 private:
  // Everything that would only come out in the middle is said here.
  int Check(const wire::Address& address) {
    const Survey& s = survey_;
    const bool state = options_.mode == "state";
    if (s.calls == 0) return Quit(kExitLacking, options_.trace + " holds no calls");
    for (const std::string& gap : s.gaps) Say("gap " + gap);
    if (s.gap_count > s.gaps.size())
      Say(fmt::format("and {} more gaps", s.gap_count - s.gaps.size()));
    if (!s.whole_file)
      Say(fmt::format("the trace was not closed cleanly ({}): its last call is #{}", s.end_text,
                      s.calls));
    if (s.raw_after)
      Say(fmt::format("the stream lost its framing after call #{}: it can be played up to there",
                      *s.raw_after));
    if (s.revision == wire::Revision::kR1)
      Say("the trace is of the older protocol (26-byte headers, before 2026-03-16): only a client "
          "of that age can talk to this server");
    if (const std::string& transport = s.connections.front().transport; !transport.empty())
      if ((transport == "unix") != address.is_unix())
        Say(fmt::format("the trace is of a {} session: a client will hardly ask the same over {}",
                        transport, wire::FormatAddress(address)));
    if (state) return kExitOk;

    int code = kExitOk;
    if (s.bodies.count > 0) {
      Say(
          fmt::format("{} replies were recorded without their data, so they cannot be served.\n"
                      "  first: {}\n  body policy of this trace: {}\n"
                      "  record again with: rpcproxy --bodies full",
                      s.bodies.count, s.bodies.example,
                      s.body_policy.empty() ? "not recorded" : s.body_policy));
      code = kExitLacking;
    }
    if (s.breaks) {
      Say(fmt::format("calls are missing after #{}: the recording can be played up to there",
                      s.first_break));
      code = kExitLacking;
    }
    if (s.unmapped.count > 0 && options_.mode == "strict") {
      Say(
          fmt::format("the DMA addresses of {} regions are not in the trace, and a client needs "
                      "them.\n  first: {}\n  --mode lenient makes some up",
                      s.unmapped.count, s.unmapped.example));
      code = kExitLacking;
    }
    if (code == kExitOk || !options_.partial) {
      if (code != kExitOk) Say("not started; --partial plays what is there");
      return code;
    }
    return kExitOk;
  }

  std::unique_ptr<Responder> MakeResponder() {
    auto script = Script::FromFile(options_.trace);
    if (!script) return nullptr;
    if (options_.mode == "state") return std::make_unique<ShadowServer>(**script, options_.at);
    PlayerOptions player;
    player.map_addresses = options_.mode == "lenient";
    player.any_polls = options_.polls.empty() ? player.map_addresses : options_.polls == "any";
    std::unique_ptr<Engine> engine;
    if (!options_.recorded_memory) {
      auto reader = trace::TraceReader::Open(options_.trace);
      if (!reader) return nullptr;
      engine = std::make_unique<Engine>(std::move(*reader), words_);
    }
    return std::make_unique<Player>(std::move(*script), survey_, player, std::move(engine));
  }

  int Play(Listener& listener) {
    const std::unique_ptr<Responder> responder = MakeResponder();
    if (!responder) return Quit(kExitUnreadable, options_.trace + " cannot be read any more");
    ServerOptions server;
    server.revision =
        survey_.revision == wire::Revision::kR1 ? wire::Revision::kR1 : wire::Revision::kR2;
    server.answer_divergence = options_.on_divergence == "error";
    server.silence = std::chrono::milliseconds(options_.silence_ms);
    server.idle_timeout = Milliseconds(options_.idle_timeout);
    int worst = kExitOk;
    for (uint32_t ordinal = 1; responder->Connect(); ordinal++) {
      if (options_.connection != 0 && ordinal < options_.connection) continue;
      if (options_.connection != 0 && ordinal > options_.connection) break;
      UniqueFd client;
      const Transfer accepted =
          listener.Accept(client, Deadline::InOrNever(Milliseconds(options_.accept_timeout)));
      if (accepted.end == Transfer::End::kInterrupted) return kExitInterrupted;
      if (accepted.end == Transfer::End::kTimeout)
        return Quit(kExitSilent,
                    fmt::format("no client came within {} s", options_.accept_timeout));
      if (!accepted.ok()) return Quit(kExitUnreadable, "accept: " + accepted.problem);
      const Served served =
          ServeClient(client.get(), listener.address().is_unix(), *responder, server, Say);
      const int code = Report(served, *responder);
      if (code != kExitOk && worst == kExitOk) worst = code;
      const bool over =
          served.kind == Served::Kind::kInterrupted || served.kind == Served::Kind::kLacking;
      if (over || (code != kExitOk && !server.answer_divergence && options_.mode != "state")) break;
      if (options_.mode == "state" && !options_.loop) break;
    }
    return worst;
  }

  int Report(const Served& served, const Responder& responder) {
    std::string counts =
        fmt::format("{} requests, {} recorded calls played", served.requests, responder.played());
    if (const auto* player = dynamic_cast<const Player*>(&responder)) {
      if (player->extra_polls() > 0)
        counts += fmt::format(", {} polls more than recorded", player->extra_polls());
      if (player->skipped_polls() > 0) counts += fmt::format(", {} fewer", player->skipped_polls());
      if (player->early_words() > 0)
        counts += fmt::format(", {} words of shared memory brought forward", player->early_words());
      if (const Engine* engine = player->engine()) {
        if (engine->packets() > 0)
          counts +=
              fmt::format(", {} packets of the client's rings carried out", engine->packets());
        if (engine->unknown_bytes() > 0)
          counts += fmt::format(" ({} bytes to copy were not known)", engine->unknown_bytes());
        if (engine->stuck_call() > 0)
          counts += fmt::format("; as in the recording, the device hung on doorbell #{}",
                                engine->stuck_call());
      }
      if (player->mapped_addresses() > 0)
        counts += fmt::format(", {} addresses mapped", player->mapped_addresses());
    }
    if (const auto* shadow = dynamic_cast<const ShadowServer*>(&responder))
      counts = fmt::format("{} requests answered from the state after call #{}, {} refused",
                           served.requests, shadow->last_call(), shadow->refused());
    int code = kExitOk;
    switch (served.kind) {
      case Served::Kind::kFinished:
        Say(fmt::format("client done: {}{}{}", counts, served.text.empty() ? "" : "; ",
                        served.text));
        return kExitOk;
      case Served::Kind::kDiverged:
      case Served::Kind::kLeftEarly:
        code = kExitDiverged;
        break;
      case Served::Kind::kLacking:
        code = kExitLacking;
        break;
      case Served::Kind::kSilent:
        code = kExitSilent;
        break;
      case Served::Kind::kInterrupted:
        code = kExitInterrupted;
        break;
      case Served::Kind::kFailed:
        code = kExitUnreadable;
        break;
    }
    Say(served.text);
    const std::vector<std::string> history = responder.History();
    fmt::print(stderr, "  last {} events before that:\n", history.size());
    for (const std::string& line : history) fmt::print(stderr, "    {}\n", line);
    Say(counts);
    return code;
  }

  const Options& options_;
  Survey survey_;
  DeviceWords words_;
};

void OnSignal(int) {
  Deadline::interrupt.store(true, std::memory_order_relaxed);
}

}  // namespace

void AddServeCommand(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* serve = app.add_subcommand(
      "serve", "Play the server of a trace: answer a client as the recorded one was answered");
  serve->add_option("trace", options->trace, "Trace recorded with rpcproxy --bodies full")
      ->required();
  serve->add_option("--listen,-l", options->listen, "unix:/path, a bare path, or tcp:host:port")
      ->required();
  serve
      ->add_option("--mode,-m", options->mode,
                   "strict: the recorded requests, in their order. lenient: polls may come more or "
                   "less often, addresses of the client's own may differ consistently. state: "
                   "any request, answered from what registers and memory last held")
      ->check(CLI::IsMember({"strict", "lenient", "state"}))
      ->capture_default_str();
  serve
      ->add_option("--polls", options->polls,
                   "exact (default with strict) or any (default with lenient): may the number of "
                   "polls differ")
      ->check(CLI::IsMember({"exact", "any"}));
  serve->add_option("--at", options->at,
                    "With --mode state: the state after this call (default: the last)");
  serve->add_option("--connection", options->connection,
                    "Play only the n-th connection of the trace, from 1");
  serve
      ->add_option("--on-divergence", options->on_divergence,
                   "stop: report and hang up. error: report, answer with an error text, go on")
      ->check(CLI::IsMember({"stop", "error"}))
      ->capture_default_str();
  serve->add_flag("--partial", options->partial,
                  "Start although data or calls are missing, and stop where the first is");
  serve->add_flag("--recorded-memory", options->recorded_memory,
                  "Do not carry out the packets of the client's rings (fences, copies): shared "
                  "memory changes only as the trace shows it");
  serve->add_flag("--loop", options->loop, "Begin again after the end");
  serve->add_flag("--replace", options->replace, "Remove an existing socket file first");
  serve
      ->add_option("--idle-timeout", options->idle_timeout,
                   "Seconds a client may be silent; 0 for ever")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  serve
      ->add_option("--accept-timeout", options->accept_timeout,
                   "Seconds to wait for a client; 0 for ever")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  serve
      ->add_option("--silence-ms", options->silence_ms,
                   "A client silent for so long is waiting: give it the next recorded contents of "
                   "shared memory")
      ->check(CLI::Range(1, 60'000))
      ->capture_default_str();
  serve->callback([options, &exit_code] {
    std::signal(SIGINT, OnSignal);
    std::signal(SIGTERM, OnSignal);
    std::signal(SIGPIPE, SIG_IGN);
    exit_code = ServeCommand(*options).Run();
  });
}

}  // namespace tg::replay
