// A trace made call by call for the replay tests, and the requests a client would send.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "replay/script/script.h"
#include "replay/script/survey.h"
#include "replay/serve/answer.h"
#include "schemas/trace/trace.pb.h"
#include "tests/trace/testing.h"

namespace tg::replay::testing {

using trace::testing::MmioRead;
using trace::testing::MmioWrite;

std::vector<uint8_t> Le(uint64_t value, size_t size);

wire::RequestHeader Header(wire::Command command, uint32_t bar = 0, uint64_t arg0 = 0,
                           uint64_t arg1 = 0, uint64_t arg2 = 0);

class Session {
 public:
  explicit Session(bool fold = true);

  void Connect(uint32_t connection = 1, const std::string& transport = "unix");
  void Disconnect(const std::string& closed_first = "client", uint32_t connection = 1);
  // A whole call; returns its number.
  uint64_t Call(const wire::RequestHeader& header, const wire::ReplyHeader& reply,
                const std::vector<uint8_t>& body = {}, uint32_t descriptors = 0);
  // An answer whose body ends after `came` bytes, whatever its header says (`announced`). Small
  // ones have what came in their Reply, of large ones (`kept` < came) the rest is in a chunk.
  uint64_t CutCall(const wire::RequestHeader& header, uint64_t announced,
                   const std::vector<uint8_t>& came, size_t kept, const std::string& injected = {});
  uint64_t Posted(const wire::RequestHeader& header, const std::vector<uint8_t>& payload);
  uint64_t Unanswered(const wire::RequestHeader& header);
  uint64_t Read4(uint32_t bar, uint64_t offset, uint32_t value);
  uint64_t Write4(uint32_t bar, uint64_t offset, uint32_t value);
  uint64_t Doorbell(uint64_t value);
  // MAP_SYSMEM_FD with its region packet and what it held.
  uint64_t MapFd(uint32_t index, uint64_t size, uint64_t address,
                 const std::vector<uint8_t>& contents = {});
  void Memory(uint32_t region, uint64_t offset, const std::vector<uint8_t>& data,
              tinygpu::trace::SysmemData::Why why = tinygpu::trace::SysmemData::DOORBELL);
  void Zeros(uint32_t region, uint64_t offset, uint64_t size);
  void Append(tinygpu::trace::Packet& packet) { trace_.writer->Append(packet, trace_.now); }

  // Closes it (unless `torn`) and gives the file's bytes.
  std::vector<uint8_t> Bytes(bool torn = false);
  std::unique_ptr<Script> Open(bool torn = false);
  trace::TraceWriter& writer() { return *trace_.writer; }
  uint64_t now() { return trace_.now; }

 private:
  trace::testing::TestTrace trace_;
  bool closed_ = false;
};

Survey Examined(const std::vector<uint8_t>& bytes);
std::unique_ptr<Script> OpenBytes(std::vector<uint8_t> bytes);

Received Ask(const wire::RequestHeader& header, const std::vector<uint8_t>& payload = {});

}  // namespace tg::replay::testing
