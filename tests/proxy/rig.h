// What the proxy's tests stand on: a server with TinyGPU.app's rules (the 33-byte header in ONE
// recv, hanging up on a short one), a client that sends exactly the bytes it is told to, the proxy
// on a thread of its own, and its trace read back.
#pragma once

#include <uv.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "proxy/proxy.h"
#include "schemas/trace/reader.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/trace/writer.h"
#include "schemas/wire/commands.h"

namespace tg::proxy::test {

using Bytes = std::vector<uint8_t>;

class TempDir {
 public:
  TempDir();
  ~TempDir();
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// ---- bytes -----------------------------------------------------------------------------------

Bytes Request(wire::Command command, uint32_t bar = 0, uint64_t arg0 = 0, uint64_t arg1 = 0,
              uint64_t arg2 = 0, uint32_t dev = 0);
Bytes Write(uint32_t bar, uint64_t offset, const Bytes& payload);  // MMIO_WRITE with its payload
Bytes Reply(uint8_t status, uint64_t resp0 = 0, uint64_t resp1 = 0);
Bytes operator+(Bytes a, const Bytes& b);
Bytes Pattern(size_t size, uint32_t seed = 1);
Bytes Text(std::string_view text);

// ---- sockets (blocking, with a time limit of 10 s) ----------------------------------------------

// Opens an unlinked file of `size` bytes that begins with `content`: stands for shared memory.
int SharedFile(size_t size, const Bytes& content = {});
int OpenDescriptors();
// One send; false when the peer is gone.
bool Send(int fd, const Bytes& bytes, const std::vector<int>& descriptors = {});
// One recvmsg of at most `size` bytes.
struct Received {
  Bytes bytes;
  std::vector<int> fds;
  bool truncated = false;  // MSG_CTRUNC
};
Received RecvOnce(int fd, size_t size);
// Exactly `size` bytes, fewer at the end of the stream.
Bytes RecvAll(int fd, size_t size);
bool AtEnd(int fd);  // the next recv says end of stream (or reset)

class Client {
 public:
  explicit Client(const wire::Address& address);
  ~Client() { Close(); }
  Client(const Client&) = delete;
  int fd() const { return fd_; }
  void Close();
  bool Send(const Bytes& bytes, const std::vector<int>& fds = {}) {
    return test::Send(fd_, bytes, fds);
  }
  Bytes Recv(size_t size) { return RecvAll(fd_, size); }
  Received RecvOnce(size_t size) { return test::RecvOnce(fd_, size); }
  bool AtEnd() { return test::AtEnd(fd_); }
  // Half of the connection: no more requests, replies still wanted.
  void NoMoreRequests();

 private:
  int fd_ = -1;
};

// ---- server ------------------------------------------------------------------------------------

struct ServedRequest {
  wire::RequestHeader header;
  Bytes payload;
  friend bool operator==(const ServedRequest&, const ServedRequest&) = default;
};

class StubServer {
 public:
  using Handler = std::function<void(int fd, StubServer&)>;
  // Serves one connection after the other. Without a handler: AppRules.
  explicit StubServer(const wire::Address& address, Handler handler = {});
  ~StubServer();

  // TinyGPU.app's rules. Reads answer with Pattern(size, offset); regions are 16 KiB at least.
  void AppRules(int fd);
  // Header in one recv and its payload: nullopt at the end, or after a short header.
  std::optional<ServedRequest> Next(int fd);

  std::vector<ServedRequest> requests() const;
  size_t count() const;
  bool WaitFor(size_t count) const;  // requests
  int short_headers() const { return short_headers_; }
  int connections() const { return connections_; }
  const wire::Address& address() const { return address_; }
  int region_limit = 128;
  bool keep_payloads = true;

 private:
  wire::Address address_;
  Handler handler_;
  int listen_fd_ = -1;
  std::atomic<int> serving_fd_ = -1;
  std::atomic<int> short_headers_ = 0, connections_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::vector<ServedRequest> requests_;
  std::thread thread_;
};

// ---- the trace, read back ----------------------------------------------------------------------

struct TracedCall {
  wire::RequestHeader header;
  Bytes payload;  // as much as was kept
  uint64_t payload_size = 0;
  bool truncated = false;
  bool answered = false;
  wire::ReplyHeader reply;
  Bytes body;
  uint64_t body_size = 0;
  uint32_t descriptors = 0;
  bool control_truncated = false;
};

struct Decoded {
  uint64_t lost_calls = 0;                      // of `calls`: numbers that no record has
  std::vector<TracedCall> calls;                // Repeat packets written out
  std::vector<tinygpu::trace::Packet> packets;  // all others
  trace::EndState end_state = trace::EndState::kOpen;
  std::vector<tinygpu::trace::SessionEvent> Events(tinygpu::trace::SessionEvent::Kind kind) const;
  std::vector<tinygpu::trace::SysmemRegion> Regions() const;
  std::vector<tinygpu::trace::Raw> Raws() const;
  // The bodies of one direction, put together from calls and chunks (for --bodies full).
  const tinygpu::trace::End* End() const;
  Bytes WholePayload(size_t call) const;  // call counts from 1
  Bytes WholeBody(size_t call) const;
};
Decoded Decode(const std::string& path);

// ---- proxy -----------------------------------------------------------------------------------

class ProxyRig {
 public:
  struct Options {
    wire::Address listen, upstream;
    ProxyOptions proxy;
    std::unique_ptr<trace::Sink> sink;  // instead of a file
    size_t segment_size = 8u << 20;
  };
  ProxyRig(const TempDir& dir, Options options);
  ~ProxyRig() { Stop(); }

  const wire::Address& address() const { return address_; }
  void Snapshot();
  // The proxy's loop has gone round so often since: what lay on its sockets has been dealt with.
  void Rounds(int count = 20);
  // Ends the proxy as a signal would and closes the trace.
  void Stop();
  // Waits until all clients are done, then Stop() and Decode().
  Decoded Finish();

  bool WaitLog(std::string_view text, int ms = 5000) const;
  int CountLog(std::string_view text) const;
  std::string log() const;
  const Counters& counters() const { return counters_; }  // after Stop() or Finish()
  const std::string& trace_path() const { return trace_path_; }

 private:
  void Main(Options options);

  std::string trace_path_;
  wire::Address address_;
  std::thread thread_;
  uv_async_t* async_ = nullptr;
  std::atomic<bool> ready_ = false, stop_ = false, snapshot_ = false, idle_stop_ = false;
  std::atomic<uint64_t> rounds_ = 0;
  Counters counters_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

wire::Address UnixAt(const std::string& path);
wire::Address TcpLocal(uint16_t port = 0);

// A proxy in front of a server, both on Unix sockets.
struct Chain {
  explicit Chain(StubServer::Handler handler = {}, SessionOptions session = {});
  TempDir dir;
  std::unique_ptr<StubServer> server;
  std::unique_ptr<ProxyRig> proxy;
};

bool Eventually(const std::function<bool()>& condition, int ms = 5000);

}  // namespace tg::proxy::test
