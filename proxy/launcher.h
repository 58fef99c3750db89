// `rpcproxy run -- CMD`: the child, its signals and its exit status.
#pragma once

#include <uv.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "proxy/log.h"
#include "schemas/result.h"

namespace tg::proxy {

class Launcher {
 public:
  Launcher(uv_loop_t* loop, LogFn log) : loop_(loop), log_(std::move(log)) {}
  // Starts `command` with our standard streams and environment plus `environment`; a pair with an
  // empty value removes that variable. `exited` gets what a shell would report: the status, or
  // 128 + signal. An error's exit code: see StartFailureStatus.
  Result<void> Start(const std::vector<std::string>& command,
                     const std::vector<std::pair<std::string, std::string>>& environment,
                     std::function<void(int)> exited);
  // Passes a signal on. A SIGINT or SIGQUIT from the keyboard reached the child already, as it is
  // in our process group: not sent twice.
  void Forward(int signal);
  bool running() const { return process_ != nullptr; }
  int pid() const { return process_ ? uv_process_get_pid(process_) : 0; }
  // 127 when the command was not found, else 126, as shells have it.
  int start_failure_status() const { return failure_status_; }

 private:
  uv_loop_t* const loop_;
  LogFn log_;
  uv_process_t* process_ = nullptr;  // the loop's once it has exited
  std::function<void(int)> exited_;
  int failure_status_ = 126;
};

}  // namespace tg::proxy
