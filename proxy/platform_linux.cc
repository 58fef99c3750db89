#include <arpa/inet.h>
#include <dirent.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "proxy/platform.h"
#include "proxy/socket.h"

namespace tg::proxy {

const DescriptorPlace kDescriptorPlace = DescriptorPlace::kLastMessage;

// A Unix socket copies up to 32 KiB into one buffer (net/unix/af_unix.c), whole or not at all, so
// a reader finds whole messages in it: as many as were sent at once.
const size_t kAtomicSend = 16 * 1024;

pid_t PeerPid(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return 0;
  return credentials.pid;
}

std::string ProcessName(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

namespace {

// Inode of the socket behind /proc/PID/fd/N ("socket:[12345]"), 0 for anything else.
uint64_t SocketInode(const std::string& link) {
  char target[64];
  const ssize_t n = ::readlink(link.c_str(), target, sizeof target - 1);
  if (n <= 8) return 0;
  target[n] = 0;
  if (std::strncmp(target, "socket:[", 8) != 0) return 0;
  return std::strtoull(target + 8, nullptr, 10);
}

template <typename Visit>
void ForEachEntry(const std::string& path, Visit visit) {
  DIR* dir = ::opendir(path.c_str());
  if (!dir) return;
  while (const dirent* entry = ::readdir(dir)) visit(entry->d_name);
  ::closedir(dir);
}

}  // namespace

namespace {

// Which sockets are connected to which: the table in /proc does not say.
void AddPeers(std::vector<UnixSocket>& sockets, const std::map<uint64_t, size_t>& by_inode) {
  const UniqueFd netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink.valid()) return;
  struct {
    nlmsghdr header;
    unix_diag_req request;
  } ask{};
  ask.header.nlmsg_len = sizeof ask;
  ask.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  ask.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  ask.request.sdiag_family = AF_UNIX;
  ask.request.udiag_states = ~0u;
  ask.request.udiag_show = UDIAG_SHOW_PEER;
  if (::send(netlink.get(), &ask, sizeof ask, 0) < 0) return;
  alignas(nlmsghdr) char buffer[32 * 1024];
  for (;;) {
    const ssize_t n = ::recv(netlink.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return;
    auto left = static_cast<unsigned>(n);
    for (auto* m = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(m, left);
         m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_type != SOCK_DIAG_BY_FAMILY) return;  // done, or an error
      const auto* diag = static_cast<const unix_diag_msg*>(NLMSG_DATA(m));
      const auto found = by_inode.find(diag->udiag_ino);
      if (found == by_inode.end()) continue;
      auto* attribute = reinterpret_cast<rtattr*>(reinterpret_cast<char*>(NLMSG_DATA(m)) +
                                                  NLMSG_ALIGN(sizeof *diag));
      auto room = static_cast<unsigned>(m->nlmsg_len - NLMSG_LENGTH(sizeof *diag));
      for (; RTA_OK(attribute, room); attribute = RTA_NEXT(attribute, room)) {
        if (attribute->rta_type != UNIX_DIAG_PEER) continue;
        uint32_t peer;
        std::memcpy(&peer, RTA_DATA(attribute), sizeof peer);
        sockets[found->second].peer = peer;
      }
    }
  }
}

// Calls visit(pid) for each process.
template <typename Visit>
void ForEachProcess(Visit visit) {
  ForEachEntry("/proc", [&](const char* name) {
    char* end = nullptr;
    const long pid = std::strtol(name, &end, 10);
    if (pid > 0 && *end == 0) visit(static_cast<pid_t>(pid));
  });
}

// Who has them open, as far as we may see. `by_inode`: positions in `sockets`.
template <typename Socket>
void AddHolders(std::vector<Socket>& sockets, const std::map<uint64_t, size_t>& by_inode) {
  ForEachProcess([&](pid_t pid) {
    const std::string fds = "/proc/" + std::to_string(pid) + "/fd";
    ForEachEntry(fds, [&](const char* fd) {
      if (fd[0] == '.') return;
      const auto found = by_inode.find(SocketInode(fds + "/" + fd));
      if (found == by_inode.end()) return;
      std::vector<pid_t>& holders = sockets[found->second].holders;
      if (holders.empty() || holders.back() != pid) holders.push_back(pid);
    });
  });
}

}  // namespace

bool ListUnixSockets(std::vector<UnixSocket>& sockets) {
  std::ifstream table("/proc/net/unix");
  if (!table) return false;
  std::map<uint64_t, size_t> by_inode;
  std::string line;
  std::getline(table, line);  // headings
  while (std::getline(table, line)) {
    // Num RefCount Protocol Flags Type St Inode Path; flag 0x10000 is __SO_ACCEPTCON.
    std::istringstream in(line);
    std::string num, refs, protocol, flags, type, state, path;
    uint64_t inode = 0;
    if (!(in >> num >> refs >> protocol >> flags >> type >> state >> inode)) continue;
    in.get();
    std::getline(in, path);
    if (!path.empty() && path[0] == '@') continue;  // not in the file system
    by_inode[inode] = sockets.size();
    sockets.push_back(
        {path, (std::strtoul(flags.c_str(), nullptr, 16) & 0x10000) != 0, inode, 0, {}});
  }
  AddPeers(sockets, by_inode);
  AddHolders(sockets, by_inode);
  return true;
}

namespace {

// "0100007F:1A0B": an address as the words of memory it is in, and the port.
bool ParseTcpAddress(const std::string& text, std::string& address, uint16_t& port) {
  const size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return false;
  port = static_cast<uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 16));
  uint32_t words[4] = {};
  for (size_t i = 0; i * 8 < colon; i++)
    words[i] = static_cast<uint32_t>(std::strtoul(text.substr(i * 8, 8).c_str(), nullptr, 16));
  char out[INET6_ADDRSTRLEN] = {};
  const bool mapped = colon == 32 && words[0] == 0 && words[1] == 0 && words[2] == htonl(0xffff);
  if (colon == 8 || mapped)
    ::inet_ntop(AF_INET, colon == 8 ? &words[0] : &words[3], out, sizeof out);
  else
    ::inet_ntop(AF_INET6, words, out, sizeof out);
  address = out;
  return true;
}

}  // namespace

