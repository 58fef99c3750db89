// Makes a trace out of the bytes of a conversation, the way the proxy does: through the framer,
// into the writer. For tests that have a field report's hex and want the decoder's words.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schemas/trace/trace.pb.h"
#include "schemas/trace/writer.h"
#include "schemas/wire/framer.h"

namespace tg::testing {

std::vector<uint8_t> FromHex(std::string_view hex);
std::string ReadFile(const std::string& path);
// A file name in the test's own temporary directory, not existing yet.
std::string TempFile(const std::string& name);

class WireTrace {
 public:
  struct Options {
    std::string transport = "unix";  // "": no CONNECT event at all
    bool fold = true;                // the writer's Repeat packets
    wire::Revision revision = wire::Revision::kUndecided;
    uint64_t step_ns = 10'000;  // time passes so much before each message
  };
  explicit WireTrace(const std::string& path) : WireTrace(path, Options()) {}
  WireTrace(const std::string& path, const Options& options);

  // Bytes as they come from one side; whole messages are recorded at once, the rest waits.
  void Client(std::span<const uint8_t> bytes);
  void Client(std::string_view hex) { Client(FromHex(hex)); }
  void Server(std::span<const uint8_t> bytes, uint32_t descriptors = 0);
  void Server(std::string_view hex, uint32_t descriptors = 0) { Server(FromHex(hex), descriptors); }
  void Request(const wire::RequestHeader& header, std::span<const uint8_t> payload = {});
  void Reply(const wire::ReplyHeader& reply, std::span<const uint8_t> body = {},
             uint32_t descriptors = 0);
  // Whole exchanges.
  void Read(uint32_t bar, uint64_t offset, uint32_t value);
  void Write(uint32_t bar, uint64_t offset, uint64_t value, uint64_t size = 4);
  void MapBar(uint32_t bar, uint64_t address, uint64_t size);

  void Advance(uint64_t ns) { now_ += ns; }
  void set_step(uint64_t ns) { options_.step_ns = ns; }
  void Event(tinygpu::trace::SessionEvent event);
  void Append(tinygpu::trace::Packet& packet);
  // The side that closes first; records what was left unfinished.
  void Disconnect(const std::string& who);
  // New connection, as Options.transport.
  void Connect();
  void Close(const std::string& reason = "client closed");
  // The writer goes away as in a kill -9.
  void Kill() { writer_.reset(); }

  trace::TraceWriter& writer() { return *writer_; }
  const std::string& path() const { return path_; }
  uint64_t now() const { return now_; }

 private:
  void Drain(bool client);
  void Step() { now_ += options_.step_ns; }

  std::string path_;
  Options options_;
  std::unique_ptr<trace::TraceWriter> writer_;
  wire::RequestFramer requests_;
  wire::ReplyFramer replies_;
  wire::Pairing pairing_;
  std::vector<uint8_t> from_client_;
  std::vector<uint8_t> from_server_;
  uint64_t now_ = 0;
  uint32_t connection_ = 0;
  uint32_t descriptors_ = 0;
  bool revision_told_ = false;
  uint64_t body_call_ = 0;  // a body that is not whole yet
  uint64_t body_received_ = 0;
};

}  // namespace tg::testing
