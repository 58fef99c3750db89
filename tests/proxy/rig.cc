#include "tests/proxy/rig.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "schemas/wire/bytes.h"

namespace tg::proxy::test {
namespace {

namespace pb = tinygpu::trace;
constexpr int kLimitSeconds = 10;

void Limit(int fd) {
  timeval limit{kLimitSeconds, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
#ifdef SO_NOSIGPIPE
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

}  // namespace

TempDir::TempDir() {
  std::string pattern = std::filesystem::temp_directory_path() / "rpcproxy-test-XXXXXX";
  path_ = ::mkdtemp(pattern.data());
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool Eventually(const std::function<bool()>& condition, int ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// ---- bytes -----------------------------------------------------------------------------------

Bytes Request(wire::Command command, uint32_t bar, uint64_t arg0, uint64_t arg1, uint64_t arg2,
              uint32_t dev) {
  const auto bytes =
      wire::EncodeRequest({static_cast<uint8_t>(command), dev, bar, arg0, arg1, arg2});
  return {bytes.begin(), bytes.end()};
}

Bytes Write(uint32_t bar, uint64_t offset, const Bytes& payload) {
  return Request(wire::Command::kMmioWrite, bar, offset, payload.size()) + payload;
}

Bytes Reply(uint8_t status, uint64_t resp0, uint64_t resp1) {
  const auto bytes = wire::EncodeReply({status, resp0, resp1});
  return {bytes.begin(), bytes.end()};
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Bytes Pattern(size_t size, uint32_t seed) {
  Bytes out(size);
  uint32_t x = seed * 2654435761u + 12345u;
  for (uint8_t& byte : out) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(x >> 24);
  }
  return out;
}

Bytes Text(std::string_view text) {
  return {text.begin(), text.end()};
}

// ---- sockets ---------------------------------------------------------------------------------

int SharedFile(size_t size, const Bytes& content) {
  std::string name = std::filesystem::temp_directory_path() / "rpcproxy-shm-XXXXXX";
  const int fd = ::mkstemp(name.data());
  ::unlink(name.c_str());
  EXPECT_EQ(0, ::ftruncate(fd, static_cast<off_t>(size)));
  if (!content.empty()) {
    EXPECT_EQ(static_cast<ssize_t>(content.size()),
              ::pwrite(fd, content.data(), content.size(), 0));
  }
  return fd;
}

int OpenDescriptors() {
  // libuv opens a pair for signals with its first loop and keeps it for the life of the process.
  [[maybe_unused]] static const bool warm = [] {
    uv_loop_t loop;
    return uv_loop_init(&loop) == 0 && uv_loop_close(&loop) == 0;
  }();
#ifdef __linux__
  const char* path = "/proc/self/fd";
#else
  const char* path = "/dev/fd";
#endif
  DIR* dir = ::opendir(path);
  int count = 0;
  while (::readdir(dir)) count++;
  ::closedir(dir);
  return count;
}

bool Send(int fd, const Bytes& bytes, const std::vector<int>& descriptors) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    iovec iov{const_cast<uint8_t*>(bytes.data()) + sent, bytes.size() - sent};
    msghdr header{};
    header.msg_iov = &iov;
    header.msg_iovlen = 1;
    std::vector<char> control;
    if (sent == 0 && !descriptors.empty()) {
      control.resize(CMSG_SPACE(descriptors.size() * sizeof(int)));
      header.msg_control = control.data();
      header.msg_controllen = static_cast<socklen_t>(control.size());
      cmsghdr* c = CMSG_FIRSTHDR(&header);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size() * sizeof(int));
    }
    const ssize_t n = ::sendmsg(fd, &header, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

Received RecvOnce(int fd, size_t size) {
  Received out;
  out.bytes.resize(size);
  char control[4096];
  iovec iov{out.bytes.data(), size};
  msghdr header{};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(fd, &header, 0);
  out.bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  if (n < 0) return out;
  out.truncated = (header.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int got;
      std::memcpy(&got, CMSG_DATA(c) + i * sizeof got, sizeof got);
      out.fds.push_back(got);
    }
  }
  return out;
}

Bytes RecvAll(int fd, size_t size) {
  Bytes out(size);
  size_t have = 0;
  while (have < size) {
    const ssize_t n = ::recv(fd, out.data() + have, size - have, 0);
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  out.resize(have);
  return out;
}

bool AtEnd(int fd) {
  uint8_t byte;
  const ssize_t n = ::recv(fd, &byte, 1, 0);
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

wire::Address UnixAt(const std::string& path) {
  wire::Address address;
  address.path = path;
  return address;
}

wire::Address TcpLocal(uint16_t port) {
  return {wire::Address::Kind::kTcp, "", "127.0.0.1", port};
}

namespace {

std::pair<sockaddr_storage, socklen_t> SocketAddress(const wire::Address& address) {
  sockaddr_storage storage{};
  if (address.is_unix()) {
    auto& un = reinterpret_cast<sockaddr_un&>(storage);
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path, address.path.data(), address.path.size());
    return {storage, sizeof un};
  }
  auto& in = reinterpret_cast<sockaddr_in&>(storage);
  in.sin_family = AF_INET;
  in.sin_port = htons(address.port);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return {storage, sizeof in};
}

}  // namespace

Client::Client(const wire::Address& address) {
  const auto [storage, size] = SocketAddress(address);
  fd_ = ::socket(storage.ss_family, SOCK_STREAM, 0);
  Limit(fd_);
  EXPECT_EQ(0, ::connect(fd_, reinterpret_cast<const sockaddr*>(&storage), size))
      << wire::FormatAddress(address) << ": " << std::strerror(errno);
}

void Client::Close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Client::NoMoreRequests() {
  ::shutdown(fd_, SHUT_WR);
}

// ---- server ------------------------------------------------------------------------------------

StubServer::StubServer(const wire::Address& address, Handler handler)
    : address_(address), handler_(std::move(handler)) {
  if (!handler_) handler_ = [](int fd, StubServer& server) { server.AppRules(fd); };
  auto [storage, size] = SocketAddress(address_);
  listen_fd_ = ::socket(storage.ss_family, SOCK_STREAM, 0);
  if (address_.is_unix()) ::unlink(address_.path.c_str());
  EXPECT_EQ(0, ::bind(listen_fd_, reinterpret_cast<const sockaddr*>(&storage), size));
  EXPECT_EQ(0, ::listen(listen_fd_, 1));
  if (!address_.is_unix()) {
    ::getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&storage), &size);
    address_.port = ntohs(reinterpret_cast<sockaddr_in&>(storage).sin_port);
  }
  thread_ = std::thread([this] {
    for (;;) {
      const int fd = ::accept(listen_fd_, nullptr, nullptr);
      if (stopping_) {
        if (fd >= 0) ::close(fd);
        return;
      }
      if (fd < 0) continue;
      connections_++;
      Limit(fd);
      serving_fd_ = fd;
      handler_(fd, *this);
      serving_fd_ = -1;
      ::close(fd);
    }
  });
}

StubServer::~StubServer() {
  stopping_ = true;
  if (const int fd = serving_fd_; fd >= 0) ::shutdown(fd, SHUT_RDWR);
  ::shutdown(listen_fd_, SHUT_RDWR);
  // Where that does not wake accept(), a connection does.
  auto [storage, size] = SocketAddress(address_);
  const int wake = ::socket(storage.ss_family, SOCK_STREAM, 0);
  (void)::connect(wake, reinterpret_cast<const sockaddr*>(&storage), size);
  thread_.join();
  ::close(wake);
  ::close(listen_fd_);
}

std::optional<ServedRequest> StubServer::Next(int fd) {
  uint8_t header[wire::kRequestSizeR2];
  const ssize_t n = ::recv(fd, header, sizeof header, 0);
  if (n != static_cast<ssize_t>(sizeof header)) {
    if (n > 0) short_headers_++;
    return std::nullopt;
  }
  ServedRequest request;
  request.header = wire::DecodeRequest(header);
  const auto command = static_cast<wire::Command>(request.header.command);
  if (command == wire::Command::kMmioWrite || command == wire::Command::kProbe ||
      command == wire::Command::kSysmemWrite) {
    request.payload = RecvAll(fd, request.header.arg1);
    if (request.payload.size() < request.header.arg1) return std::nullopt;
  }
  const std::lock_guard lock(mutex_);
  requests_.push_back(request);
  if (!keep_payloads) requests_.back().payload.clear();
  return request;
}

void StubServer::AppRules(int fd) {
  int regions = 0;
  std::vector<int> files;
  while (const auto request = Next(fd)) {
    const wire::RequestHeader& h = request->header;
    Bytes reply;
    std::vector<int> fds;
    switch (static_cast<wire::Command>(h.command)) {
      case wire::Command::kMapBar:
        reply = h.bar < 6 ? Reply(0, 0x7f0000100000, 0x100000) : Reply(1);
        break;
      case wire::Command::kMapSysmemFd: {
        if (regions == region_limit) {
          reply = Reply(1);
          break;
        }
        const uint64_t size = std::max<uint64_t>((h.arg0 + 0xfff) & ~0xfffull, 0x4000);
        Bytes table(32);
        StoreLe<uint64_t>(&table[0], 0x100000000 + 0x100000 * static_cast<uint64_t>(regions));
        StoreLe<uint64_t>(&table[8], size);
        fds.push_back(SharedFile(size, table));
        reply = Reply(0, size, static_cast<uint64_t>(regions++));
        break;
      }
      case wire::Command::kCfgRead:
        reply = Reply(0, 0x744c1002);
        break;
      case wire::Command::kCfgWrite:
      case wire::Command::kReset:
      case wire::Command::kResizeBar:
        reply = Reply(0);
        break;
      case wire::Command::kMmioRead:
        reply = Reply(0, h.arg1) + Pattern(h.arg1, static_cast<uint32_t>(h.arg0));
        break;
      case wire::Command::kMmioWrite:
        continue;
      default:
        reply = Reply(1);
    }
    const bool sent = test::Send(fd, reply, fds);
    for (const int file : fds) ::close(file);
    if (!sent) break;
  }
}

std::vector<ServedRequest> StubServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

size_t StubServer::count() const {
  const std::lock_guard lock(mutex_);
  return requests_.size();
}

bool StubServer::WaitFor(size_t wanted) const {
  return Eventually([&] { return count() >= wanted; });
}

// ---- proxy -----------------------------------------------------------------------------------

ProxyRig::ProxyRig(const TempDir& dir, Options options) : trace_path_(dir / "trace.pb") {
  thread_ = std::thread(
      [this, o = std::make_shared<Options>(std::move(options))] { Main(std::move(*o)); });
  while (!ready_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void ProxyRig::Main(Options options) {
  uv_loop_t loop;
  uv_loop_init(&loop);
  const LogFn log = [this](LogLevel, std::string_view text) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(text);
  };
  auto listener = Listener::Open(options.listen, log);
  if (!listener) {
    log(LogLevel::kError, listener.error().message);
    uv_loop_close(&loop);
    ready_ = true;
    return;
  }
  address_ = (*listener)->address();
  if (!options.sink) {
    auto sink = trace::OpenFileSink(trace_path_, true);
    EXPECT_TRUE(sink.has_value());
    options.sink = std::move(*sink);
  }
  trace::WriterOptions writer_options;
  writer_options.start_mono_ns = uv_hrtime();
  writer_options.segment_size = options.segment_size;
  pb::Header header;
  header.set_start_mono_ns(writer_options.start_mono_ns);
  auto writer = trace::TraceWriter::Create(std::move(options.sink), writer_options, header);
  ASSERT_TRUE(writer.has_value()) << writer.error().message;

  options.proxy.connect.upstream = options.upstream;
  auto proxy = std::make_unique<Proxy>(&loop, options.proxy, std::move(*listener), **writer, log);
  struct Context {
    ProxyRig* rig;
    Proxy* proxy;
    uv_timer_t idle;
  } context{this, proxy.get(), {}};
  uv_async_t async;
  uv_async_init(&loop, &async, [](uv_async_t* handle) {
    auto* c = static_cast<Context*>(handle->data);
    if (c->rig->snapshot_.exchange(false)) c->proxy->Snapshot();
    c->rig->rounds_++;
    if (!c->rig->stop_) return;
    // When asked to wait for the clients, look again every few milliseconds.
    uv_timer_start(
        &c->idle,
        [](uv_timer_t* timer) {
          auto* c2 = static_cast<Context*>(timer->data);
          if (c2->rig->idle_stop_ && c2->proxy->busy()) return;
          uv_timer_stop(timer);
          c2->proxy->Stop("signal", [timer] { uv_stop(timer->loop); });
        },
        0, 5);
  });
  uv_timer_init(&loop, &context.idle);
  async.data = context.idle.data = &context;
  async_ = &async;
  proxy->Start();
  ready_ = true;
  uv_run(&loop, UV_RUN_DEFAULT);

  counters_ = proxy->counters();
  proxy.reset();
  uv_close(reinterpret_cast<uv_handle_t*>(&async), nullptr);
  uv_close(reinterpret_cast<uv_handle_t*>(&context.idle), nullptr);
  uv_run(&loop, UV_RUN_DEFAULT);
  pb::End end;
  end.set_reason("signal");
  end.set_to_server(counters_.to_server);
  end.set_to_client(counters_.to_client);
  (void)(*writer)->Close(end, uv_hrtime());
  EXPECT_EQ(0, uv_loop_close(&loop));
}

void ProxyRig::Snapshot() {
  snapshot_ = true;
  uv_async_send(async_);
}

void ProxyRig::Rounds(int count) {
  for (; count > 0; count--) {
    const uint64_t seen = rounds_;
    uv_async_send(async_);
    ASSERT_TRUE(Eventually([&] { return rounds_ > seen; }));
  }
}

void ProxyRig::Stop() {
  if (!thread_.joinable()) return;
  if (async_) {
    stop_ = true;
    uv_async_send(async_);
  }
  thread_.join();
  async_ = nullptr;
}

Decoded ProxyRig::Finish() {
  idle_stop_ = true;
  Stop();
  return Decode(trace_path_);
}

bool ProxyRig::WaitLog(std::string_view text, int ms) const {
  return Eventually([&] { return CountLog(text) > 0; }, ms);
}

int ProxyRig::CountLog(std::string_view text) const {
  const std::lock_guard lock(mutex_);
  int count = 0;
  for (const std::string& line : lines_)
    if (line.find(text) != line.npos) count++;
  return count;
}

std::string ProxyRig::log() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const std::string& line : lines_) out += line + "\n";
  return out;
}

Chain::Chain(StubServer::Handler handler, SessionOptions session) {
  server = std::make_unique<StubServer>(UnixAt(dir / "server.sock"), std::move(handler));
  ProxyRig::Options options;
  options.listen = UnixAt(dir / "proxy.sock");
  options.upstream = server->address();
  options.proxy.session = session;
  proxy = std::make_unique<ProxyRig>(dir, std::move(options));
}

}  // namespace tg::proxy::test
