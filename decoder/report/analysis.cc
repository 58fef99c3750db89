#include "decoder/report/analysis.h"

#include "schemas/trace/trace.pb.h"

namespace tg::report {
namespace {

constexpr size_t kMaxText = 1024;

std::string Short(const std::string& text) {
  return text.substr(0, kMaxText);
}

}  // namespace

HeaderFacts ReadHeader(const trace::TraceReader& reader) {
  HeaderFacts out;
  const tinygpu::trace::Header* header = reader.header();
  if (!header) return out;
  out.present = true;
  out.version = header->version();
  out.start_wall_ns = header->start_wall_ns();
  out.producer = Short(header->producer());
  out.host = Short(header->host());
  out.os = Short(header->os());
  out.body_policy = Short(header->body_policy());
  out.listen = Short(header->listen());
  out.upstream = Short(header->upstream());
  out.durability = Short(header->durability());
  out.proxy_pid = header->proxy_pid();
  return out;
}

FileFacts ReadFileFacts(const trace::TraceReader& reader, const std::string& path) {
  FileFacts out;
  out.path = path;
  out.size = reader.file_size();
  out.packets = reader.packets();
  out.good_end = reader.good_end();
  out.end = reader.end_state();
  out.skipped = reader.skipped();
  return out;
}

Result<void> AnythingRead(const FileFacts& file) {
  if (file.packets > 0) return {};
  return Fail(Error::Code::kBadInput,
              file.path + ": not one whole packet in " + std::to_string(file.size) + " bytes (" +
                  std::string(trace::EndStateText(file.end)) +
                  "): nothing to decode; was it copied while the proxy had just started?");
}

std::unique_ptr<Analysis> Analyse(trace::TraceReader& reader, const std::string& path) {
  auto out = std::make_unique<Analysis>();
  trace::Record record;
  while (reader.Next(record)) {
    out->seen.Feed(record);
    out->polls.Add(record);
    out->interventions.Feed(record);
  }
  out->seen.Finish();
  out->polls.Finish();
  out->file = ReadFileFacts(reader, path);
  out->header = ReadHeader(reader);
  return out;
}

}  // namespace tg::report
