#include "decoder/report/files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "decoder/model/words.h"
#include "decoder/report/analysis.h"
#include "decoder/report/report.h"
#include "schemas/trace/crc32c.h"
#include "schemas/trace/trace.pb.h"

namespace tg::report {

namespace pb = tinygpu::trace;
using model::Bytes;
using model::Count;
using model::Printable;
using model::Thousands;

namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

Error IoError(const std::string& what, const std::string& path) {
  return {Error::Code::kIo, fmt::format("{} {}: {}", what, path, std::strerror(errno))};
}

uint64_t SkippedBytes(const FileFacts& file) {
  uint64_t bytes = 0;
  for (const trace::SkippedRange& range : file.skipped)
    bytes = model::SaturatingAdd(bytes, range.size);
  return bytes;
}

std::string EndText(const FileFacts& file, const model::Session& session) {
  std::string text(trace::EndStateText(file.end));
  if (session.end && !session.end->reason.empty()) text += ": " + Printable(session.end->reason);
  if (file.end != trace::EndState::kClean)
    text += fmt::format(" (content ends at byte {} of {})", file.good_end, file.size);
  return text;
}

struct Pass {
  FileFacts file;
  HeaderFacts header;
  model::SessionModel session;
};

Result<std::unique_ptr<Pass>> ReadAll(const std::string& path) {
  auto reader = trace::TraceReader::Open(path);
  if (!reader) return tl::unexpected(reader.error());
  auto pass = std::make_unique<Pass>();
  trace::Record record;
  while ((*reader)->Next(record)) pass->session.Add(record);
  pass->session.Finish();
  pass->file = ReadFileFacts(**reader, path);
  pass->header = ReadHeader(**reader);
  if (const auto some = AnythingRead(pass->file); !some) return tl::unexpected(some.error());
  return pass;
}

// An End packet as the writer makes it: the checksum over everything before it, last.
std::string EndPacket(const model::Session& session, const std::string& reason) {
  pb::Packet packet;
  pb::End& end = *packet.mutable_end();
  end.set_reason(reason);
  end.set_calls(session.last_seq);
  uint64_t errors = 0;
  for (size_t i = 0; i < session.counts.size(); i++) {
    if (session.counts[i].calls == 0) continue;
    (*end.mutable_by_command())[static_cast<uint32_t>(i)] = session.counts[i].calls;
    errors = model::SaturatingAdd(errors, session.counts[i].errors);
  }
  end.set_errors(errors);
  std::string body = packet.SerializeAsString();
  const uint32_t crc = trace::Crc32c({reinterpret_cast<const uint8_t*>(body.data()), body.size()});
  body += static_cast<char>(pb::Packet::kCrc32CFieldNumber << 3 | 5);
  for (int shift = 0; shift < 32; shift += 8) body += static_cast<char>(crc >> shift & 0xff);
  std::string out(1, static_cast<char>(pb::Trace::kPacketFieldNumber << 3 | 2));
  for (size_t size = body.size();; size >>= 7) {
    if (size < 0x80) {
      out += static_cast<char>(size);
      break;
    }
    out += static_cast<char>((size & 0x7f) | 0x80);
  }
  return out + body;
}

Result<void> CopyFile(const std::string& from, std::FILE* to, const std::string& to_path,
                      uint64_t size) {
  const File in(std::fopen(from.c_str(), "rb"));
  if (!in) return tl::unexpected(IoError("cannot read", from));
  std::vector<char> block(1 << 16);
  while (size > 0) {
    const size_t want = static_cast<size_t>(std::min<uint64_t>(size, block.size()));
    const size_t got = std::fread(block.data(), 1, want, in.get());
    if (got == 0)
      return Fail(Error::Code::kIo, fmt::format("{} became shorter while it was read", from));
    if (std::fwrite(block.data(), 1, got, to) != got)
      return tl::unexpected(IoError("cannot write", to_path));
    size -= got;
  }
  return {};
}

}  // namespace

Result<int> PrintInfo(const std::string& path, bool json, Output& out) {
  auto pass = ReadAll(path);
  if (!pass) return tl::unexpected(pass.error());
  const FileFacts& file = (*pass)->file;
  const HeaderFacts& header = (*pass)->header;
  const model::Session& s = (*pass)->session.session();
  const int code = file.whole() ? 0 : 4;
  if (json) {
    Json j;
    j["schema"] = 1;
    j["file"] = FileJson(file, header);
    j["calls"] = s.calls;
    j["last_seq"] = s.last_seq;
    j["duration_ns"] = s.last_time_ns;
    j["end"] = EndText(file, s);
    j["losses"] = s.losses.size();
    out.Write(Dump(j, true) + "\n");
    return code;
  }
  const auto row = [&out](std::string_view name, const std::string& text) {
    out.Line(fmt::format("{:<12} {}", name, text.empty() ? "not recorded" : text));
  };
  row("file", Printable(path));
  row("size", fmt::format("{} ({} bytes)", Bytes(file.size), Thousands(file.size)));
  row("packets", Thousands(file.packets));
  row("calls", Thousands(s.calls));
  row("duration", model::Duration(s.last_time_ns));
  if (header.present) {
    row("format", std::to_string(header.version));
    row("producer", Printable(header.producer));
    row("host", Printable(header.host));
    row("system", Printable(header.os));
    row("started", header.start_wall_ns
                       ? fmt::format("{} s since 1970", model::Seconds(header.start_wall_ns))
                       : "");
    row("listen", Printable(header.listen));
    row("upstream", Printable(header.upstream));
    row("bodies", Printable(header.body_policy));
    row("durability", Printable(header.durability));
    row("proxy pid", header.proxy_pid ? std::to_string(header.proxy_pid) : "");
  } else {
    row("header", "unreadable");
  }
  row("end", EndText(file, s));
  if (!file.skipped.empty())
    row("damage",
        fmt::format("{} skipped in {} (rpcdecode check lists them)",
                    Count(SkippedBytes(file), "byte"), Count(file.skipped.size(), "place")));
  for (const model::LossSeen& loss : s.losses) {
    row("lost", fmt::format("{}, {}, {} ({})", Count(loss.calls, "call"),
                            Count(loss.packets, "packet"), Bytes(loss.bytes),
                            pb::Loss::Cause_IsValid(loss.cause)
                                ? pb::Loss::Cause_Name(static_cast<pb::Loss::Cause>(loss.cause))
                                : std::string("unknown cause")));
  }
  return code;
}

