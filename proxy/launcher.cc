#include "proxy/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

extern char** environ;

namespace tg::proxy {
namespace {

// True when our process group is in the foreground of a terminal: the keyboard's signals go to all
// of the group.
bool InForeground() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const pid_t group = ::tcgetpgrp(fd);
    if (group > 0) return group == ::getpgrp();
  }
  return false;
}

}  // namespace

Result<void> Launcher::Start(const std::vector<std::string>& command,
                             const std::vector<std::pair<std::string, std::string>>& environment,
                             std::function<void(int)> exited) {
  exited_ = std::move(exited);
  std::vector<std::string> variables;
  for (char** e = environ; *e; e++) {
    const std::string_view entry = *e;
    const bool replaced = std::any_of(environment.begin(), environment.end(), [&](const auto& v) {
      return entry.starts_with(v.first) && entry.substr(v.first.size()).starts_with('=');
    });
    if (!replaced) variables.emplace_back(entry);
  }
  for (const auto& [name, value] : environment)
    if (!value.empty()) variables.push_back(name + "=" + value);

  std::vector<std::string> words = command;
  std::vector<char*> args, env;
  for (std::string& word : words) args.push_back(word.data());
  args.push_back(nullptr);
  for (std::string& variable : variables) env.push_back(variable.data());
  env.push_back(nullptr);

  uv_stdio_container_t stdio[3] = {};
  for (int i = 0; i < 3; i++) {
    stdio[i].flags = UV_INHERIT_FD;
    stdio[i].data.fd = i;
  }
  uv_process_options_t options{};
  options.file = args[0];
  options.args = args.data();
  options.env = env.data();
  options.stdio = stdio;
  options.stdio_count = 3;
  options.exit_cb = [](uv_process_t* process, int64_t status, int signal) {
    auto* self = static_cast<Launcher*>(process->data);
    self->process_ = nullptr;
    uv_close(reinterpret_cast<uv_handle_t*>(process),
             [](uv_handle_t* handle) { delete reinterpret_cast<uv_process_t*>(handle); });
    self->exited_(signal > 0 ? 128 + signal : static_cast<int>(status));
  };
  process_ = new uv_process_t;
  process_->data = this;
  const int rc = uv_spawn(loop_, process_, &options);
  if (rc == 0) return {};
  uv_close(reinterpret_cast<uv_handle_t*>(process_),
           [](uv_handle_t* handle) { delete reinterpret_cast<uv_process_t*>(handle); });
  process_ = nullptr;
  failure_status_ = rc == UV_ENOENT ? 127 : 126;
  return Fail(Error::Code::kNotFound,
              "cannot run " + Printable(command[0]) + ": " + uv_strerror(rc));
}

void Launcher::Forward(int signal) {
  if (!process_) return;
  if ((signal == SIGINT || signal == SIGQUIT) && InForeground()) return;
  uv_process_kill(process_, signal);
}

}  // namespace tg::proxy
