#include "tests/decoder/wire_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "schemas/wire/bytes.h"

namespace tg::testing {

namespace pb = tinygpu::trace;

std::vector<uint8_t> FromHex(std::string_view hex) {
  std::vector<uint8_t> out;
  std::string digits;
  for (const char c : hex) {
    if (std::isxdigit(static_cast<unsigned char>(c))) digits += c;
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    out.push_back(static_cast<uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  return out;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string TempFile(const std::string& name) {
  static const std::string dir = [] {
    const std::string base =
        (std::filesystem::temp_directory_path() / "rpcdecode_test_XXXXXX").string();
    std::vector<char> path(base.begin(), base.end());
    path.push_back('\0');
    const char* made = mkdtemp(path.data());
    static const struct Cleaner {
      std::string path;
      ~Cleaner() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
      }
    } cleaner{made ? made : ""};
    return cleaner.path;
  }();
  static int number = 0;
  return dir + "/" + std::to_string(number++) + "_" + name;
}

WireTrace::WireTrace(const std::string& path, const Options& options)
    : path_(path), options_(options), requests_(options.revision) {
  auto sink = trace::OpenFileSink(path, false);
  if (!sink) throw std::runtime_error(sink.error().message);
  trace::WriterOptions writer_options;
  writer_options.fold = options.fold;
  writer_options.segment_size = 1 << 20;
  pb::Header header;
  header.set_producer("wire_trace test");
  header.set_body_policy("head");
  auto writer = trace::TraceWriter::Create(std::move(*sink), writer_options, header);
  if (!writer) throw std::runtime_error(writer.error().message);
  writer_ = std::move(*writer);
  if (!options_.transport.empty()) Connect();
}

void WireTrace::Connect() {
  connection_++;
  pb::SessionEvent event;
  event.set_kind(pb::SessionEvent::CONNECT);
  event.set_connection(connection_);
  event.set_transport(options_.transport);
  event.set_client_pid(4711);
  Event(event);
  requests_ = wire::RequestFramer(options_.revision);
  replies_ = {};
  pairing_ = {};
  from_client_.clear();
  from_server_.clear();
  revision_told_ = false;
}

void WireTrace::Event(pb::SessionEvent event) {
  pb::Packet packet;
  *packet.mutable_event() = std::move(event);
  Append(packet);
}

void WireTrace::Append(pb::Packet& packet) {
  writer_->Append(packet, now_);
}

void WireTrace::Client(std::span<const uint8_t> bytes) {
  from_client_.insert(from_client_.end(), bytes.begin(), bytes.end());
  Drain(true);
  if (!revision_told_ && requests_.revision() != wire::Revision::kUndecided) {
    revision_told_ = true;
    pb::SessionEvent event;
    event.set_kind(pb::SessionEvent::REVISION);
    event.set_connection(connection_);
    event.set_revision(requests_.revision() == wire::Revision::kR1 ? 1 : 2);
    if (!options_.transport.empty()) Event(event);
  }
}

void WireTrace::Server(std::span<const uint8_t> bytes, uint32_t descriptors) {
  from_server_.insert(from_server_.end(), bytes.begin(), bytes.end());
  descriptors_ = descriptors;
  Drain(false);
}

void WireTrace::Drain(bool client) {
  std::vector<uint8_t>& buffer = client ? from_client_ : from_server_;
  size_t used = 0;
  const auto rest = [&] { return std::span<const uint8_t>(buffer).subspan(used); };
  const auto raw = [&](std::span<const uint8_t> bytes, wire::RawReason reason, bool starts) {
    Step();
    pb::Packet packet;
    packet.mutable_raw()->set_from_server(!client);
    packet.mutable_raw()->set_data(bytes.data(), bytes.size());
    packet.mutable_raw()->set_size(bytes.size());
    if (starts) packet.mutable_raw()->set_reason(std::string(wire::RawReasonText(reason)));
    Append(packet);
  };
  while (client) {
    const wire::RequestEvent event = requests_.Next(rest());
    if (event.kind == wire::RequestEvent::Kind::kNeedMore) break;
    if (event.kind == wire::RequestEvent::Kind::kRaw) {
      raw(event.bytes, event.raw_reason, event.raw_starts);
      replies_.GoRaw(event.raw_reason);
    } else if (event.kind == wire::RequestEvent::Kind::kRequest) {
      Step();
      trace::RequestRecord record;
      record.header = event.header;
      record.payload.size = event.payload_size;
      record.payload.data = event.payload.first(std::min<size_t>(event.payload.size(), 4096));
      record.payload.streamed = !event.complete();
      if (event.complete() && event.payload.size() > 4096) record.payload.xxh3 = 1;
      const uint64_t call = writer_->Request(record, now_);
      pairing_.Sent(event.header, call, requests_.revision());
    }
    used += event.bytes.size();
  }
  while (!client) {
    const wire::ReplyEvent event = replies_.Next(rest(), pairing_, requests_.revision());
    if (event.kind == wire::ReplyEvent::Kind::kNeedMore) break;
    if (event.kind == wire::ReplyEvent::Kind::kRaw) {
      raw(event.bytes, event.raw_reason, event.raw_starts);
      requests_.GoRaw(event.raw_reason);
    } else if (event.kind == wire::ReplyEvent::Kind::kReply) {
      Step();
      trace::ReplyRecord record;
      record.call = event.request.call;
      record.reply = event.reply;
      record.body.size = event.body_size;
      record.body.data = event.body.first(std::min<size_t>(event.body.size(), 4096));
      record.body.streamed = !event.complete();
      if (event.complete() && event.body.size() > 4096) record.body.xxh3 = 1;
      record.descriptors = descriptors_;
      descriptors_ = 0;
      writer_->Reply(record, now_);
      body_call_ = event.complete() ? 0 : record.call;
      body_received_ = event.body.size();
    } else {
      pb::Packet packet;
      pb::BodyChunk& chunk = *packet.mutable_chunk();
      chunk.set_calls_back(writer_->calls() - event.request.call);
      chunk.set_of_reply(true);
      chunk.set_offset(event.body_offset);
      chunk.set_data(event.body.data(), event.body.size());
      body_received_ = event.body_offset + event.body.size();
      chunk.set_last(event.complete());
      if (event.complete()) {
        chunk.set_received(event.body_size);
        body_call_ = 0;
      }
      Append(packet);
    }
    used += event.bytes.size();
  }
  buffer.erase(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(used));
}

void WireTrace::Request(const wire::RequestHeader& header, std::span<const uint8_t> payload) {
  const auto head = wire::EncodeRequest(header);
  std::vector<uint8_t> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  Client(bytes);
}

void WireTrace::Reply(const wire::ReplyHeader& reply, std::span<const uint8_t> body,
                      uint32_t descriptors) {
  const auto head = wire::EncodeReply(reply);
  std::vector<uint8_t> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), body.begin(), body.end());
  Server(bytes, descriptors);
}

void WireTrace::Read(uint32_t bar, uint64_t offset, uint32_t value) {
  Request({6, 0, bar, offset, 4, 0});
  std::array<uint8_t, 4> bytes;
  StoreLe(bytes.data(), value);
  Reply({0, 4, 0}, bytes);
}

void WireTrace::Write(uint32_t bar, uint64_t offset, uint64_t value, uint64_t size) {
  std::array<uint8_t, 8> bytes;
  StoreLe(bytes.data(), value);
  Request({7, 0, bar, offset, size, 0}, std::span<const uint8_t>(bytes).first(size));
}

void WireTrace::MapBar(uint32_t bar, uint64_t address, uint64_t size) {
  Request({1, 0, bar, 0, 0, 0});
  Reply({0, address, size});
}

void WireTrace::Disconnect(const std::string& who) {
  if (body_call_ != 0) {
    pb::Packet packet;
    pb::BodyChunk& chunk = *packet.mutable_chunk();
    chunk.set_calls_back(writer_->calls() - body_call_);
    chunk.set_of_reply(true);
    chunk.set_offset(body_received_);
    chunk.set_last(true);
    chunk.set_received(body_received_);
    Append(packet);
    body_call_ = 0;
  }
  pb::SessionEvent event;
  event.set_kind(pb::SessionEvent::DISCONNECT);
  event.set_connection(connection_);
  event.set_closed_first(who);
  event.set_unanswered(pairing_.size());
  event.set_undelivered_to_server(from_client_.size());
  event.set_undelivered_to_client(from_server_.size());
  Event(event);
}

void WireTrace::Close(const std::string& reason) {
  pb::End end;
  end.set_reason(reason);
  end.set_calls(writer_->calls());
  const auto closed = writer_->Close(end, now_);
  if (!closed) throw std::runtime_error(closed.error().message);
  writer_.reset();
}

}  // namespace tg::testing
