#include "proxy/status.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
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
// How RemotePCIDevice takes dev_id from the name it is given (tinygrad, system.py).
constexpr char kDevIdText[] =
    "over TinyGPU.app always 0: tinygrad calls the device \"usb4\" there, whatever its place on "
    "the "
    "bus, and takes what stands behind a ':'; over TCP it is the number that PROBE gave out";
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

// Addresses of this host as numbers: its interfaces', and those that mean "here" or "all of them".
bool IsHere(const std::string& host) {
  if (host == "localhost" || host == "0.0.0.0" || host == "::" || host.empty()) return true;
  if (host.starts_with("127.") || host == "::1") return true;
  bool found = false;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  for (const ifaddrs* i = list; i && !found; i = i->ifa_next) {
    char text[INET6_ADDRSTRLEN] = {};
    if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET)
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text,
                  sizeof text);
    if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET6)
      ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr, text,
                  sizeof text);
    found = host == text;
  }
  ::freeifaddrs(list);
  return found;
}

// A name is not resolved (that would ask a server): its port has to do.
bool SameHost(const std::string& wanted, const std::string& address) {
  in6_addr unused;
  const bool number = ::inet_pton(AF_INET, wanted.c_str(), &unused) == 1 ||
                      ::inet_pton(AF_INET6, wanted.c_str(), &unused) == 1;
  return !number || wanted == address || wanted == "0.0.0.0" || wanted == "::";
}

EndpointInfo LookAtTcp(const wire::Address& address, bool readable,
                       const std::vector<TcpSocket>& sockets) {
  EndpointInfo info;
  info.address = address;
  info.known = readable;
  info.elsewhere = !IsHere(address.host);
  for (const TcpSocket& socket : sockets) {
    if (info.elsewhere) {
      if (!socket.listening && socket.remote_port == address.port &&
          SameHost(address.host, socket.remote)) {
        ConnectionInfo connection;
        connection.client = Describe(socket.holders);
        info.connections.push_back(std::move(connection));
      }
      continue;
    }
    if (socket.local_port != address.port) continue;
    if (socket.listening) {
      const bool all = socket.local == "0.0.0.0" || socket.local == "::";
      if (!all && !SameHost(address.host, socket.local)) continue;
      info.listening = true;
      if (info.owners.empty()) info.owners = Describe(socket.holders);
      continue;
    }
    ConnectionInfo connection;
    connection.server = Describe(socket.holders);
    for (const TcpSocket& other : sockets)
      if (!other.listening && other.local_port == socket.remote_port &&
          other.remote_port == socket.local_port && other.local == socket.remote)
        connection.client = Describe(other.holders);
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
    text += "the system's tables cannot be read\n";
    return;
  }
  if (info.elsewhere)
    text += "on another host: whether it listens is not seen from here\n";
  else if (info.listening)
    text += "listening, " + Names(info.owners, "owner not visible to this user") + "\n";
  else
    text += info.file_exists ? "nobody listens; the file is stale\n" : "nobody listens\n";
  for (const ConnectionInfo& connection : info.connections)
    text +=
        fmt::format("        connected: {} -> {}\n", Names(connection.client, "client not visible"),
                    Names(connection.server, info.elsewhere ? "there" : "not accepted yet"));
}

void AddDriver(std::string& text, const DriverServiceReport& driver) {
  if (!driver.applies) return;
  text += fmt::format("{:<8}", "driver");
  if (!driver.known)
    text += "not known: " + driver.problem + "\n";
  else if (driver.present)
    text += "the driver extension's service is there\n";
  else
    text +=
        "the driver extension's service is not there: TinyGPU.app answers \"Driver not "
        "available\". Is the GPU listed below, and the extension allowed (System Settings > "
        "Privacy & Security)?\n";
}

void AddPci(std::string& text, const PciReport& pci) {
  if (!pci.known) {
    text += fmt::format("{:<8}not known: {}\n", "pci", pci.problem);
    return;
  }
  if (pci.devices.empty())
    text += fmt::format("{:<8}no display device or accelerator on the PCI bus\n", "pci");
  size_t amd = 0, nvidia = 0;
  for (const PciDevice& device : pci.devices) {
    const std::string why_amd = WhyNotAmd(device), why_nv = WhyNotNvidia(device);
    amd += why_amd.empty();
    nvidia += why_nv.empty();
    const std::string verdict = why_amd.empty() ? "taken by tinygrad's AMD driver"
                                : why_nv.empty()
                                    ? "taken by tinygrad's NV driver"
                                    : fmt::format("not taken: AMD {}; NV {}", why_amd, why_nv);
    text += fmt::format(
        "{:<8}{}: {:04x}:{:04x} class {:06x}{}: {}\n", "pci", Printable(device.address, 32),
        device.vendor, device.device, device.class_code,
        device.driver.empty() ? "" : ", driver " + Printable(device.driver, 32), verdict);
  }
  text += fmt::format("{:<8}{}\n", "dev_id", kDevIdText);
  if (amd > 1 || nvidia > 1)
    text += fmt::format(
        "{:<8}more than one card of a kind: TinyGPU.app drives the one its driver extension took\n",
        "");
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
  out["listening"] = info.elsewhere ? nlohmann::json(nullptr) : unless_unknown(info.listening);
  out["elsewhere"] = info.elsewhere;
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
  std::vector<TcpSocket> tcp;
  const bool tcp_readable = listen.is_unix() && upstream.is_unix() ? false : ListTcpSockets(tcp);
  const auto look = [&](const wire::Address& address) {
    return address.is_unix() ? LookAt(address, readable, sockets)
                             : LookAtTcp(address, tcp_readable, tcp);
  };
  report.proxy = look(listen);
  report.server = look(upstream);
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
  report.pci = LookAtPci();
  report.driver_service = LookAtDriverService();
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
  AddDriver(text, report.driver_service);
  AddPci(text, report.pci);
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
  const auto or_null = [](bool known, bool value) {
    return known ? nlohmann::json(value) : nlohmann::json(nullptr);
  };
  out["driver_service"] = {
      {"applies", report.driver_service.applies},
      {"present", or_null(report.driver_service.known, report.driver_service.present)},
      {"problem", report.driver_service.problem}};
  out["pci"] = {{"known", report.pci.known}, {"problem", report.pci.problem}};
  out["pci"]["devices"] = nlohmann::json::array();
  for (const PciDevice& device : report.pci.devices) {
    const std::string why_amd = WhyNotAmd(device), why_nv = WhyNotNvidia(device);
    out["pci"]["devices"].push_back({{"address", Printable(device.address, 32)},
                                     {"vendor", device.vendor},
                                     {"device", device.device},
                                     {"class", device.class_code},
                                     {"driver", Printable(device.driver, 32)},
                                     {"amd", why_amd.empty()},
                                     {"nv", why_nv.empty()},
                                     {"why_not_amd", why_amd},
                                     {"why_not_nv", why_nv}});
  }
  out["dev_id"] = kDevIdText;
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tg::proxy
