// A client of raw bytes for the servers' tests, with a time limit on everything.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "replay/sim/link.h"
#include "replay/sim/protocol.h"
#include "schemas/wire/bytes.h"
#include "schemas/wire/commands.h"

namespace tg::test {

class Peer {
 public:
  explicit Peer(int fd) : fd_(fd) {
    const timeval limit = {10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Peer() { Close(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  int fd() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void HalfClose() { shutdown(fd_, SHUT_WR); }

  void SendRaw(std::span<const uint8_t> bytes) {
    ASSERT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void Send(uint8_t command, uint32_t bar, uint64_t arg0, uint64_t arg1, uint64_t arg2 = 0,
            std::span<const uint8_t> payload = {}) {
    const auto header = wire::EncodeRequest({command, 0, bar, arg0, arg1, arg2});
    std::vector<uint8_t> message(header.begin(), header.end());
    message.insert(message.end(), payload.begin(), payload.end());
    SendRaw(message);
  }
  // Exactly `size` bytes; fewer if the server closed or went silent.
  std::vector<uint8_t> Receive(size_t size) {
    std::vector<uint8_t> bytes(size);
    size_t done = 0;
    while (done < size) {
      const ssize_t got = recv(fd_, bytes.data() + done, size - done, 0);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    bytes.resize(done);
    return bytes;
  }
  wire::ReplyHeader Reply() {
    const auto bytes = Receive(wire::kReplySize);
    EXPECT_EQ(bytes.size(), wire::kReplySize);
    return bytes.size() == wire::kReplySize ? wire::DecodeReply(bytes)
                                            : wire::ReplyHeader{99, 0, 0};
  }
  std::string Text(uint64_t size) {
    const auto bytes = Receive(size);
    return std::string(bytes.begin(), bytes.end());
  }
  // A reply and its descriptor, from ONE recvmsg of 17 bytes, as tinygrad takes them.
  std::pair<wire::ReplyHeader, int> ReplyWithDescriptor() {
    std::array<uint8_t, wire::kReplySize> bytes{};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec piece = {bytes.data(), bytes.size()};
    msghdr message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    EXPECT_EQ(recvmsg(fd_, &message, 0), 17);
    int descriptor = -1;
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message))
      std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return {wire::DecodeReply(bytes), descriptor};
  }
  // True if the server closes within the limit, without another byte.
  bool Closed() {
    uint8_t byte;
    return recv(fd_, &byte, 1, 0) == 0;
  }
  // True if nothing at all comes for `ms`.
  bool Silent(int ms) {
    pollfd waiting = {fd_, POLLIN, 0};
    return poll(&waiting, 1, ms) == 0;
  }

 private:
  int fd_;
};

// A protocol at work on one end of a socket pair.
class Served {
 public:
  Served(sim::Protocol& protocol, sim::Gpu& gpu) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("socketpair");
    sim::PrepareSocket(ends[0]);
    client = std::make_unique<Peer>(ends[1]);
    thread_ = std::thread([this, &protocol, &gpu, fd = ends[0]] {
      sim::Link link(fd, gpu);
      end_ = protocol.Serve(link);
      close(fd);
    });
  }
  ~Served() { Join(); }
  // Ends the client's side and waits for the server's.
  sim::SessionEnd Join() {
    if (client) client->Close();
    if (thread_.joinable()) thread_.join();
    return end_;
  }
  std::unique_ptr<Peer> client;

 private:
  std::thread thread_;
  sim::SessionEnd end_ = sim::SessionEnd::kDisconnected;
};

}  // namespace tg::test
