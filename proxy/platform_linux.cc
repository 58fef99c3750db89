#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "proxy/platform.h"

namespace tg::proxy {

const DescriptorPlace kDescriptorPlace = DescriptorPlace::kLastMessage;

size_t SendBatch(int fd, iovec* messages, size_t count, int& error) {
  // One thread relays; the table is kept to spare setting it up for every batch.
  thread_local mmsghdr headers[kMaxBatch] = {};
  if (count > kMaxBatch) count = kMaxBatch;
  for (size_t i = 0; i < count; i++) {
    headers[i].msg_hdr.msg_iov = &messages[i];
    headers[i].msg_hdr.msg_iovlen = 1;
  }
  size_t sent = 0;
  error = 0;
  for (size_t done = 0; done < count;) {
    const int n = ::sendmmsg(fd, headers + done, static_cast<unsigned>(count - done),
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      error = errno;
      break;
    }
    bool partial = false;
    for (int i = 0; i < n; i++) {
      sent += headers[done + i].msg_len;
      partial = headers[done + i].msg_len < messages[done + i].iov_len;
    }
    if (partial) {
      error = EAGAIN;
      break;
    }
    done += static_cast<size_t>(n);
  }
  return sent;
}

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
    if (path.empty() || path[0] == '@') continue;
    by_inode[inode] = sockets.size();
    sockets.push_back({path, (std::strtoul(flags.c_str(), nullptr, 16) & 0x10000) != 0, {}});
  }
  ForEachEntry("/proc", [&](const char* name) {
    char* end = nullptr;
    const long pid = std::strtol(name, &end, 10);
    if (pid <= 0 || *end) return;
    const std::string fds = std::string("/proc/") + name + "/fd";
    ForEachEntry(fds, [&](const char* fd) {
      if (fd[0] == '.') return;
      const auto found = by_inode.find(SocketInode(fds + "/" + fd));
      if (found == by_inode.end()) return;
      std::vector<pid_t>& holders = sockets[found->second].holders;
      if (holders.empty() || holders.back() != static_cast<pid_t>(pid))
        holders.push_back(static_cast<pid_t>(pid));
    });
  });
  return true;
}

}  // namespace tg::proxy
