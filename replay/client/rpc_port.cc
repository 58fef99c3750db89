#include "replay/client/rpc_port.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "replay/net/socket.h"
#include "replay/proof.h"
#include "schemas/wire/bytes.h"
#include "schemas/wire/commands.h"

namespace tg::client {
namespace {

using replay::Deadline;
using replay::Transfer;
using wire::Command;

constexpr uint64_t kPage = 0x1000;
constexpr uint64_t kMaxBody = 1ull << 30;

wire::RequestHeader Request(Command command, uint32_t bar = 0, uint64_t arg0 = 0, uint64_t arg1 = 0,
                            uint64_t arg2 = 0) {
  return {static_cast<uint8_t>(command), 0, bar, arg0, arg1, arg2};
}

class RpcPort;

// Memory shared through a descriptor.
class SharedMemory : public HostMemory {
 public:
  SharedMemory(uint8_t* data, uint64_t size, std::vector<uint64_t> pages)
      : HostMemory(size, std::move(pages)), data_(data) {}
  ~SharedMemory() override { munmap(data_, size_); }
  void Read(uint64_t offset, std::span<uint8_t> out) override {
    std::memcpy(out.data(), data_ + offset, out.size());
  }
  void Write(uint64_t offset, std::span<const uint8_t> in) override {
    std::memcpy(data_ + offset, in.data(), in.size());
  }
  uint64_t Load64(uint64_t offset) override { return Word(offset).load(std::memory_order_acquire); }
  void Store64(uint64_t offset, uint64_t value) override {
    Word(offset).store(value, std::memory_order_release);
  }

 private:
  std::atomic_ref<uint64_t> Word(uint64_t offset) {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(data_ + offset));
  }
  uint8_t* data_;
};

// Memory of the server's, read and written over the wire.
class RemoteMemory : public HostMemory {
 public:
  RemoteMemory(RpcPort& port, uint32_t handle, uint64_t size, std::vector<uint64_t> pages)
      : HostMemory(size, std::move(pages)), port_(port), handle_(handle) {}
  void Read(uint64_t offset, std::span<uint8_t> out) override;
  void Write(uint64_t offset, std::span<const uint8_t> in) override;
  uint64_t Load64(uint64_t offset) override {
    std::array<uint8_t, 8> bytes;
    Read(offset, bytes);
    return LoadLe<uint64_t>(bytes.data());
  }
  void Store64(uint64_t offset, uint64_t value) override {
    std::array<uint8_t, 8> bytes;
    StoreLe(bytes.data(), value);
    Write(offset, bytes);
  }

 private:
  RpcPort& port_;
  uint32_t handle_;
};

class RpcPort : public Port {
 public:
  RpcPort(UniqueFd fd, bool tcp, const RpcOptions& options)
      : fd_(std::move(fd)), tcp_(tcp), options_(options) {}

  void Prove() {
    Send(replay::ProofRequest(), {});
    const wire::ReplyHeader reply = ReceiveHeader("PING");
    if (reply == replay::kProofReply) return;
    if (reply.status != 0) ReceiveText(reply.resp0);
    Throw(Error::Code::kUsage,
          "what answers is not a simulated card: this client loads meaningless firmware and talks "
          "to nothing else");
  }
  void Probe() {
    if (!tcp_) return;
    // Any device of AMD's: mask 0 of any id is 0.
    std::array<uint8_t, 8> any{};
    Send(Request(Command::kProbe, 0, 0, any.size(), 0x1002), any);
    const wire::ReplyHeader reply = Accepted("PROBE");
    ReceiveBody(reply.resp0);
    if (reply.resp1 == 0) Throw(Error::Code::kNotFound, "the server knows of no card");
  }

