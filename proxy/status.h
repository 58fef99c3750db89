// `rpcproxy status`: who listens, who is connected to whom, who has the locks; what of TinyGPU.app
// is installed, whether its driver is there, and which PCI devices tinygrad would take. Looks only
// at the system's tables: a connection would take or wait for the server's one client slot, and
// binding says little and leaves a file behind.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "proxy/defaults.h"
#include "proxy/pci.h"
#include "schemas/wire/address.h"

namespace tg::proxy {

struct ProcessInfo {
  pid_t pid = 0;
  std::string name;
};

struct ConnectionInfo {
  // Processes that hold that end; empty: not accepted yet, not on this host, or not ours to see.
  std::vector<ProcessInfo> server;
  std::vector<ProcessInfo> client;
};

struct EndpointInfo {
  wire::Address address;
  bool known = false;  // whether the tables say anything of such an address
  bool file_exists = false;
  bool listening = false;  // a file that nobody listens on is a stale one
  std::vector<ProcessInfo> owners;
  std::vector<ConnectionInfo> connections;
  bool elsewhere = false;  // TCP: not an address of this host, so only our ends of it show
};

struct LockInfo {
  std::string path;
  bool exists = false, known = false, held = false;
  ProcessInfo holder;  // pid 0: not known
};

struct StatusReport {
  EndpointInfo proxy;  // where clients would find a proxy
  EndpointInfo server;
  std::vector<LockInfo> locks;
  std::string app_path;
  bool app_exists = false;
  std::string app_archive;  // the pinned release as tinygrad caches it
  bool app_archive_exists = false;
  std::vector<ProcessInfo> app_processes;
  PciReport pci;
  DriverServiceReport driver_service;
};

StatusReport GatherStatus(const wire::Address& listen, const wire::Address& upstream,
                          const EnvironmentFn& env);
std::string StatusText(const StatusReport& report);
std::string StatusJson(const StatusReport& report);

}  // namespace tg::proxy