Result<int> CheckTrace(const std::string& path, bool json, Output& out) {
  auto pass = ReadAll(path);
  if (!pass) return tl::unexpected(pass.error());
  const FileFacts& file = (*pass)->file;
  const model::Session& s = (*pass)->session.session();
  if (json) {
    Json j = FileJson(file, (*pass)->header);
    j["calls"] = s.calls;
    j["whole"] = file.whole();
    out.Write(Dump(j, true) + "\n");
    return file.whole() ? 0 : 4;
  }
  for (const trace::SkippedRange& range : file.skipped) {
    out.Line(fmt::format("bytes {}..{} ({}): {}", range.offset,
                         model::SaturatingAdd(range.offset, range.size), Count(range.size, "byte"),
                         Printable(range.reason)));
  }
  const std::string read =
      fmt::format("{}, {}", Count(file.packets, "good packet"), Count(s.calls, "call"));
  if (file.whole()) {
    out.Line(fmt::format("ok: {}, every checksum holds, {}", read, EndText(file, s)));
    return 0;
  }
  out.Line(fmt::format("incomplete: {}; {}", read, EndText(file, s)));
  out.Line(fmt::format("`rpcdecode repair {} -o FILE` keeps the first {} bytes as a closed trace",
                       Printable(path), file.good_end));
  return 4;
}

Result<int> RepairTrace(const std::string& from, const std::string& to, bool overwrite,
                        Output& out) {
  std::error_code error;
  if (std::filesystem::equivalent(from, to, error)) {
    return Fail(Error::Code::kUsage,
                fmt::format("{} and {} are the same file: the original is never changed, give "
                            "another name with -o",
                            from, to));
  }
  if (!overwrite && std::filesystem::exists(to, error)) {
    return Fail(Error::Code::kUsage, fmt::format("{} exists: give another name or --force", to));
  }
  auto pass = ReadAll(from);
  if (!pass) return tl::unexpected(pass.error());
  const FileFacts& file = (*pass)->file;
  // What the End packet says must be true of the packets kept, so count those alone.
  auto reader = trace::TraceReader::Open(from);
  if (!reader) return tl::unexpected(reader.error());
  model::SessionModel kept;
  trace::Record record;
  uint64_t packets = 0;
  while ((*reader)->Next(record) && record.offset < file.good_end) {
    kept.Add(record);
    packets = (*reader)->packets();
  }
  kept.Finish();
  if (packets == 0 || file.good_end == 0) {
    return Fail(Error::Code::kBadInput,
                fmt::format("{}: no whole packet at its beginning: nothing to keep", from));
  }
  const std::string part = to + ".part";
  std::error_code ignored;
  {
    const File sink(std::fopen(part.c_str(), "wb"));
    if (!sink) return tl::unexpected(IoError("cannot create", part));
    std::filesystem::permissions(
        part, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, ignored);
    Result<void> copied = CopyFile(from, sink.get(), part, file.good_end);
    if (copied && !file.whole()) {
      const std::string end = EndPacket(
          kept.session(), fmt::format("repaired: cut at byte {} of {}", file.good_end, file.size));
      if (std::fwrite(end.data(), 1, end.size(), sink.get()) != end.size())
        copied = tl::unexpected(IoError("cannot write", part));
    }
    if (copied && std::fflush(sink.get()) != 0)
      copied = tl::unexpected(IoError("cannot write", part));
    if (!copied) {
      std::filesystem::remove(part, ignored);
      return tl::unexpected(copied.error());
    }
  }
  std::filesystem::rename(part, to, error);
  if (error)
    return Fail(Error::Code::kIo,
                fmt::format("cannot rename {} to {}: {}", part, to, error.message()));
  if (file.whole()) {
    out.Line(fmt::format("{} is whole: copied to {} as it is", Printable(from), Printable(to)));
    return 0;
  }
  // Preallocated zeros behind the last packet are no loss.
  const bool dropped = !file.skipped.empty() || file.end != trace::EndState::kNotClosed;
  out.Line(fmt::format(
      "{}: {} kept ({}), {}", Printable(to), Count(packets, "packet"), Bytes(file.good_end),
      dropped ? fmt::format("{} after byte {} left out", Count(file.size - file.good_end, "byte"),
                            file.good_end)
              : std::string("nothing left out")));
  return dropped ? 4 : 0;
}

}  // namespace tg::report
