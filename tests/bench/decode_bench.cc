// How long decoding takes against a bare protobuf parse of the same file, in one run.
//
//   decode_bench [CALLS]       10,000,000 calls by default, as a session makes them: page-table
//                              writes, register reads and writes, polls that differ, VRAM blocks,
//                              doorbells
//   decode_bench TRACE.pb...   these files instead; small ones are read over and over
//
// Prints seconds and nanoseconds per packet, and the ratio to the bare parse (every Packet into a
// reused message), of: the trace reader alone; reader and device model; all that
// `rpcdecode TRACE` does (every model, the verdict, the text); `rpcdecode diff` of the file with
// itself, which reads two files and so counts as two.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "decoder/diff/diff.h"
#include "decoder/model/device.h"
#include "decoder/report/analysis.h"
#include "decoder/report/output.h"
#include "decoder/report/report.h"
#include "schemas/trace/reader.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/trace/writer.h"
#include "schemas/wire/bytes.h"

namespace {

using namespace tg;
// Processor time of this process: other work on the machine does not count.
double Now() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}
double Seconds(double since) {
  return Now() - since;
}

double ResidentMiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
#else
  return static_cast<double>(usage.ru_maxrss) / 1024;
#endif
}

bool MakeTrace(const std::string& path, uint64_t calls) {
  auto sink = trace::OpenFileSink(path, true);
  if (!sink) return false;
  auto writer = trace::TraceWriter::Create(std::move(*sink), {}, tinygpu::trace::Header());
  if (!writer) return false;
  trace::TraceWriter& w = **writer;
  std::mt19937_64 random(7);
  uint64_t now = 0;
  std::vector<uint8_t> bytes(4096);
  const auto write = [&](uint32_t bar, uint64_t offset, size_t size, uint64_t value) {
    trace::RequestRecord record;
    record.header = {7, 0, bar, offset, size, 0};
    StoreLe(bytes.data(), value);
    record.payload.size = size;
    record.payload.data = std::span(bytes).first(size);
    w.Request(record, now += 3000);
  };
  const auto read = [&](uint32_t bar, uint64_t offset, size_t size, uint64_t value) {
    trace::RequestRecord request;
    request.header = {6, 0, bar, offset, size, 0};
    trace::ReplyRecord reply;
    reply.call = w.Request(request, now += 3000);
    reply.reply = {0, size, 0};
    StoreLe(bytes.data(), value);
    reply.body.size = size;
    reply.body.data = std::span(bytes).first(size);
    w.Reply(reply, now += 9000);
  };
  tinygpu::trace::Packet connect;
  connect.mutable_event()->set_kind(tinygpu::trace::SessionEvent::CONNECT);
  connect.mutable_event()->set_transport("unix");
  w.Append(connect, now);
  for (uint64_t i = 0; i < calls; ++i) {
    const uint64_t r = random();
    switch (r % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
      case 7:
        write(0, 0x2000000 + (r >> 8) % 65536 * 8, 8, r | 1);
        break;
      case 8:
      case 9:
      case 10:
        read(5, 0x4980 + (r >> 8) % 256 * 4, 4, r >> 32);
        break;
      case 11:
      case 12:
      case 13:
        write(5, 0xCF00 + (r >> 8) % 256 * 4, 4, r >> 32);
        break;
      case 14:
        read(0, 0x2000000 + (r >> 8) % 65536 * 8, 8, r);
        break;
      default:
        write(2, 0x800, 8, i * 0x44);
        break;
    }
  }
  return w.Close(tinygpu::trace::End(), now).has_value();
}

// What any program has to do that reads the file with protobuf.
uint64_t BareParse(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> data((std::istreambuf_iterator<char>(in)), {});
  uint64_t packets = 0;
  tinygpu::trace::Packet packet;
  const auto* at = reinterpret_cast<const uint8_t*>(data.data());
  const uint8_t* end = at + data.size();
  while (at < end && *at == 0x0a) {
    ++at;
    uint64_t size = 0;
    for (int shift = 0; at < end; shift += 7) {
      const uint8_t byte = *at++;
      size |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) break;
    }
    if (size > static_cast<uint64_t>(end - at)) break;
    if (!packet.ParseFromArray(at, static_cast<int>(size))) break;
    at += size;
    ++packets;
  }
  return packets;
}

template <typename F>
void Measure(double& best, uint64_t times, const F& work) {
  const double since = Now();
  for (uint64_t i = 0; i < times; ++i) work();
  best = std::min(best, Seconds(since) / static_cast<double>(times));
}

void ReadAll(const std::string& path) {
  auto reader = trace::TraceReader::Open(path);
  trace::Record record;
  while ((*reader)->Next(record)) {
  }
}

void FeedModel(const std::string& path) {
  auto reader = trace::TraceReader::Open(path);
  trace::Record record;
  model::Device device;
  while ((*reader)->Next(record)) device.Feed(record);
}

void FullReport(const std::string& path) {
  auto reader = trace::TraceReader::Open(path);
  const auto analysis = report::Analyse(**reader, path);
  const report::Report document(*analysis);
  report::Output out(nullptr);
  document.ToText(out);
  if (out.text().empty()) std::abort();
}

void DiffWithItself(const std::string& path) {
  const auto result = diff::Diff(path, path, {});
  if (!result || result->exit_code() != 0) {
    std::fprintf(stderr, "%s differs from itself\n", path.c_str());
    std::exit(1);
  }
}

void MeasureFile(const std::string& path) {
  double bare = 1e9, reader = 1e9, with_model = 1e9, full = 1e9, twice = 1e9;
  uint64_t packets = 0;
  uint64_t times = 1;
  Measure(bare, 1, [&] { packets = BareParse(path); });
  while (bare * static_cast<double>(times) < 0.5 && times < 1000) ++times;
  // Alternating, so that a busy machine slows all of them; the best of each counts.
  for (int round = 0; round < 3; ++round) {
    Measure(bare, times, [&] { BareParse(path); });
    Measure(reader, times, [&] { ReadAll(path); });
    Measure(with_model, times, [&] { FeedModel(path); });
    Measure(full, times, [&] { FullReport(path); });
    Measure(twice, times, [&] { DiffWithItself(path); });
  }
  std::printf("%s: %llu packets, %.1f MiB\n", path.c_str(),
              static_cast<unsigned long long>(packets),
              static_cast<double>(std::filesystem::file_size(path)) / (1 << 20));
  const auto row = [&](const char* name, double seconds, unsigned files) {
    std::printf("  %-28s %8.4f s  %6.1f ns/packet  %.2f x\n", name, seconds,
                seconds * 1e9 / static_cast<double>(packets) / files, seconds / bare / files);
  };
  row("bare protobuf parse", bare, 1);
  row("trace reader", reader, 1);
  row("trace reader and model", with_model, 1);
  row("full report with verdict", full, 1);
  row("diff, per file", twice, 2);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (std::filesystem::exists(argv[i])) files.push_back(argv[i]);
  }
  if (!files.empty()) {
    for (const std::string& file : files) MeasureFile(file);
    return 0;
  }
  const uint64_t calls = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  const std::string path = (std::filesystem::temp_directory_path() / "decode_bench.pb").string();
  if (!MakeTrace(path, calls)) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    return 1;
  }
  std::printf("%llu calls\n", static_cast<unsigned long long>(calls));
  MeasureFile(path);
  std::printf("peak memory %.0f MiB (the bare parse holds the whole file)\n", ResidentMiB());
  if (!std::getenv("KEEP_TRACE")) std::filesystem::remove(path);
  return 0;
}