  void ResizeBar(uint32_t bar) override {
    Send(Request(Command::kResizeBar, bar), {});
    // tinygrad takes a refusal for an answer.
    const wire::ReplyHeader reply = ReceiveHeader("RESIZE_BAR");
    if (reply.status != 0) ReceiveText(reply.resp0);
  }
  uint64_t MapBar(uint32_t bar) override {
    Send(Request(Command::kMapBar, bar), {});
    return Accepted("MAP_BAR " + std::to_string(bar)).resp1;
  }
  uint32_t CfgRead(uint64_t offset, uint32_t size) override {
    Send(Request(Command::kCfgRead, 0, offset, size), {});
    return static_cast<uint32_t>(Accepted("CFG_READ").resp0);
  }
  void CfgWrite(uint64_t offset, uint32_t size, uint32_t value) override {
    Send(Request(Command::kCfgWrite, 0, offset, size, value), {});
    Accepted("CFG_WRITE");
  }
  void Read(uint32_t bar, uint64_t offset, std::span<uint8_t> out) override {
    ReadBytes(Command::kMmioRead, bar, offset, out);
  }
  void Write(uint32_t bar, uint64_t offset, std::span<const uint8_t> in) override {
    WriteBytes(Command::kMmioWrite, bar, offset, in);
  }
  std::unique_ptr<HostMemory> MapHost(uint64_t size) override {
    return tcp_ ? MapRemote(size) : MapShared(size);
  }

  void ReadBytes(Command command, uint32_t bar, uint64_t offset, std::span<uint8_t> out) {
    Send(Request(command, bar, offset, out.size()), {});
    Accepted(wire::CommandName(static_cast<uint8_t>(command)));
    Check(replay::ReceiveAll(fd_.get(), out, ReplyBy()), "reading");
  }
  void WriteBytes(Command command, uint32_t bar, uint64_t offset, std::span<const uint8_t> in) {
    Send(Request(command, bar, offset, in.size()), in);
  }

 private:
  Deadline ReplyBy() const { return Deadline::In(options_.reply_timeout); }
  void Check(const Transfer& transfer, std::string_view what) const {
    if (transfer.ok()) return;
    const std::string at = " (" + std::string(what) + ")";
    switch (transfer.end) {
      case Transfer::End::kEof:
        Throw(Error::Code::kIo, "the server closed the connection" + at);
      case Transfer::End::kTimeout:
        Throw(Error::Code::kIo, "the server does not answer" + at);
      case Transfer::End::kInterrupted:
        Throw(Error::Code::kIo, "interrupted" + at);
      default:
        Throw(Error::Code::kIo, transfer.problem + at);
    }
  }
  void Send(const wire::RequestHeader& request, std::span<const uint8_t> payload) {
    Check(replay::Send(fd_.get(), wire::EncodeRequest(request), payload, -1, ReplyBy()),
          wire::CommandName(request.command));
  }
  wire::ReplyHeader ReceiveHeader(std::string_view what) {
    std::array<uint8_t, wire::kReplySize> bytes;
    Check(replay::ReceiveAll(fd_.get(), bytes, ReplyBy()), what);
    return wire::DecodeReply(bytes);
  }
  wire::ReplyHeader Accepted(std::string_view what) {
    const wire::ReplyHeader reply = ReceiveHeader(what);
    if (reply.status != 0) Refused(what, reply.resp0);
    return reply;
  }
  [[noreturn]] void Refused(std::string_view what, uint64_t text_size) {
    const std::string text = ReceiveText(text_size);
    Throw(Error::Code::kIo,
          std::string(what) + " was refused: " + (text.empty() ? "no reason given" : text));
  }
  std::vector<uint8_t> ReceiveBody(uint64_t size) {
    if (size > kMaxBody)
      Throw(Error::Code::kBadInput, "a reply of " + std::to_string(size) + " bytes");
    std::vector<uint8_t> body(size);
    Check(replay::ReceiveAll(fd_.get(), body, ReplyBy()), "a reply's body");
    return body;
  }
  std::string ReceiveText(uint64_t size) {
    const std::vector<uint8_t> body = ReceiveBody(size);
    return std::string(body.begin(), body.end());
  }

