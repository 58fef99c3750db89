// What the trace tests share: a sink in memory with faults, records made short, and a reader that
// turns everything it is given into values that outlive the file.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schemas/trace/reader.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/trace/writer.h"

namespace tg::trace::testing {

// The file of a MemorySink, which outlives it.
struct MemoryFile {
  std::mutex mutex;
  std::map<uint64_t, std::unique_ptr<std::vector<uint8_t>>> segments;  // by file offset
  std::vector<uint8_t> durable;                                        // what a power cut leaves
  std::set<const uint8_t*> unmapped;         // segments given back since the last Sync()
  std::atomic<uint64_t> limit = UINT64_MAX;  // bytes that the disk holds
  std::atomic<Error::Code> limit_code = Error::Code::kNoSpace;
  std::atomic<bool> stuck = false;  // Map() takes as long as this is set
  std::atomic<int> maps = 0, unmaps = 0, syncs = 0, failures = 0;
  size_t mapped_now = 0, mapped_most = 0;
  std::optional<uint64_t> truncated;  // size given to Truncate()

  // The first `size` bytes stored so far, as a kill would leave them (or as it was closed).
  std::vector<uint8_t> Bytes(uint64_t size);
};

class MemorySink : public Sink {
 public:
  explicit MemorySink(std::shared_ptr<MemoryFile> file) : file_(std::move(file)) {}
  Result<std::span<uint8_t>> Map(uint64_t offset, size_t size) override;
  void Unmap(std::span<uint8_t> segment) override;
  Result<void> Sync(std::span<uint8_t> dirty) override;
  Result<void> Truncate(uint64_t size) override;

 private:
  std::shared_ptr<MemoryFile> file_;
};

// A header without the schema, so that small traces are small.
tinygpu::trace::Header SmallHeader();

struct TestTrace {
  std::shared_ptr<MemoryFile> file = std::make_shared<MemoryFile>();
  std::unique_ptr<TraceWriter> writer;
  uint64_t now = 0;  // ns
  explicit TestTrace(WriterOptions options = {}, tinygpu::trace::Header header = SmallHeader());

  uint64_t Request(const wire::RequestHeader& header, std::span<const uint8_t> payload = {});
  void Reply(uint64_t call, const wire::ReplyHeader& reply, std::span<const uint8_t> body = {});
  // A whole 4-byte access; `ns` pass before the request and before the reply.
  uint64_t Read4(uint32_t bar, uint64_t offset, uint32_t value, uint64_t ns = 1000);
  uint64_t Write4(uint32_t bar, uint64_t offset, uint32_t value, uint64_t ns = 1000);
  void Note(const std::string& text);
  void Close(const std::string& reason = "test");
  // The file as it is now; of the preallocated zeros behind the content only the first 4 KiB.
  std::vector<uint8_t> Bytes();
};

wire::RequestHeader MmioRead(uint32_t bar, uint64_t offset, uint64_t size);
wire::RequestHeader MmioWrite(uint32_t bar, uint64_t offset, uint64_t size);
std::array<uint8_t, 4> Le4(uint32_t value);

// A record with its own memory, as one line of text: easy to compare and to read in a failure.
std::string Line(const Record& record);

struct ReadResult {
  std::vector<std::string> lines;  // of all records
  std::vector<uint64_t> offsets;   // of each
  std::vector<bool> after_damage;
  EndState end = EndState::kOpen;
  std::vector<SkippedRange> skipped;
  uint64_t packets = 0, calls = 0, good_end = 0;
  std::string error;  // the reader could not be made
};
ReadResult ReadAll(std::vector<uint8_t> bytes);
ReadResult ReadAll(TraceReader& reader);

// A trace with every kind of packet in it, closed.
std::vector<uint8_t> EveryKind();

}  // namespace tg::trace::testing
