#include "tests/replay/session.h"

#include <gtest/gtest.h>

namespace tg::replay::testing {

namespace pb = tinygpu::trace;

std::vector<uint8_t> Le(uint64_t value, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; i++) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  return bytes;
}

wire::RequestHeader Header(wire::Command command, uint32_t bar, uint64_t arg0, uint64_t arg1,
                           uint64_t arg2) {
  wire::RequestHeader header;
  header.command = static_cast<uint8_t>(command);
  header.bar = bar;
  header.arg0 = arg0;
  header.arg1 = arg1;
  header.arg2 = arg2;
  return header;
}

namespace {

trace::WriterOptions Options(bool fold) {
  trace::WriterOptions options;
  options.fold = fold;
  return options;
}

}  // namespace

Session::Session(bool fold) : trace_(Options(fold)) {}

void Session::Connect(uint32_t connection, const std::string& transport) {
  pb::Packet packet;
  packet.mutable_event()->set_kind(pb::SessionEvent::CONNECT);
  packet.mutable_event()->set_connection(connection);
  packet.mutable_event()->set_transport(transport);
  Append(packet);
}

void Session::Disconnect(const std::string& closed_first, uint32_t connection) {
  pb::Packet packet;
  packet.mutable_event()->set_kind(pb::SessionEvent::DISCONNECT);
  packet.mutable_event()->set_connection(connection);
  packet.mutable_event()->set_closed_first(closed_first);
  Append(packet);
}

uint64_t Session::Call(const wire::RequestHeader& header, const wire::ReplyHeader& reply,
                       const std::vector<uint8_t>& body, uint32_t descriptors) {
  trace_.now += 1000;
  const uint64_t call = trace_.Request(header);
  trace_.now += 1000;
  trace::ReplyRecord record;
  record.call = call;
  record.reply = reply;
  record.body.size = body.size();
  record.body.data = body;
  record.descriptors = descriptors;
  trace_.writer->Reply(record, trace_.now);
  return call;
}

uint64_t Session::CutCall(const wire::RequestHeader& header, uint64_t announced,
                          const std::vector<uint8_t>& came, size_t kept,
                          const std::string& injected) {
  trace_.now += 1000;
  const uint64_t call = trace_.Request(header);
  trace_.now += 1000;
  trace::ReplyRecord record;
  record.call = call;
  record.reply = {0, announced, 0};
  record.body.size = announced;
  record.body.data = std::span(came).first(kept);
  record.body.streamed = true;
  record.injected = injected;
  trace_.writer->Reply(record, trace_.now);
  pb::Packet packet;
  pb::BodyChunk& chunk = *packet.mutable_chunk();
  chunk.set_of_reply(true);
  chunk.set_offset(kept);
  chunk.set_data(came.data() + kept, came.size() - kept);
  chunk.set_last(true);
  chunk.set_received(came.size());
  Append(packet);
  return call;
}

uint64_t Session::Posted(const wire::RequestHeader& header, const std::vector<uint8_t>& payload) {
  trace_.now += 1000;
  return trace_.Request(header, payload);
}

uint64_t Session::Unanswered(const wire::RequestHeader& header) {
  trace_.now += 1000;
  return trace_.Request(header);
}

uint64_t Session::Read4(uint32_t bar, uint64_t offset, uint32_t value) {
  return trace_.Read4(bar, offset, value);
}

uint64_t Session::Write4(uint32_t bar, uint64_t offset, uint32_t value) {
  return trace_.Write4(bar, offset, value);
}

uint64_t Session::Doorbell(uint64_t value) {
  return Posted(MmioWrite(2, 0x800, 8), Le(value, 8));
}

uint64_t Session::MapFd(uint32_t index, uint64_t size, uint64_t address,
                        const std::vector<uint8_t>& contents) {
  const uint64_t call = trace_.Request(Header(wire::Command::kMapSysmemFd, 0, size));
  pb::Packet region;
  region.mutable_region()->set_index(index);
  region.mutable_region()->set_asked(size);
  region.mutable_region()->set_granted(size);
  region.mutable_region()->add_address(address);
  region.mutable_region()->add_length(size);
  Append(region);
  if (!contents.empty()) Memory(index, 0, contents, pb::SysmemData::MAP);
  trace::ReplyRecord record;
  record.call = call;
  record.reply = {0, size, index};
  record.descriptors = 1;
  trace_.writer->Reply(record, trace_.now);
  return call;
}

void Session::Memory(uint32_t region, uint64_t offset, const std::vector<uint8_t>& data,
                     pb::SysmemData::Why why) {
  pb::Packet packet;
  packet.mutable_sysmem()->set_index(region);
  packet.mutable_sysmem()->set_offset(offset);
  packet.mutable_sysmem()->set_data(data.data(), data.size());
  packet.mutable_sysmem()->set_why(why);
  Append(packet);
}

void Session::Zeros(uint32_t region, uint64_t offset, uint64_t size) {
  pb::Packet packet;
  packet.mutable_sysmem()->set_index(region);
  packet.mutable_sysmem()->set_offset(offset);
  packet.mutable_sysmem()->set_zeros(true);
  packet.mutable_sysmem()->set_size(size);
  packet.mutable_sysmem()->set_why(pb::SysmemData::DOORBELL);
  Append(packet);
}

std::vector<uint8_t> Session::Bytes(bool torn) {
  if (!torn && !closed_) {
    trace_.Close();
    closed_ = true;
  }
  return trace_.Bytes();
}

std::unique_ptr<Script> Session::Open(bool torn) {
  return OpenBytes(Bytes(torn));
}

std::unique_ptr<Script> OpenBytes(std::vector<uint8_t> bytes) {
  auto reader = trace::TraceReader::FromBytes(std::move(bytes));
  EXPECT_TRUE(reader) << (reader ? "" : reader.error().message);
  return std::make_unique<Script>(std::move(*reader));
}

Survey Examined(const std::vector<uint8_t>& bytes) {
  return Examine(*OpenBytes(bytes));
}

Received Ask(const wire::RequestHeader& header, const std::vector<uint8_t>& payload) {
  Received received;
  received.request = header;
  received.payload_size = payload.size();
  received.payload = payload;
  return received;
}

}  // namespace tg::replay::testing
