#include <arpa/inet.h>
#include <fcntl.h>
#include <libproc.h>
#include <sys/proc_info.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "proxy/platform.h"

namespace tg::proxy {

const DescriptorPlace kDescriptorPlace = DescriptorPlace::kFirstByte;

// A send is taken in pieces where space is short, and TinyGPU.app hangs up on a piece of a header.
const size_t kAtomicSend = 0;

pid_t PeerPid(int fd) {
  pid_t pid = 0;
  socklen_t size = sizeof pid;
  if (::getsockopt(fd, SOL_LOCAL, LOCAL_PEERPID, &pid, &size) != 0) return 0;
  return pid;
}

std::string ProcessName(pid_t pid) {
  char name[PROC_PIDPATHINFO_MAXSIZE] = {};
  const int n = ::proc_name(pid, name, sizeof name);
  return n > 0 ? std::string(name, static_cast<size_t>(n)) : std::string();
}

namespace {

std::vector<pid_t> AllProcesses() {
  const int bytes = ::proc_listpids(PROC_ALL_PIDS, 0, nullptr, 0);
  if (bytes <= 0) return {};
  std::vector<pid_t> pids(static_cast<size_t>(bytes) / sizeof(pid_t) + 64);
  const int got =
      ::proc_listpids(PROC_ALL_PIDS, 0, pids.data(), static_cast<int>(pids.size() * sizeof(pid_t)));
  pids.resize(got > 0 ? static_cast<size_t>(got) / sizeof(pid_t) : 0);
  return pids;
}

// Calls each(socket_info, pid) for every socket of one kind in every process this user may look
// into. False: the processes cannot be listed.
template <typename Each>
bool EachSocket(int kind, const Each& each) {
  const std::vector<pid_t> pids = AllProcesses();
  for (const pid_t pid : pids) {
    const int size = ::proc_pidinfo(pid, PROC_PIDLISTFDS, 0, nullptr, 0);
    if (size <= 0) continue;  // not ours to see
    std::vector<proc_fdinfo> fds(static_cast<size_t>(size) / sizeof(proc_fdinfo) + 16);
    const int used = ::proc_pidinfo(pid, PROC_PIDLISTFDS, 0, fds.data(),
                                    static_cast<int>(fds.size() * sizeof(proc_fdinfo)));
    if (used <= 0) continue;
    fds.resize(static_cast<size_t>(used) / sizeof(proc_fdinfo));
    for (const proc_fdinfo& fd : fds) {
      if (fd.proc_fdtype != PROX_FDTYPE_SOCKET) continue;
      socket_fdinfo info{};
      if (::proc_pidfdinfo(pid, fd.proc_fd, PROC_PIDFDSOCKETINFO, &info, sizeof info) !=
          static_cast<int>(sizeof info))
        continue;
      if (info.psi.soi_kind == kind) each(info.psi, pid);
    }
  }
  return !pids.empty();
}

// Sockets by the kernel's handle: several processes can hold one.
template <typename Socket>
class SocketList {
 public:
  explicit SocketList(std::vector<Socket>& sockets) : sockets_(sockets) {}
  template <typename Make>
  void Add(uint64_t handle, pid_t holder, const Make& make) {
    const auto [at, fresh] = known_.try_emplace(handle, sockets_.size());
    if (fresh) sockets_.push_back(make());
    std::vector<pid_t>& holders = sockets_[at->second].holders;
    if (std::find(holders.begin(), holders.end(), holder) == holders.end())
      holders.push_back(holder);
  }

 private:
  std::vector<Socket>& sockets_;
  std::map<uint64_t, size_t> known_;
};

UnixSocket MakeUnixSocket(const socket_info& info) {
  const un_sockinfo& un = info.soi_proto.pri_un;
  const sockaddr_un& name = un.unsi_addr.ua_sun;
  return {std::string(name.sun_path, ::strnlen(name.sun_path, sizeof name.sun_path)),
          (info.soi_options & SO_ACCEPTCONN) != 0,
          info.soi_so,
          un.unsi_conn_so,
          {}};
}

TcpSocket MakeTcpSocket(const tcp_sockinfo& tcp) {
  const in_sockinfo& in = tcp.tcpsi_ini;
  const bool four = (in.insi_vflag & INI_IPV4) != 0;
  const auto text = [&](const auto& address) {
    char out[INET6_ADDRSTRLEN] = {};
    if (four)
      ::inet_ntop(AF_INET, &address.ina_46.i46a_addr4, out, sizeof out);
    else
      ::inet_ntop(AF_INET6, &address.ina_6, out, sizeof out);
    return std::string(out);
  };
  TcpSocket socket;
  socket.listening = tcp.tcpsi_state == TSI_S_LISTEN;
  socket.local = text(in.insi_laddr);
  socket.remote = text(in.insi_faddr);
  socket.local_port = ntohs(static_cast<uint16_t>(in.insi_lport));
  socket.remote_port = ntohs(static_cast<uint16_t>(in.insi_fport));
  return socket;
}

}  // namespace

bool ListUnixSockets(std::vector<UnixSocket>& sockets) {
  SocketList<UnixSocket> list(sockets);
  return EachSocket(SOCKINFO_UN, [&](const socket_info& info, pid_t pid) {
    list.Add(info.soi_so, pid, [&] { return MakeUnixSocket(info); });
  });
}

bool ListTcpSockets(std::vector<TcpSocket>& sockets) {
  SocketList<TcpSocket> list(sockets);
  return EachSocket(SOCKINFO_TCP, [&](const socket_info& info, pid_t pid) {
    const tcp_sockinfo& tcp = info.soi_proto.pri_tcp;
    if (tcp.tcpsi_state != TSI_S_LISTEN && tcp.tcpsi_state != TSI_S_ESTABLISHED) return;
    list.Add(info.soi_so, pid, [&] { return MakeTcpSocket(tcp); });
  });
}

std::vector<pid_t> FindProcesses(const std::string& name) {
  std::vector<pid_t> found;
  for (const pid_t pid : AllProcesses())
    if (ProcessName(pid) == name) found.push_back(pid);
  return found;
}

// flock and fcntl locks are of one kind here: asking what would be in the way takes none.
LockState LookAtLock(const std::string& path) {
  LockState state;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    state.exists = errno != ENOENT;
    return state;
  }
  state.exists = true;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd, F_GETLK, &lock) == 0) {
    state.known = true;
    state.held = lock.l_type != F_UNLCK;
    state.pid = state.held && lock.l_pid > 0 ? lock.l_pid : 0;
  }
  ::close(fd);
  return state;
}

}  // namespace tg::proxy
