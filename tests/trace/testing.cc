#include "tests/trace/testing.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "schemas/wire/bytes.h"

namespace tg::trace::testing {

namespace proto = tinygpu::trace;

std::vector<uint8_t> MemoryFile::Bytes(uint64_t size) {
  const std::lock_guard lock(mutex);
  std::vector<uint8_t> all(size);
  for (const auto& [offset, bytes] : segments) {
    // What lies behind is the background thread's.
    if (offset >= size) continue;
    std::copy_n(bytes->begin(), std::min<uint64_t>(bytes->size(), size - offset),
                all.begin() + static_cast<ptrdiff_t>(offset));
  }
  if (truncated) all.resize(*truncated);
  return all;
}

Result<std::span<uint8_t>> MemorySink::Map(uint64_t offset, size_t size) {
  while (file_->stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::lock_guard lock(file_->mutex);
  if (offset + size > file_->limit) {
    file_->failures++;
    return Fail(file_->limit_code, "cannot extend the test file: no space");
  }
  file_->maps++;
  file_->mapped_now++;
  file_->mapped_most = std::max(file_->mapped_most, file_->mapped_now);
  auto& segment = file_->segments[offset];
  segment = std::make_unique<std::vector<uint8_t>>(size);
  return std::span<uint8_t>(*segment);
}

void MemorySink::Unmap(std::span<uint8_t> gone) {
  const std::lock_guard lock(file_->mutex);
  file_->unmapped.insert(gone.data());
  file_->unmaps++;
  file_->mapped_now--;
}

Result<void> MemorySink::Sync(std::span<uint8_t> dirty) {
  const std::lock_guard lock(file_->mutex);
  file_->syncs++;
  for (const auto& [offset, bytes] : file_->segments) {
    file_->durable.resize(std::max<size_t>(file_->durable.size(), offset + bytes->size()));
    const uint8_t* begin = bytes->data();
    const uint8_t* end = begin + bytes->size();
    const auto at = file_->durable.begin() + static_cast<ptrdiff_t>(offset);
    if (file_->unmapped.erase(begin) != 0) {
      std::copy(begin, end, at);
    } else if (begin <= dirty.data() && dirty.data() < end) {
      std::copy(dirty.begin(), dirty.end(), at + (dirty.data() - begin));
    }
  }
  return {};
}

Result<void> MemorySink::Truncate(uint64_t size) {
  const std::lock_guard lock(file_->mutex);
  file_->truncated = size;
  return {};
}

proto::Header SmallHeader() {
  proto::Header header;
  header.set_producer("test");
  header.mutable_schema()->add_file()->set_name("none");
  return header;
}

TestTrace::TestTrace(WriterOptions options, proto::Header header) {
  options.start_mono_ns = now = 5'000'000'000;
  auto made = TraceWriter::Create(std::make_unique<MemorySink>(file), options, std::move(header));
  if (made) writer = std::move(*made);
}

uint64_t TestTrace::Request(const wire::RequestHeader& header, std::span<const uint8_t> payload) {
  RequestRecord record;
  record.header = header;
  record.payload.size = payload.size();
  record.payload.data = payload;
  return writer->Request(record, now);
}

void TestTrace::Reply(uint64_t call, const wire::ReplyHeader& reply,
                      std::span<const uint8_t> body) {
  ReplyRecord record;
  record.call = call;
  record.reply = reply;
  record.body.size = body.size();
  record.body.data = body;
  writer->Reply(record, now);
}

uint64_t TestTrace::Read4(uint32_t bar, uint64_t offset, uint32_t value, uint64_t ns) {
  now += ns;
  const uint64_t call = Request(MmioRead(bar, offset, 4));
  now += ns;
  Reply(call, {0, 4, 0}, Le4(value));
  return call;
}

uint64_t TestTrace::Write4(uint32_t bar, uint64_t offset, uint32_t value, uint64_t ns) {
  now += ns;
  return Request(MmioWrite(bar, offset, 4), Le4(value));
}

void TestTrace::Note(const std::string& text) {
  proto::Packet packet;
  packet.mutable_event()->set_kind(proto::SessionEvent::NOTE);
  packet.mutable_event()->set_text(text);
  writer->Append(packet, now);
}

void TestTrace::Close(const std::string& reason) {
  proto::End end;
  end.set_reason(reason);
  const Result<void> closed = writer->Close(end, now);
  if (!closed) std::abort();
}

std::vector<uint8_t> TestTrace::Bytes() {
  std::vector<uint8_t> bytes = file->Bytes(writer->bytes_written());
  if (!file->truncated) bytes.resize(bytes.size() + 4096);
  return bytes;
}

wire::RequestHeader MmioRead(uint32_t bar, uint64_t offset, uint64_t size) {
  wire::RequestHeader h;
  h.command = static_cast<uint8_t>(wire::Command::kMmioRead);
  h.bar = bar;
  h.arg0 = offset;
  h.arg1 = size;
  return h;
}

wire::RequestHeader MmioWrite(uint32_t bar, uint64_t offset, uint64_t size) {
  wire::RequestHeader h = MmioRead(bar, offset, size);
  h.command = static_cast<uint8_t>(wire::Command::kMmioWrite);
  return h;
}

std::array<uint8_t, 4> Le4(uint32_t value) {
  std::array<uint8_t, 4> bytes;
  StoreLe(bytes.data(), value);
  return bytes;
}

namespace {

std::string Hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t b : bytes.first(std::min<size_t>(bytes.size(), 80))) {
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  if (bytes.size() > 80) {
    uint64_t sum = bytes.size();
    for (const uint8_t b : bytes) sum = sum * 31 + b;
    text += "..~" + std::to_string(sum);
  }
  return text;
}

std::string Text(const BodyView& b) {
  std::string text = std::to_string(b.size) + ":" + Hex(b.data);
  if (b.xxh3) text += " xxh3=" + std::to_string(*b.xxh3);
  if (b.all_zero) text += " all_zero";
  if (b.streamed) text += " streamed";
  return text;
}

std::string Text(const RequestView& r) {
  const wire::RequestHeader& h = r.header;
  std::string text(wire::CommandName(h.command));
  for (const uint64_t v : {uint64_t{h.dev}, uint64_t{h.bar}, h.arg0, h.arg1, h.arg2})
    text += " " + std::to_string(v);
  text += " [" + Text(r.payload) + "]";
  if (r.truncated) text += " truncated " + std::to_string(r.received);
  if (!r.injected.empty()) text += " injected=" + std::string(r.injected);
  if (!r.refused.empty()) text += " refused=" + std::string(r.refused);
  return text;
}

std::string Text(const ReplyView& r) {
  std::string text = "-> " + std::to_string(r.reply.status) + " " + std::to_string(r.reply.resp0) +
                     " " + std::to_string(r.reply.resp1) + " [" + Text(r.body) + "]";
  if (r.descriptors != 0) text += " fds=" + std::to_string(r.descriptors);
  if (r.control_truncated) text += " ctrunc";
  if (!r.injected.empty()) text += " injected=" + std::string(r.injected);
  return text;
}

}  // namespace

std::string Line(const Record& r) {
  const std::string head = "#" + std::to_string(r.call) + " @" + std::to_string(r.time_ns) + " ";
  switch (r.kind) {
    case Record::Kind::kRequest:
      return head + Text(r.request);
    case Record::Kind::kReply:
      return head + Text(r.reply) + " in " + std::to_string(r.reply.latency_ns);
    case Record::Kind::kRepeat: {
      std::string text = head + "repeat " + std::to_string(r.issued) + "/" +
                         std::to_string(r.answered) + " until " + std::to_string(r.last_time_ns) +
                         " latency " + std::to_string(r.min_latency_ns) + ".." +
                         std::to_string(r.max_latency_ns);
      for (const RepeatedCall& c : r.pattern) {
        text += " {" + Text(c.request);
        if (c.reply) text += " " + Text(*c.reply);
        text += "}";
      }
      return text;
    }
    case Record::Kind::kPacket: {
      proto::Packet packet = *r.packet;
      packet.clear_crc32c();
      packet.clear_dt();
      if (packet.has_header()) packet.mutable_header()->clear_marker();
      if (packet.has_marker()) packet.mutable_marker()->clear_magic();
      return head + packet.ShortDebugString();
    }
  }
  return head;
}

ReadResult ReadAll(TraceReader& reader) {
  ReadResult result;
  Record record;
  while (reader.Next(record)) {
    result.lines.push_back(Line(record));
    result.offsets.push_back(record.offset);
    result.after_damage.push_back(record.after_damage);
  }
  result.end = reader.end_state();
  result.skipped = reader.skipped();
  result.packets = reader.packets();
  result.calls = reader.calls();
  result.good_end = reader.good_end();
  return result;
}

ReadResult ReadAll(std::vector<uint8_t> bytes) {
  auto reader = TraceReader::FromBytes(std::move(bytes));
  if (!reader) {
    ReadResult result;
    result.error = reader.error().message;
    return result;
  }
  return ReadAll(**reader);
}

std::vector<uint8_t> EveryKind() {
  TestTrace t;
  const auto header = [](wire::Command command, uint32_t bar, uint64_t arg0, uint64_t arg1) {
    wire::RequestHeader h;
    h.command = static_cast<uint8_t>(command);
    h.bar = bar;
    h.arg0 = arg0;
    h.arg1 = arg1;
    return h;
  };
  const auto append = [&](auto&& fill) {
    t.now += 2000;
    proto::Packet packet;
    fill(packet);
    t.writer->Append(packet, t.now);
  };
  append([](proto::Packet& p) {
    p.mutable_event()->set_kind(proto::SessionEvent::CONNECT);
    p.mutable_event()->set_connection(3);
    p.mutable_event()->set_transport("unix");
  });
  // PROBE: text both ways.
  const std::vector<uint8_t> text = {'A', 'M', ':', '0'};
  uint64_t call = t.Request(header(wire::Command::kProbe, 0, 0, 4), text);
  t.now += 7000;
  t.Reply(call, {0, 4, 0}, text);
  // An error reply with its text.
  call = t.Request(header(wire::Command::kCfgRead, 0, 0x10, 4));
  t.Reply(call, {1, 4, 0}, text);
  // A descriptor, then what the proxy saw in it.
  call = t.Request(header(wire::Command::kMapSysmemFd, 0, 8192, 0));
  t.now += 100'000;
  ReplyRecord fd;
  fd.call = call;
  fd.reply = {0, 8192, 1};
  fd.descriptors = 1;
  t.writer->Reply(fd, t.now);
  append([](proto::Packet& p) {
    proto::SysmemRegion& r = *p.mutable_region();
    r.set_index(1);
    r.set_asked(8192);
    r.set_granted(16384);
    r.add_address(0x100000000);
    r.add_length(16384);
  });
  append([](proto::Packet& p) {
    p.mutable_sysmem()->set_index(1);
    p.mutable_sysmem()->set_offset(64);
    p.mutable_sysmem()->set_data("ring bytes");
    p.mutable_sysmem()->set_why(proto::SysmemData::DOORBELL);
  });
  // Each small access: 4 and 8 bytes, all BARs, read and write, answered and not.
  for (uint32_t bar = 0; bar < 6; bar++) {
    t.Read4(bar, 0x100 * bar, 0xabcd0000 + bar);
    t.Write4(bar, 0x200 * bar, 0x12340000 + bar);
    const uint64_t wide = 0x1122334455667788 + bar;
    std::array<uint8_t, 8> bytes;
    StoreLe(bytes.data(), wide);
    t.Request(MmioWrite(bar, 0x7fff'0000, 8), bytes);
    call = t.Request(MmioRead(bar, 0x1'0000'0000, 8));
    if (bar != 5) t.Reply(call, {0, 8, 0}, bytes);
  }
  call = t.Request(header(wire::Command::kSysmemRead, 2, 64, 4));
  t.Reply(call, {0, 4, 0}, Le4(99));
  t.Request(header(wire::Command::kSysmemWrite, 2, 68, 4), Le4(98));
  // A large body in pieces.
  BodyRecord large;
  large.size = 3 << 20;
  large.xxh3 = 0x0123456789abcdef;
  large.data = text;
  large.streamed = true;
  ReplyRecord streamed;
  streamed.call = t.Request(MmioRead(0, 0, 3 << 20));
  streamed.reply = {0, 3 << 20, 0};
  streamed.body = large;
  t.writer->Reply(streamed, t.now);
  append([](proto::Packet& p) {
    p.mutable_chunk()->set_of_reply(true);
    p.mutable_chunk()->set_offset(4);
    p.mutable_chunk()->set_data("more of it");
    p.mutable_chunk()->set_last(true);
    p.mutable_chunk()->set_received(14);
  });
  // A poll: twice one by one, then folded.
  for (int i = 0; i < 10; i++) t.Read4(5, 0x5a0, 0);
  append([](proto::Packet& p) {
    p.mutable_loss()->set_cause(proto::Loss::LAG);
    p.mutable_loss()->set_packets(4);
  });
  append([](proto::Packet& p) {
    p.mutable_raw()->set_data("what is this");
    p.mutable_raw()->set_reason("unknown command");
  });
  append([](proto::Packet& p) {
    p.mutable_compressed()->set_method(1);
    p.mutable_compressed()->set_data("not really");
  });
  t.Close("client closed");
  return t.Bytes();
}

}  // namespace tg::trace::testing
