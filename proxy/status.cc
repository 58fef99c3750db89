#include "proxy/status.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "proxy/log.h"
#include "proxy/platform.h"

namespace tg::proxy {
namespace {

// tinygrad's ensure_app() wants both; the release pinned since 2026-03-31 (tinygrad a9069c17).
constexpr char kAppPath[] = "/Applications/TinyGPU.app/Contents/MacOS/TinyGPU";
constexpr char kAppArchive[] = "TinyGPU_c0d024f9ff0e1dc8fdf217f255da7101d91e8323.zip";
constexpr char kAppName[] = "TinyGPU";
#ifdef __APPLE__
constexpr char kCacheInHome[] = "/Library/Caches";
#else
constexpr char kCacheInHome[] = "/.cache";
#endif

bool Exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

std::string RealPath(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (!resolved) return path;
  std::string out = resolved;
  std::free(resolved);
  return out;
}

std::vector<ProcessInfo> Describe(const std::vector<pid_t>& pids) {
  std::vector<ProcessInfo> out;
  for (const pid_t pid : pids) out.push_back({pid, ProcessName(pid)});
  return out;
}

EndpointInfo LookAt(const wire::Address& address, bool readable,
                    const std::vector<UnixSocket>& sockets) {
  EndpointInfo info;
  info.address = address;
  if (!address.is_unix()) return info;
  info.known = readable;
  info.file_exists = Exists(address.path);
  const std::string real = RealPath(address.path);
  for (const UnixSocket& socket : sockets) {
    if (socket.path.empty() || (socket.path != address.path && RealPath(socket.path) != real))
      continue;
    if (socket.listening) {
      // One whose file is gone is still in the tables; nobody can reach it.
      info.listening = info.file_exists;
      if (info.owners.empty()) info.owners = Describe(socket.holders);
      continue;
    }
    ConnectionInfo connection;
    connection.server = Describe(socket.holders);
    const auto peer = std::find_if(sockets.begin(), sockets.end(), [&](const UnixSocket& other) {
      return socket.peer != 0 && other.id == socket.peer;
    });
    if (peer != sockets.end()) connection.client = Describe(peer->holders);
    info.connections.push_back(std::move(connection));
  }
  return info;
}

std::string Names(const std::vector<ProcessInfo>& processes, const char* nobody) {
  std::string text;
  for (const ProcessInfo& process : processes) {
    if (!text.empty()) text += ", ";
    text += process.name.empty()
                ? fmt::format("pid {}", process.pid)
                : fmt::format("{} (pid {})", Printable(process.name, 64), process.pid);
  }
  return text.empty() ? nobody : text;
}

void AddEndpoint(std::string& text, const char* title, const EndpointInfo& info) {
  text += fmt::format("{:<8}{}: ", title, wire::FormatAddress(info.address));
  if (!info.known) {
    text +=
        info.address.is_unix() ? "the system's tables cannot be read\n" : "TCP, not looked at\n";
    return;
  }
  if (info.listening)
    text += "listening, " + Names(info.owners, "owner not visible to this user") + "\n";
  else
    text += info.file_exists ? "nobody listens; the file is stale\n" : "nobody listens\n";
  for (const ConnectionInfo& connection : info.connections)
    text +=
        fmt::format("        connected: {} -> {}\n", Names(connection.client, "client not visible"),
                    Names(connection.server, "not accepted yet"));
}

nlohmann::json Json(const std::vector<ProcessInfo>& processes) {
  auto list = nlohmann::json::array();
  for (const ProcessInfo& process : processes)
    list.push_back({{"pid", process.pid}, {"name", Printable(process.name, 64)}});
  return list;
}

nlohmann::json Json(const EndpointInfo& info) {
  nlohmann::json out = {{"address", wire::FormatAddress(info.address)}};
  const auto unless_unknown = [&](bool value) {
    return info.known ? nlohmann::json(value) : nlohmann::json(nullptr);
  };
  out["listening"] = unless_unknown(info.listening);
  out["stale_file"] = unless_unknown(info.file_exists && !info.listening);
  out["owners"] = Json(info.owners);
  out["connections"] = nlohmann::json::array();
  for (const ConnectionInfo& connection : info.connections)
    out["connections"].push_back(
        {{"client", Json(connection.client)}, {"server", Json(connection.server)}});
  return out;
}

}  // namespace

StatusReport GatherStatus(const wire::Address& listen, const wire::Address& upstream,
                          const EnvironmentFn& env) {
  StatusReport report;
  std::vector<UnixSocket> sockets;
  const bool readable = ListUnixSockets(sockets);
  report.proxy = LookAt(listen, readable, sockets);
  report.server = LookAt(upstream, readable, sockets);
  for (const char* name : {"am_usb4.lock", "nv_usb4.lock"}) {
    LockInfo lock;
    lock.path = TempDir(env) + "/" + name;
    const LockState state = LookAtLock(lock.path);
    lock.exists = state.exists;
    lock.known = state.known;
    lock.held = state.held;
    if (state.pid > 0) lock.holder = {state.pid, ProcessName(state.pid)};
    report.locks.push_back(std::move(lock));
  }
  report.app_path = kAppPath;
  report.app_exists = Exists(kAppPath);
  const char* cache = env("XDG_CACHE_HOME");
  const char* home = env("HOME");
  report.app_archive =
      (cache && *cache ? std::string(cache) : (home ? home : "") + std::string(kCacheInHome)) +
      "/tinygrad/downloads/" + kAppArchive;
  report.app_archive_exists = Exists(report.app_archive);
  report.app_processes = Describe(FindProcesses(kAppName));
  return report;
}

std::string StatusText(const StatusReport& report) {
  std::string text;
  AddEndpoint(text, "proxy", report.proxy);
  AddEndpoint(text, "server", report.server);
  for (const LockInfo& lock : report.locks) {
    text += fmt::format("{:<8}{}: ", "lock", lock.path);
    if (!lock.exists)
      text += "no such file\n";
    else if (!lock.known)
      text += "the system does not say whether it is held\n";
    else if (!lock.held)
      text += "free\n";
    else
      text += "held by " +
              (lock.holder.pid > 0 ? Names({lock.holder}, "") : std::string("another process")) +
              "\n";
  }
  text += fmt::format("{:<8}{}: {}\n", "app", report.app_path,
                      report.app_exists ? "installed" : "not installed");
  text +=
      fmt::format("{:<8}{}: {}\n", "", report.app_archive,
                  report.app_archive_exists ? "cached" : "not cached (tinygrad would download it)");
  text += fmt::format("{:<8}running: {}\n", "", Names(report.app_processes, "no"));
  return text;
}

std::string StatusJson(const StatusReport& report) {
  nlohmann::json out = {
      {"schema", 1}, {"proxy", Json(report.proxy)}, {"server", Json(report.server)}};
  out["locks"] = nlohmann::json::array();
  for (const LockInfo& lock : report.locks) {
    nlohmann::json entry = {{"path", lock.path}, {"exists", lock.exists}};
    entry["held"] =
        lock.exists && !lock.known ? nlohmann::json(nullptr) : nlohmann::json(lock.held);
    entry["pid"] = lock.holder.pid > 0 ? nlohmann::json(lock.holder.pid) : nlohmann::json(nullptr);
    out["locks"].push_back(std::move(entry));
  }
  out["app"] = {{"path", report.app_path},
                {"installed", report.app_exists},
                {"archive", report.app_archive},
                {"archive_cached", report.app_archive_exists},
                {"processes", Json(report.app_processes)}};
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tg::proxy
