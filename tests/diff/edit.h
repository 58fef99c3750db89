// A recorded trace as values that a test may change, and a trace file again.
//
// Everything the proxy recorded is kept: times, bodies with their hashes, copies of shared memory.
// Runs that the writer had folded are spread out, and folded again when written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schemas/trace/reader.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/commands.h"

namespace tg::diff::testing {

struct Body {
  uint64_t size = 0;
  std::vector<uint8_t> data;
  std::optional<uint64_t> xxh3;
  bool all_zero = false;
  bool streamed = false;
};

struct Step {
  enum class Kind : uint8_t { kRequest, kReply, kPacket };
  Kind kind = Kind::kPacket;
  uint64_t call = 0;  // as it was; 0 in a step that a test adds: the call before
  uint64_t time_ns = 0;
  wire::RequestHeader header;  // of the request; of the one answered
  wire::ReplyHeader reply;
  uint32_t descriptors = 0;
  Body body;
  bool truncated = false;
  uint64_t received = 0;
  tinygpu::trace::Packet packet;

  bool request(wire::Command command) const {
    return kind == Kind::kRequest && header.command == static_cast<uint8_t>(command);
  }
  bool write(uint32_t bar, uint64_t size) const {
    return request(wire::Command::kMmioWrite) && header.bar == bar && header.arg1 == size;
  }
  uint64_t value() const;  // of a body of at most 8 bytes
  void set_value(uint64_t value);
};

struct Trace {
  tinygpu::trace::Header header;
  std::vector<Step> steps;

  static Trace Read(trace::TraceReader& reader);
  static Trace FromZoo(const std::string& name);
  // The file's path. `closed`: with its End packet; else as after a kill.
  std::string Write(const std::string& name, bool closed = true, bool fold = true) const;

  // A whole access, its answer included, put before steps[at].
  void InsertWrite(size_t at, uint32_t bar, uint64_t offset, uint64_t value, uint64_t size);
  // Takes the request at `at` out, and its answer.
  void Drop(size_t at);
  // Index of the n-th request that `wanted` takes; fails the test if there is none.
  template <typename F>
  size_t Find(const F& wanted, size_t n = 0) const {
    for (size_t i = 0; i < steps.size(); i++)
      if (steps[i].kind == Step::Kind::kRequest && wanted(steps[i]) && n-- == 0) return i;
    throw std::runtime_error("no such request in the trace");
  }
  template <typename F>
  std::vector<size_t> FindAll(const F& wanted) const {
    std::vector<size_t> all;
    for (size_t i = 0; i < steps.size(); i++)
      if (wanted(steps[i])) all.push_back(i);
    return all;
  }
  // The answer to the request at `at`, or nullptr.
  Step* AnswerOf(size_t at);
};

}  // namespace tg::diff::testing
