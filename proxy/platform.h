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

// Sends each of `messages` by a send of its own, in order, with as few system calls as the system
// allows. Returns the bytes taken in all; `error` is errno of what stopped it, 0 if nothing did.
// `count` is at most kMaxBatch; messages are small (one piece each to the kernel).
inline constexpr size_t kMaxBatch = 128;
size_t SendBatch(int fd, iovec* messages, size_t count, int& error);

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
