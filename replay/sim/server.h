// The listening socket in front of the card: takes one client at a time, as both real servers do. A
// second one is accepted by the system, waits, and is served when the first has gone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "replay/sim/gpu.h"
#include "replay/sim/link.h"
#include "replay/sim/protocol.h"
#include "schemas/result.h"
#include "schemas/unique_fd.h"
#include "schemas/wire/address.h"

namespace tg::sim {

struct ServerOptions {
  wire::Address listen;
  bool once = false;                            // stop after the first client
  std::function<void(const std::string&)> log;  // may be empty
};

class Server {
 public:
  // Binds and listens: clients can connect from here on. What stands at a Unix path is replaced.
  static Result<std::unique_ptr<Server>> Listen(Gpu& gpu, ServerOptions options);
  ~Server();

  enum class End : uint8_t {
    kStopped,
    kOnce,
    kExit,  // --hang exit: the process should end now and leave the socket's file
  };
  // Serves until Stop() or the end that the options ask for.
  End Run();
  // From any thread.
  void Stop();

  // Where it listens; the port that was given for tcp port 0.
  const wire::Address& address() const { return options_.listen; }
  const ServerStats& stats() const { return protocol_->stats(); }

 private:
  Server(Gpu& gpu, ServerOptions options);
  Result<void> ListenUnix();
  Result<void> ListenTcp();
  // The next client, or nothing when it is time to stop.
  UniqueFd Accept();
  void Log(const std::string& text) const;

  Gpu& gpu_;
  ServerOptions options_;
  std::unique_ptr<Protocol> protocol_;
  UniqueFd listener_;
  UniqueFd wake_read_, wake_write_;
  UniqueFd abandoned_;  // TCP: a client that is served no more, not closed yet
  std::mutex mutex_;
  int client_ = -1;  // guarded: what Stop() has to shut down
  std::atomic<bool> stop_{false};
  bool keep_file_ = false;
};

}  // namespace tg::sim
