// Feeds a Device with calls as a session would make them, without a file: each call is one record
// pair.
#pragma once

#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/device.h"
#include "decoder/model/session.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/bytes.h"

namespace tg::model {

class Feeder {
 public:
  explicit Feeder(DeviceOptions options = {}) : device(options) {}
  virtual ~Feeder() = default;
  // Where each record goes; the device is fed in any case, since names are looked up in its map.
  virtual void Emit(const trace::Record& record) {
    session.Add(record);
    device.Feed(record);
  }
  const LinkWatch& link() const { return session.session().link; }

  Device device;
  SessionModel session;
  uint64_t call = 0;
  uint64_t now_ns = 0;
  uint64_t step_ns = 10'000;

  static std::vector<uint8_t> Bytes(uint64_t value, size_t size) {
    std::vector<uint8_t> bytes(size);
    std::memcpy(bytes.data(), &value, std::min<size_t>(size, 8));
    return bytes;
  }

  void Request(wire::Command command, uint32_t bar, uint64_t arg0, uint64_t arg1 = 0,
               uint64_t arg2 = 0, std::vector<uint8_t> payload = {}, bool all_zero = false) {
    trace::Record record;
    record.kind = trace::Record::Kind::kRequest;
    record.call = ++call;
    record.time_ns = now_ns += step_ns;
    record.request.header = {static_cast<uint8_t>(command), 0, bar, arg0, arg1, arg2};
    record.request.payload.size =
        command == wire::Command::kMmioWrite || command == wire::Command::kSysmemWrite
            ? arg1
            : payload.size();
    record.request.payload.data = payload;
    record.request.payload.all_zero = all_zero;
    Emit(record);
  }

  void Reply(uint64_t resp0, uint64_t resp1 = 0, std::vector<uint8_t> body = {}, uint8_t status = 0,
             uint64_t latency_ns = 10'000) {
    trace::Record record;
    record.kind = trace::Record::Kind::kReply;
    record.call = call;
    record.time_ns = now_ns += step_ns;
    record.reply.reply = {status, resp0, resp1};
    record.reply.body.size = body.size();
    record.reply.body.data = body;
    record.reply.latency_ns = latency_ns;
    Emit(record);
  }

  void Packet(const tinygpu::trace::Packet& packet) {
    trace::Record record;
    record.kind = trace::Record::Kind::kPacket;
    record.call = call;
    record.time_ns = now_ns;
    record.packet = &packet;
    Emit(record);
  }

  void Connect(std::string_view transport = "unix") {
    tinygpu::trace::Packet packet;
    packet.mutable_event()->set_kind(tinygpu::trace::SessionEvent::CONNECT);
    packet.mutable_event()->set_connection(++connection_);
    packet.mutable_event()->set_transport(std::string(transport));
    Packet(packet);
  }

  void MapBar(uint32_t bar, uint64_t size, uint64_t address = 0x7f0000000000) {
    Request(wire::Command::kMapBar, bar, 0);
    Reply(address, size);
  }
  void Write(uint32_t bar, uint64_t offset, uint64_t value, size_t size = 4) {
    Request(wire::Command::kMmioWrite, bar, offset, size, 0, Bytes(value, size));
  }
  void Write(uint32_t bar, uint64_t offset, std::vector<uint8_t> data) {
    const size_t size = data.size();
    Request(wire::Command::kMmioWrite, bar, offset, size, 0, std::move(data));
  }
  void Read(uint32_t bar, uint64_t offset, uint64_t value, size_t size = 4,
            uint64_t latency_ns = 10'000) {
    Request(wire::Command::kMmioRead, bar, offset, size);
    Reply(size, 0, Bytes(value, size), 0, latency_ns);
  }
  void Read(uint32_t bar, uint64_t offset, const std::vector<uint8_t>& data) {
    Request(wire::Command::kMmioRead, bar, offset, data.size());
    Reply(data.size(), 0, data);
  }
  void CfgRead(uint32_t offset, uint32_t size, uint32_t value) {
    Request(wire::Command::kCfgRead, 0, offset, size);
    Reply(value);
  }
  void CfgWrite(uint32_t offset, uint32_t size, uint32_t value) {
    Request(wire::Command::kCfgWrite, 0, offset, size, value);
    Reply(0);
  }
  // By name, at the address the device's own map gives.
  uint64_t At(std::string_view name, uint8_t instance = 0) const {
    const auto address = device.registers().map().Find(name, instance);
    if (!address) throw std::runtime_error("no register " + std::string(name));
    return *address;
  }
  void W(std::string_view name, uint32_t value, uint8_t instance = 0) {
    Write(5, At(name, instance), value);
  }
  void R(std::string_view name, uint32_t value, uint8_t instance = 0) {
    Read(5, At(name, instance), value);
  }
  void Region(uint32_t index, uint64_t size, std::vector<std::pair<uint64_t, uint64_t>> ranges) {
    Request(wire::Command::kMapSysmemFd, 0, size);
    tinygpu::trace::Packet packet;
    auto* region = packet.mutable_region();
    region->set_index(index);
    region->set_asked(size);
    region->set_granted(size);
    region->set_mapped(size);
    for (const auto& [address, length] : ranges) {
      region->add_address(address);
      region->add_length(length);
    }
    Packet(packet);
    Reply(size, index);
  }
  void Snapshot(uint32_t index, uint64_t offset, std::vector<uint8_t> data) {
    tinygpu::trace::Packet packet;
    auto* sysmem = packet.mutable_sysmem();
    sysmem->set_index(index);
    sysmem->set_offset(offset);
    sysmem->set_data(std::string(data.begin(), data.end()));
    Packet(packet);
  }

 private:
  uint32_t connection_ = 0;
};

}  // namespace tg::model
