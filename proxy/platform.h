// What Linux and macOS do differently; platform_linux.cc and platform_darwin.cc.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tg::proxy {

// Where the descriptors that one recvmsg returned belong among the bytes it returned. Linux glues
// what stands before a descriptor to the message that carries it and stops behind that message;
// Darwin stops before it. So: somewhere in the last message, or exactly at the first byte.
enum class DescriptorPlace : uint8_t { kLastMessage, kFirstByte };
extern const DescriptorPlace kDescriptorPlace;

// Whole messages up to this many bytes may share a send: it is taken whole or not at all, so the
// receiver never finds a part of a header. 0: every message needs a send of its own.
extern const size_t kAtomicSend;
// Messages queued for sending at most.
inline constexpr size_t kMaxBatch = 512;

// Process at the other end of a Unix socket; 0 when not known. On macOS only while it lives.
pid_t PeerPid(int fd);

// Short name of a process ("python3.11"), empty when it cannot be found out.
std::string ProcessName(pid_t pid);

// A Unix socket in the system's tables.
struct UnixSocket {
  std::string path;  // empty for the end that connected
  bool listening = false;
  uint64_t id = 0;             // the system's, as `peer` of the other end has it
  uint64_t peer = 0;           // 0: not connected, or not known
  std::vector<pid_t> holders;  // processes with a descriptor of it, as far as we may see
};
// All Unix sockets, without touching any. False when the tables cannot be read.
bool ListUnixSockets(std::vector<UnixSocket>& sockets);

// A TCP socket in the system's tables. Addresses as text ("127.0.0.1", "::1"); an IPv4 address in
// an IPv6 socket as the IPv4 one.
struct TcpSocket {
  std::string local, remote;
  uint16_t local_port = 0, remote_port = 0;
  bool listening = false;      // else established
  std::vector<pid_t> holders;  // as far as we may see
};
// All listening and established ones of this host, without touching any. False when the tables
// cannot be read.
bool ListTcpSockets(std::vector<TcpSocket>& sockets);

// Processes whose name is `name`, as far as we may see.
std::vector<pid_t> FindProcesses(const std::string& name);

// Whether a process has locked that file by flock(2), found out without locking it.
struct LockState {
  bool exists = false;
  bool known = false;  // the system says
  bool held = false;
  pid_t pid = 0;  // 0: not known
};
LockState LookAtLock(const std::string& path);

}  // namespace tg::proxy