bool ListTcpSockets(std::vector<TcpSocket>& sockets) {
  std::map<uint64_t, size_t> by_inode;
  bool readable = false;
  for (const char* name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(name);
    if (!table) continue;
    readable = true;
    std::string line;
    std::getline(table, line);  // headings
    while (std::getline(table, line)) {
      std::istringstream in(line);
      std::string number, local, remote, state, queues, timer, retransmits;
      uint64_t uid = 0, timeout = 0, inode = 0;
      if (!(in >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
            timeout >> inode))
        continue;
      TcpSocket socket;
      socket.listening = state == "0A";
      if ((!socket.listening && state != "01") ||
          !ParseTcpAddress(local, socket.local, socket.local_port) ||
          !ParseTcpAddress(remote, socket.remote, socket.remote_port))
        continue;
      if (inode != 0) by_inode[inode] = sockets.size();  // 0: accepted by nobody yet
      sockets.push_back(std::move(socket));
    }
  }
  if (!readable) return false;
  AddHolders(sockets, by_inode);
  return true;
}

std::vector<pid_t> FindProcesses(const std::string& name) {
  std::vector<pid_t> found;
  ForEachProcess([&](pid_t pid) {
    if (ProcessName(pid) == name) found.push_back(pid);
  });
  return found;
}

LockState LookAtLock(const std::string& path) {
  LockState state;
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return state;
  state.exists = true;
  std::ifstream table("/proc/locks");
  if (!table) return state;
  state.known = true;
  char file[64];
  std::snprintf(file, sizeof file, "%02x:%02x:%llu", major(st.st_dev), minor(st.st_dev),
                static_cast<unsigned long long>(st.st_ino));
  std::string line;
  while (std::getline(table, line)) {
    // "1: FLOCK  ADVISORY  WRITE 4711 08:01:12345 0 EOF"; a waiting one has "->" behind the number.
    std::istringstream in(line);
    std::string number, kind, mode, access, pid, where;
    if (!(in >> number >> kind >> mode >> access >> pid >> where)) continue;
    if (kind != "FLOCK" || where != file) continue;
    state.held = true;
    state.pid = static_cast<pid_t>(std::strtol(pid.c_str(), nullptr, 10));
  }
  return state;
}

}  // namespace tg::proxy
