// The socket that clients connect to. A real, named path: the client indexes getpeername(), and a
// refused connect makes it start TinyGPU.app on our path, which unlinks what is there. So: bound
// early, a large backlog, accepting at once, and watched for being replaced.
#pragma once

#include <sys/stat.h>
#include <uv.h>

#include <functional>
#include <memory>
#include <string>

#include "proxy/log.h"
#include "proxy/socket.h"
#include "schemas/result.h"
#include "schemas/wire/address.h"

namespace tg::proxy {

class Listener {
 public:
  // Binds (mode 0600) and listens. A stale socket file is removed, with a log line; a live one and
  // anything that is no socket is left alone: an error that names the owner. `address.port` 0
  // becomes the port given by the system.
  static Result<std::unique_ptr<Listener>> Open(const wire::Address& address, const LogFn& log);
  ~Listener();  // removes the socket file if it is still ours
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Calls `accepted` for each connection, from the loop. `replaced` is called once, within a
  // second, when the path leads to another socket or to none; text for the log and the trace.
  void Start(uv_loop_t* loop, std::function<void(UniqueFd)> accepted,
             std::function<void(std::string)> replaced);
  // Takes no more connections. Handles are closed by the loop.
  void Stop();

  const wire::Address& address() const { return address_; }

 private:
  Listener(wire::Address address, UniqueFd fd, LogFn log);
  void Accept();
  void CheckPath();
  bool Ours() const;

  wire::Address address_;
  UniqueFd fd_;
  LogFn log_;
  struct stat identity_ {};  // of the path, right after bind
  bool replaced_ = false;
  struct Handles;
  Handles* handles_ = nullptr;
  std::function<void(UniqueFd)> accepted_;
  std::function<void(std::string)> replaced_callback_;
};

// Who listens on a Unix path, from the system's tables: no connection is made.
struct PathOwner {
  bool known = false;            // the tables could be read
  bool listening = false;        // somebody listens there
  pid_t pid = 0;                 // 0: not known
  std::string name;              // of the process
  std::string Describe() const;  // "process 123 (TinyGPU)"
};
PathOwner FindPathOwner(const std::string& path);

}  // namespace tg::proxy
