// What the proxy costs: the same client load against a server directly, through a bare byte relay
// (two threads, no frames, no descriptors: the least that anything in between costs), and through
// rpcproxy with tracing on, with and without its spin. Ratios are formed within a round, so that a
// machine that gets slower or faster does not matter; their medians over the rounds are printed.
//
//   wirebench compare RPCPROXY [--rounds N] [--seconds S] [--gib G]
//   wirebench server SOCK | relay LISTEN UPSTREAM | client SOCK [SECONDS]
//
// Loads: read4   MMIO_READ of 4 bytes, addresses changing, round trip p50
//        write8  posted MMIO_WRITE of 8 bytes, header and payload in one send, per second
//        bulk    MMIO_WRITE and MMIO_READ of 16 MiB, bytes per second
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "schemas/wire/bytes.h"
#include "schemas/wire/commands.h"

namespace {

using tg::wire::Command;
using tg::wire::RequestHeader;
using Clock = std::chrono::steady_clock;

constexpr size_t kBar = 256u << 20;
constexpr size_t kBulk = 16u << 20;

// The children of a comparison, which end with it however it ends. 0: none.
std::array<std::atomic<pid_t>, 8> children;

void EndChildren() {
  for (const auto& child : children)
    if (child > 0) ::kill(child, SIGTERM);
}

[[noreturn]] void Die(const std::string& what) {
  std::perror(what.c_str());
  EndChildren();
  std::exit(1);
}

double Seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

bool SendAll(int fd, const void* data, size_t size) {
  for (auto* at = static_cast<const uint8_t*>(data); size > 0;) {
    const ssize_t n = ::send(fd, at, size, 0);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool RecvAll(int fd, void* data, size_t size) {
  for (auto* at = static_cast<uint8_t*>(data); size > 0;) {
    const ssize_t n = ::recv(fd, at, size, 0);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

sockaddr_un At(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

// 64 MiB, as both peers ask for.
void Buffers(int fd) {
  const int size = 64 << 20;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

int Dial(const std::string& path) {
  const sockaddr_un address = At(path);
  for (int i = 0; i < 200; i++) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      Buffers(fd);
      return fd;
    }
    ::close(fd);
    ::usleep(20000);
  }
  Die(path);
}

int Listen(const std::string& path) {
  ::unlink(path.c_str());
  const sockaddr_un address = At(path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 4) != 0)
    Die(path);
  return fd;
}

// TinyGPU.app's way: the header in one receive, hanging up on a short one; blocking; no reply to
// writes. Memory behind it is one BAR. `whole`: waits for the rest of a short header, for the
// relay, which cuts headers where its buffer ends.
int Server(const std::string& path, bool whole = false) {
  std::vector<uint8_t> bar(kBar), bulk(kBulk);
  const int listener = Listen(path);
  for (;;) {
    const int fd = ::accept(listener, nullptr, nullptr);
    if (fd < 0) continue;
    Buffers(fd);
    std::array<uint8_t, tg::wire::kRequestSizeR2> header;
    ssize_t n;
    while ((n = ::recv(fd, header.data(), header.size(), whole ? MSG_WAITALL : 0)) ==
           static_cast<ssize_t>(header.size())) {
      const RequestHeader request = tg::wire::DecodeRequest(header);
      const bool fits = request.arg1 <= kBulk && request.arg0 + request.arg1 <= kBar;
      if (request.command == static_cast<uint8_t>(Command::kMmioWrite)) {
        if (!fits || !RecvAll(fd, bulk.data(), request.arg1)) break;
        std::memcpy(bar.data() + request.arg0, bulk.data(), request.arg1);
        continue;
      }
      const bool read = request.command == static_cast<uint8_t>(Command::kMmioRead) && fits;
      const auto reply = tg::wire::EncodeReply({!read, read ? request.arg1 : 0, 0});
      if (!SendAll(fd, reply.data(), reply.size())) break;
      if (!read) continue;
      std::memcpy(bulk.data(), bar.data() + request.arg0, request.arg1);
      if (!SendAll(fd, bulk.data(), request.arg1)) break;
    }
    if (n > 0) std::fprintf(stderr, "server: hung up after a header of %zd bytes\n", n);
    ::close(fd);
  }
}

int Relay(const std::string& listen, const std::string& upstream) {
  const int listener = Listen(listen);
  for (;;) {
    const int client = ::accept(listener, nullptr, nullptr);
    Buffers(client);
    const int server = Dial(upstream);
    const auto pump = [](int from, int to) {
      std::vector<uint8_t> buffer(1u << 20);
      for (;;) {
        const ssize_t n = ::recv(from, buffer.data(), buffer.size(), 0);
        if (n <= 0 || !SendAll(to, buffer.data(), static_cast<size_t>(n))) break;
      }
      ::shutdown(to, SHUT_WR);
    };
    std::thread back(pump, server, client);
    pump(client, server);
    back.join();
    ::close(client);
    ::close(server);
  }
}

struct Figures {
  double read_us = 0, write_kops = 0, bulk_write_gbs = 0, bulk_read_gbs = 0;
};

class Load {
 public:
  explicit Load(const std::string& path) : path_(path), fd_(Dial(path)) {}
  ~Load() { ::close(fd_); }

  double Read4(double seconds, bool equal = false, size_t at_most = SIZE_MAX) {
    std::vector<double> times;
    for (const double start = Seconds(); Seconds() - start < seconds && times.size() < at_most;) {
      const double before = Seconds();
      Read(equal ? 0x4b8c : times.size() * 4 % 65536, 4);
      times.push_back(Seconds() - before);
    }
    reads_ += times.size();
    const auto middle = times.begin() + static_cast<long>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle * 1e6;
  }

  double Write8(double seconds) {
    std::array<uint8_t, 41> message;
    uint64_t count = 0;
    const double start = Seconds();
    while (Seconds() - start < seconds) {
      for (int i = 0; i < 256; i++, count++) {
        Header(message.data(), Command::kMmioWrite, count * 8 % (kBar - 8), 8);
        tg::StoreLe(message.data() + 33, count);
        if (!SendAll(fd_, message.data(), message.size())) Die("write8 at " + path_);
      }
    }
    Read(0, 4);  // behind all writes
    return static_cast<double>(count) / (Seconds() - start) / 1e3;
  }

  double BulkWrite(size_t count) {
    std::vector<uint8_t> message(33 + kBulk);
    for (size_t i = 33; i < message.size(); i += 61) message[i] = static_cast<uint8_t>(i);
    Header(message.data(), Command::kMmioWrite, 0, kBulk);
    const double start = Seconds();
    for (size_t i = 0; i < count; i++)
      if (!SendAll(fd_, message.data(), message.size())) Die("bulk write at " + path_);
    Read(0, 4);
    return static_cast<double>(count * kBulk) / (Seconds() - start) / 1e9;
  }

  double BulkRead(size_t count) {
    const double start = Seconds();
    for (size_t i = 0; i < count; i++) Read(0, kBulk);
    return static_cast<double>(count * kBulk) / (Seconds() - start) / 1e9;
  }

  size_t reads() const { return reads_; }

 private:
  static void Header(uint8_t* to, Command command, uint64_t offset, uint64_t size) {
    const auto bytes =
        tg::wire::EncodeRequest({static_cast<uint8_t>(command), 0, 5, offset, size, 0});
    std::memcpy(to, bytes.data(), bytes.size());
  }
  void Read(uint64_t offset, size_t size) {
    std::array<uint8_t, 33> request;
    std::array<uint8_t, 17> reply;
    if (body_.size() < size) body_.resize(size);
    Header(request.data(), Command::kMmioRead, offset, size);
    if (!SendAll(fd_, request.data(), request.size()) || !RecvAll(fd_, reply.data(), 17) ||
        !RecvAll(fd_, body_.data(), size))
      Die("read at " + path_);
  }

  const std::string path_;
  const int fd_;
  std::vector<uint8_t> body_;
  size_t reads_ = 0;
};

Figures Measure(const std::string& path, double seconds) {
  Load load(path);
  Figures f;
  load.Read4(seconds / 4);  // warm
  f.read_us = load.Read4(seconds);
  f.write_kops = load.Write8(seconds);
  f.bulk_write_gbs = load.BulkWrite(24);
  f.bulk_read_gbs = load.BulkRead(24);
  return f;
}

void OnSignal(int signal) {
  EndChildren();
  ::_exit(128 + signal);
}

// A child process; ended with SIGTERM.
class Child {
 public:
  template <typename Body>
  static Child Fork(Body body) {
    Child child;
    child.pid_ = ::fork();
    if (child.pid_ == 0) {
      for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
      ::_exit(body());
    }
    *std::find(children.begin(), children.end(), 0) = child.pid_;
    return child;
  }
  static Child Exec(std::vector<std::string> words) {
    return Fork([&] {
      std::vector<char*> args;
      for (std::string& word : words) args.push_back(word.data());
      args.push_back(nullptr);
      ::execv(args[0], args.data());
      std::perror(args[0]);
      return 127;
    });
  }
  Child() = default;
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child() { End(); }
  // Most memory it ever had resident, MiB.
  double End() {
    if (pid_ < 0) return 0;
    ::kill(pid_, SIGTERM);
    rusage usage{};
    ::wait4(pid_, nullptr, 0, &usage);
    *std::find(children.begin(), children.end(), pid_) = 0;
    pid_ = -1;
#ifdef __APPLE__
    return static_cast<double>(usage.ru_maxrss) / (1 << 20);
#else
    return static_cast<double>(usage.ru_maxrss) / 1024;
#endif
  }

 private:
  pid_t pid_ = -1;
};

double FileSize(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? static_cast<double>(st.st_size) : -1;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

int Compare(const std::string& proxy, int rounds, double seconds, double gib) {
  std::string pattern =
      std::string(std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp") + "/wirebench-XXXXXX";
  if (!::mkdtemp(pattern.data())) Die("mkdtemp");
  for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, OnSignal);
  const std::string dir = pattern + "/", upstream = dir + "server";
  const auto proxy_words = [&](const std::string& name, const char* spin) {
    return std::vector<std::string>{proxy,       "serve",  "-l",          dir + name,
                                    "-u",        upstream, "-o",          dir + name + ".pb",
                                    "--spin-us", spin,     "--log-level", "error"};
  };
  Child server = Child::Fork([&] { return Server(upstream); });
  Child lenient = Child::Fork([&] { return Server(dir + "lenient", true); });
  const std::vector<std::string> routes = {"server", "relay", "spin", "nospin"};
  std::map<std::string, std::vector<Figures>> all;
  {
    Child relay = Child::Fork([&] { return Relay(dir + "relay", dir + "lenient"); });
    Child spin = Child::Exec(proxy_words("spin", "200"));
    Child nospin = Child::Exec(proxy_words("nospin", "0"));
    for (int round = 0; round < rounds; round++)
      for (const std::string& route : routes) all[route].push_back(Measure(dir + route, seconds));
  }
  const auto table = [&](const char* name, double Figures::*field, const char* unit, bool lower) {
    std::vector<double> direct, to_direct, to_relay;
    std::printf("| %-11s |", name);
    for (const std::string& route : routes) {
      std::vector<double> values;
      for (const Figures& f : all[route]) values.push_back(f.*field);
      std::printf(" %8.2f %s |", Median(values), unit);
    }
    for (const char* route : {"spin", "nospin"}) {
      std::vector<double> d, r;
      for (int i = 0; i < rounds; i++) {
        const auto at = static_cast<size_t>(i);
        d.push_back(all[route][at].*field / (all["server"][at].*field));
        r.push_back(all[route][at].*field / (all["relay"][at].*field));
      }
      std::printf(" %.2f / %.2f |", Median(d), Median(r));
    }
    std::printf(" %s\n", lower ? "lower is better" : "higher is better");
  };
  std::printf(
      "| load        | direct | relay | proxy, spin | proxy, no spin | spin: to direct / to relay "
      "| no spin: to direct / to relay |\n|---|---|---|---|---|---|---|\n");
  table("read4 p50", &Figures::read_us, "us", true);
  table("write8", &Figures::write_kops, "k/s", false);
  table("bulk write", &Figures::bulk_write_gbs, "GB/s", false);
  table("bulk read", &Figures::bulk_read_gbs, "GB/s", false);
  {
    Child traced = Child::Exec(proxy_words("bytes", "200"));
    size_t reads = 0;
    {
      Load load(dir + "bytes");
      load.Read4(60, false, 50000);
      reads = load.reads();
    }
    traced.End();
    std::printf("trace bytes per 4-byte access: %.2f\n",
                FileSize(dir + "bytes.pb") / static_cast<double>(reads));
  }
  {
    Child traced = Child::Exec(proxy_words("polls", "200"));
    size_t reads = 0;
    {
      Load load(dir + "polls");
      load.Read4(60, true, 100000);
      reads = load.reads();
    }
    traced.End();
    std::printf("trace of %zu equal polls: %.0f bytes\n", reads, FileSize(dir + "polls.pb"));
  }
  {
    Child traced = Child::Exec(proxy_words("rss", "200"));
    {
      Load load(dir + "rss");
      const auto count = static_cast<size_t>(gib * 64 / 2);
      load.BulkWrite(count);
      load.BulkRead(count);
    }
    std::printf("proxy resident at most %.1f MiB while %.1f GiB passed\n", traced.End(), gib);
  }
  return std::system(("rm -rf '" + pattern + "'").c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto option = [&](const char* name, double fallback) {
    for (size_t i = 0; i + 1 < words.size(); i++)
      if (words[i] == name) return std::atof(words[i + 1].c_str());
    return fallback;
  };
  if (words.size() >= 2 && words[0] == "server") return Server(words[1]);
  if (words.size() >= 3 && words[0] == "relay") return Relay(words[1], words[2]);
  if (words.size() >= 2 && words[0] == "client") {
    const Figures f = Measure(words[1], words.size() > 2 ? std::atof(words[2].c_str()) : 1);
    std::printf("read4 p50 %.2f us, write8 %.1f k/s, bulk write %.2f GB/s, bulk read %.2f GB/s\n",
                f.read_us, f.write_kops, f.bulk_write_gbs, f.bulk_read_gbs);
    return 0;
  }
  if (words.size() >= 2 && words[0] == "compare" && words[1][0] != '-')
    return Compare(words[1], static_cast<int>(option("--rounds", 7)), option("--seconds", 0.4),
                   option("--gib", 4));
  std::fprintf(stderr,
               "usage: wirebench compare RPCPROXY [--rounds N] [--seconds S] [--gib G]\n"
               "       wirebench server SOCK | relay LISTEN UPSTREAM | client SOCK [SECONDS]\n");
  return 2;
}
