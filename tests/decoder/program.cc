#include "tests/decoder/program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/decoder/wire_trace.h"

namespace tg::testing {

ProgramResult RunDecoder(const std::vector<std::string>& arguments) {
  const std::string out = TempFile("stdout"), err = TempFile("stderr");
  const pid_t pid = fork();
  if (pid == 0) {
    const int out_fd = open(out.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    const int err_fd = open(err.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(out_fd, STDOUT_FILENO);
    dup2(err_fd, STDERR_FILENO);
    std::vector<char*> argv = {const_cast<char*>(RPCDECODE)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(RPCDECODE, argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(out), ReadFile(err)};
}

}  // namespace tg::testing
