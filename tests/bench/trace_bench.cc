// What recording and reading cost, in one run on one machine.
//
//   Write*    one call, request and reply, into a real file; `bytes` is what a call adds to it
//   Read*     a file of TRACE_BENCH_CALLS calls (1,000,000), each a request and its reply
//   BareParse the same file through protobuf's own parser and nothing else: the yardstick
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "schemas/trace/crc32c.h"
#include "schemas/trace/reader.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/trace/writer.h"
#include "schemas/wire/bytes.h"

namespace tg::trace {
namespace {

namespace io = google::protobuf::io;

class TempFile {
 public:
  explicit TempFile(const std::string& name)
      : path_((std::filesystem::temp_directory_path() /
               (name + "." + std::to_string(getpid()) + ".pb"))
                  .string()) {}
  ~TempFile() { unlink(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::unique_ptr<TraceWriter> NewWriter(const std::string& path) {
  auto sink = OpenFileSink(path, true);
  if (!sink) std::abort();
  WriterOptions options;
  options.patience_ms = 10'000;
  auto writer = TraceWriter::Create(std::move(*sink), options, {});
  if (!writer) std::abort();
  return std::move(*writer);
}

wire::RequestHeader Mmio(wire::Command command, uint64_t offset) {
  wire::RequestHeader h;
  h.command = static_cast<uint8_t>(command);
  h.bar = 5;
  h.arg0 = offset;
  h.arg1 = 4;
  return h;
}

void ReadCall(TraceWriter& writer, uint64_t& now, uint64_t offset, uint32_t value) {
  RequestRecord request;
  request.header = Mmio(wire::Command::kMmioRead, offset);
  ReplyRecord reply;
  reply.call = writer.Request(request, now += 20'000);
  reply.reply = {0, 4, 0};
  uint8_t data[4];
  StoreLe(data, value);
  reply.body.size = sizeof data;
  reply.body.data = data;
  writer.Reply(reply, now += 40'000);
}

void WriteCall(TraceWriter& writer, uint64_t& now, uint64_t offset, uint32_t value) {
  RequestRecord request;
  request.header = Mmio(wire::Command::kMmioWrite, offset);
  uint8_t data[4];
  StoreLe(data, value);
  request.payload.size = sizeof data;
  request.payload.data = data;
  writer.Request(request, now += 20'000);
}

template <typename F>
void Write(benchmark::State& state, const F& call) {
  const TempFile file("trace_bench_write");
  const auto writer = NewWriter(file.path());
  const uint64_t before = writer->bytes_written();
  uint64_t now = 0;
  uint32_t i = 0;
  for (auto _ : state) call(*writer, now, i++);
  if (!writer->losses().empty()) state.SkipWithError("the disk did not keep up");
  state.counters["bytes"] = static_cast<double>(writer->bytes_written() - before) /
                            static_cast<double>(state.iterations());
  if (!writer->Close({}, now)) std::abort();
}

void BM_WriteRead4(benchmark::State& state) {
  Write(state,
        [](TraceWriter& w, uint64_t& now, uint32_t i) { ReadCall(w, now, i * 4 % 65536, i); });
}
BENCHMARK(BM_WriteRead4);

void BM_WriteWrite4(benchmark::State& state) {
  Write(state,
        [](TraceWriter& w, uint64_t& now, uint32_t i) { WriteCall(w, now, i * 4 % 65536, i); });
}
BENCHMARK(BM_WriteWrite4);

void BM_WritePoll(benchmark::State& state) {
  Write(state, [](TraceWriter& w, uint64_t& now, uint32_t) { ReadCall(w, now, 0x5a0, 0); });
}
BENCHMARK(BM_WritePoll);

void BM_WriteBulk64K(benchmark::State& state) {
  const std::vector<uint8_t> payload(65536, 7);
  Write(state, [&](TraceWriter& w, uint64_t& now, uint32_t) {
    RequestRecord request;
    request.header = Mmio(wire::Command::kMmioWrite, 0);
    request.header.arg1 = payload.size();
    request.payload.size = payload.size();
    request.payload.data = payload;
    w.Request(request, now += 20'000);
  });
  state.SetBytesProcessed(state.iterations() * 65536);
}
BENCHMARK(BM_WriteBulk64K)->Iterations(20'000);

void BM_Crc32c(benchmark::State& state) {
  const std::vector<uint8_t> bytes(static_cast<size_t>(state.range(0)), 3);
  for (auto _ : state) benchmark::DoNotOptimize(Crc32c(bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Crc32c)->Arg(24)->Arg(4096)->Arg(1 << 20);

// ---- reading --------------------------------------------------------------------------------

uint32_t Calls() {
  const char* calls = std::getenv("TRACE_BENCH_CALLS");
  return calls != nullptr ? static_cast<uint32_t>(std::atol(calls)) : 1'000'000;
}

const std::string& LargeTrace() {
  static const TempFile file("trace_bench_read");
  static const bool made = [] {
    const auto writer = NewWriter(file.path());
    uint64_t now = 0;
    for (uint32_t i = 0; i < Calls(); i++) ReadCall(*writer, now, i * 4 % 65536, i * 2654435761u);
    return writer->Close({}, now).has_value();
  }();
  if (!made) std::abort();
  return file.path();
}

void Report(benchmark::State& state, uint64_t calls) {
  using benchmark::Counter;
  state.counters["calls"] = static_cast<double>(calls);
  state.counters["per_call"] =
      Counter(static_cast<double>(calls), Counter::kIsIterationInvariantRate | Counter::kInvert);
}

void BM_ReadTrace(benchmark::State& state) {
  const std::string& path = LargeTrace();
  uint64_t calls = 0;
  for (auto _ : state) {
    auto reader = TraceReader::Open(path);
    if (!reader) std::abort();
    Record record;
    uint64_t sum = 0;
    while ((*reader)->Next(record)) sum += record.call;
    benchmark::DoNotOptimize(sum);
    calls = (*reader)->calls();
  }
  Report(state, calls);
}
BENCHMARK(BM_ReadTrace)->Unit(benchmark::kMillisecond);

void BM_BareParse(benchmark::State& state) {
  const std::string& path = LargeTrace();
  uint64_t calls = 0;
  for (auto _ : state) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    io::FileInputStream file(fd, 256 * 1024);
    file.SetCloseOnDelete(true);
    io::CodedInputStream in(&file);
    in.SetTotalBytesLimit(INT32_MAX);
    tinygpu::trace::Packet packet;
    calls = 0;
    while (in.ReadTag() != 0) {
      uint32_t size = 0;
      if (!in.ReadVarint32(&size)) std::abort();
      const auto limit = in.PushLimit(static_cast<int>(size));
      packet.Clear();
      if (!packet.MergePartialFromCodedStream(&in)) std::abort();
      in.PopLimit(limit);
      calls += packet.op() != tinygpu::trace::OP_NONE;
    }
  }
  Report(state, calls);
}
BENCHMARK(BM_BareParse)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tg::trace

BENCHMARK_MAIN();
