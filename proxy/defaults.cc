#include "proxy/defaults.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

namespace tg::proxy {
namespace {

bool Usable(const std::string& directory) {
  struct stat st {};
  return !directory.empty() && ::stat(directory.c_str(), &st) == 0 && S_ISDIR(st.st_mode) &&
         ::access(directory.c_str(), W_OK | X_OK) == 0;
}

std::string Value(const EnvironmentFn& env, const char* name) {
  const char* value = env(name);
  return value ? value : "";
}

bool SameFile(const std::string& a, const std::string& b) {
  if (a == b) return true;
  struct stat sa {
  }, sb{};
  return ::stat(a.c_str(), &sa) == 0 && ::stat(b.c_str(), &sb) == 0 && sa.st_dev == sb.st_dev &&
         sa.st_ino == sb.st_ino;
}

}  // namespace

std::string TempDir(const EnvironmentFn& env) {
  for (const char* name : {"TMPDIR", "TEMP", "TMP"}) {
    std::string directory = Value(env, name);
    if (!Usable(directory)) continue;
    while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
    return directory;
  }
  for (const char* directory : {"/tmp", "/var/tmp", "/usr/tmp"})
    if (Usable(directory)) return directory;
  return ".";
}

wire::Address DefaultListen(const EnvironmentFn& env) {
  wire::Address address;
  address.path = TempDir(env) + "/rpcproxy.sock";
  return address;
}

Result<UpstreamChoice> DefaultUpstream(const EnvironmentFn& env,
                                       const std::optional<wire::Address>& listen) {
  UpstreamChoice choice;
  if (std::string remote = Value(env, "REMOTE"); !remote.empty()) {
    if (const size_t comma = remote.find(','); comma != remote.npos) {
      choice.notes.push_back("REMOTE names several hosts: only the first goes through this proxy");
      remote.resize(comma);
    }
    auto address = wire::ParseAddress("tcp:" + remote);
    if (!address) return tl::unexpected(std::move(address.error()));
    if (!listen || *listen != *address) {
      choice.address = *address;
      return choice;
    }
    choice.notes.push_back("REMOTE is where this proxy listens: not taken as the server");
  }
  if (const std::string path = Value(env, "APL_REMOTE_SOCK"); !path.empty()) {
    if (!listen || !listen->is_unix() || !SameFile(listen->path, path)) {
      auto address = wire::ParseAddress("unix:" + path);
      if (!address) return tl::unexpected(std::move(address.error()));
      choice.address = *address;
      return choice;
    }
    choice.notes.push_back("APL_REMOTE_SOCK is where this proxy listens: not taken as the server");
  }
  auto address = wire::ParseAddress("unix:" + TempDir(env) + "/tinygpu.sock");
  if (!address) return tl::unexpected(std::move(address.error()));
  choice.address = *address;
  return choice;
}

std::string DefaultApp() {
#ifdef __APPLE__
  static constexpr char kApp[] = "/Applications/TinyGPU.app/Contents/MacOS/TinyGPU";
  if (::access(kApp, X_OK) == 0) return kApp;
#endif
  return {};
}

std::vector<std::string> DangerousArguments(int argc, const char* const* argv) {
  std::vector<std::string> found;
  for (int i = 0; i < argc; i++) {
    const std::string_view argument = argv[i];
    if (argument.find("TinyGPU") != argument.npos || argument.find("tinygpu.sock") != argument.npos)
      found.emplace_back(argument);
  }
  return found;
}

}  // namespace tg::proxy