  std::unique_ptr<HostMemory> MapShared(uint64_t size) {
    Send(Request(Command::kMapSysmemFd, 0, size), {});
    std::array<uint8_t, wire::kReplySize> bytes;
    std::vector<UniqueFd> descriptors;
    Check(replay::ReceiveAll(fd_.get(), bytes, descriptors, ReplyBy()), "MAP_SYSMEM_FD");
    const wire::ReplyHeader reply = wire::DecodeReply(bytes);
    if (reply.status != 0) Refused("MAP_SYSMEM_FD", reply.resp0);
    if (descriptors.empty() || reply.resp0 < size)
      Throw(Error::Code::kBadInput, "MAP_SYSMEM_FD came without memory");
    void* data = mmap(nullptr, reply.resp0, PROT_READ | PROT_WRITE, MAP_SHARED,
                      descriptors.front().get(), 0);
    if (data == MAP_FAILED) Throw(Error::Code::kIo, std::string("mmap: ") + std::strerror(errno));
    auto* base = static_cast<uint8_t*>(data);
    // (address, length) pairs up to length 0, at the start of the region.
    std::vector<uint64_t> pages;
    for (uint64_t at = 0; at + 16 <= reply.resp0 && pages.size() * kPage < size; at += 16) {
      const uint64_t length = LoadLe<uint64_t>(base + at + 8);
      if (length == 0) break;
      for (uint64_t done = 0; done < length && pages.size() * kPage < size; done += kPage)
        pages.push_back(LoadLe<uint64_t>(base + at) + done);
    }
    auto memory = std::make_unique<SharedMemory>(base, reply.resp0, std::move(pages));
    if (memory->pages().size() * kPage < size)
      Throw(Error::Code::kBadInput, "the region's address table is too short");
    return memory;
  }
  std::unique_ptr<HostMemory> MapRemote(uint64_t size) {
    Send(Request(Command::kMapSysmem, 0, size), {});
    const wire::ReplyHeader reply = Accepted("MAP_SYSMEM");
    const std::vector<uint8_t> body = ReceiveBody(reply.resp0);
    std::vector<uint64_t> pages(body.size() / 8);
    std::memcpy(pages.data(), body.data(), pages.size() * 8);
    if (pages.size() * kPage < size) Throw(Error::Code::kBadInput, "too few page addresses");
    return std::make_unique<RemoteMemory>(*this, static_cast<uint32_t>(reply.resp1), size,
                                          std::move(pages));
  }

  UniqueFd fd_;
  bool tcp_;
  RpcOptions options_;
};

void RemoteMemory::Read(uint64_t offset, std::span<uint8_t> out) {
  port_.ReadBytes(Command::kSysmemRead, handle_, offset, out);
}
void RemoteMemory::Write(uint64_t offset, std::span<const uint8_t> in) {
  port_.WriteBytes(Command::kSysmemWrite, handle_, offset, in);
}

void PrepareSocket(int fd, bool tcp) {
  const int size = static_cast<int>(wire::kAppBulkLimit);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  const int on = 1;
  if (tcp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Result<std::unique_ptr<Port>> ConnectPort(const wire::Address& address, const RpcOptions& options) {
  const Deadline deadline = Deadline::In(options.connect_timeout);
  for (;;) {
    auto fd = replay::Connect(address, deadline);
    if (!fd) {
      // The server may just be starting, as tinygrad allows for too.
      if (deadline.passed()) return tl::unexpected<Error>(fd.error());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    const bool tcp = !address.is_unix();
    PrepareSocket(fd->get(), tcp);
    try {
      auto port = std::make_unique<RpcPort>(*std::move(fd), tcp, options);
      port->Prove();
      port->Probe();
      return port;
    } catch (const Trouble& trouble) {
      return tl::unexpected<Error>(trouble.error);
    }
  }
}

}  // namespace tg::client
