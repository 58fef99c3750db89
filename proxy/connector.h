// Gets a connection to the server: tries as the client itself would (100 times, 50 ms apart), and
// starts TinyGPU.app on the upstream path after the first refusal if it was told where the app is.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>
#include <string>

#include "proxy/log.h"
#include "proxy/socket.h"
#include "schemas/result.h"
#include "schemas/wire/address.h"

namespace tg::proxy {

struct ConnectOptions {
  wire::Address upstream;
  std::string app;       // executable of the app; empty: never started
  int tries = 100;       // with the app; 50 ms apart
  int tries_alone = 20;  // without
};

class Connector {
 public:
  using Done = std::function<void(Result<UniqueFd>)>;
  // `note` gets one line for the trace when the app is started.
  Connector(uv_loop_t* loop, const ConnectOptions& options, LogFn log,
            std::function<void(std::string)> note);
  ~Connector();  // gives up silently; the loop closes what is left
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Calls `done` once, possibly from within; the connector may be deleted in it.
  void Start(Done done);

 private:
  void Try();
  void StopPolling();
  void Connected(int error);
  void Failed(int error, const std::string& problem);
  void StartApp();

  uv_loop_t* const loop_;
  const ConnectOptions options_;
  LogFn log_;
  std::function<void(std::string)> note_;
  Done done_;
  // Owned by the loop from uv_close() on.
  uv_timer_t* timer_ = nullptr;
  uv_poll_t* poll_ = nullptr;
  UniqueFd pending_;
  int tried_ = 0;
  bool app_started_ = false;
};

}  // namespace tg::proxy
