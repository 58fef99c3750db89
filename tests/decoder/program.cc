#include "tests/decoder/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tests/decoder/wire_trace.h"

namespace tg::testing {

namespace {

[[noreturn]] void Execute(const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(RPCDECODE)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(RPCDECODE, argv.data());
  _exit(127);
}

}  // namespace

ProgramResult RunDecoder(const std::vector<std::string>& arguments) {
  const std::string out = TempFile("stdout"), err = TempFile("stderr");
  const pid_t pid = fork();
  if (pid == 0) {
    const int out_fd = open(out.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    const int err_fd = open(err.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(out_fd, STDOUT_FILENO);
    dup2(err_fd, STDERR_FILENO);
    Execute(arguments);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(out), ReadFile(err)};
}

ProgramResult RunDecoderOnTerminal(
    const std::vector<std::string>& arguments,
    const std::vector<std::pair<std::string, std::string>>& environment, int columns) {
  ProgramResult result;
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
    ADD_FAILURE() << "no pseudo-terminal";
    return result;
  }
  const std::string name = ptsname(master);
  // Kept open here until the program has ended: on some systems what it wrote is gone otherwise.
  const int slave = open(name.c_str(), O_RDWR | O_NOCTTY);
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 50;
  ioctl(slave, TIOCSWINSZ, &size);
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(slave, fd);
    close(master);
    close(slave);
    unsetenv("PAGER");
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    for (const auto& [variable, value] : environment) setenv(variable.c_str(), value.c_str(), 1);
    Execute(arguments);
  }
  fcntl(master, F_SETFL, O_NONBLOCK);
  int status = 0;
  for (bool ended = false;;) {
    char bytes[4096];
    const ssize_t got = read(master, bytes, sizeof bytes);
    if (got > 0) {
      result.out.append(bytes, static_cast<size_t>(got));
      continue;
    }
    if (ended) break;
    ended = waitpid(pid, &status, WNOHANG) == pid;
    if (!ended) usleep(1000);
  }
  close(slave);
  close(master);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace tg::testing
