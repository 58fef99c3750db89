// A simulated card in this process and the built-in client on it, without a socket between.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "replay/client/port.h"
#include "replay/client/session.h"
#include "replay/sim/gpu.h"
#include "replay/sim/region.h"
#include "schemas/wire/bytes.h"

namespace tg::test {

class DirectMemory : public client::HostMemory {
 public:
  DirectMemory(sim::Region region, std::vector<uint64_t> pages)
      : HostMemory(region.size(), std::move(pages)), region_(std::move(region)) {}
  void Read(uint64_t offset, std::span<uint8_t> out) override {
    std::memcpy(out.data(), region_.data() + offset, out.size());
  }
  void Write(uint64_t offset, std::span<const uint8_t> in) override {
    std::memcpy(region_.data() + offset, in.data(), in.size());
  }
  uint64_t Load64(uint64_t offset) override {
    gpu->Run();  // engines go on while the client looks
    return LoadLe<uint64_t>(region_.data() + offset);
  }
  void Store64(uint64_t offset, uint64_t value) override {
    StoreLe(region_.data() + offset, value);
  }
  sim::Gpu* gpu = nullptr;

 private:
  sim::Region region_;
};

class DirectPort : public client::Port {
 public:
  explicit DirectPort(sim::Gpu& gpu) : gpu_(gpu) {}
  void ResizeBar(uint32_t) override {}
  uint64_t MapBar(uint32_t bar) override { return gpu_.BarSize(bar); }
  uint32_t CfgRead(uint64_t offset, uint32_t size) override { return gpu_.CfgRead(offset, size); }
  void CfgWrite(uint64_t offset, uint32_t size, uint32_t value) override {
    gpu_.CfgWrite(offset, size, value);
  }
  void Read(uint32_t bar, uint64_t offset, std::span<uint8_t> out) override {
    gpu_.BarRead(bar, offset, out);
  }
  void Write(uint32_t bar, uint64_t offset, std::span<const uint8_t> in) override {
    gpu_.BarWrite(bar, offset, in);
  }
  std::unique_ptr<client::HostMemory> MapHost(uint64_t size) override {
    auto region = sim::Region::CreatePrivate(size);
    if (!region) throw client::Trouble{region.error()};
    std::vector<uint64_t> pages;
    for (const sim::DmaSegment& segment : gpu_.host().Map(region->data(), size, 32))
      for (uint64_t at = 0; at < segment.size; at += 0x1000) pages.push_back(segment.address + at);
    auto memory = std::make_unique<DirectMemory>(*std::move(region), std::move(pages));
    memory->gpu = &gpu_;
    return memory;
  }

 private:
  sim::Gpu& gpu_;
};

// A card, and sessions on it one after the other.
class Rig {
 public:
  explicit Rig(const std::string& asic = "navi31", uint64_t bar0 = 0) {
    sim::GpuOptions options;
    options.asic = sim::FindAsic(asic);
    options.bar0_size = bar0;
    auto made = sim::Gpu::Create(options);
    if (!made) throw std::runtime_error(made.error().message);
    gpu = *std::move(made);
    port = std::make_unique<DirectPort>(*gpu);
  }
  void Hang(const std::string& spec) {
    auto rule = sim::ParseHang(spec);
    if (!rule) throw std::runtime_error(rule.error().message);
    gpu->hangs().Add(*rule);
  }
  client::Session& Open(client::SessionOptions options = {}) {
    auto opened = client::Session::Open(*port, options);
    if (!opened) throw std::runtime_error(opened.error().message);
    session = *std::move(opened);
    return *session;
  }
  // The client is gone: its memory with it, the card as it is.
  void Kill() {
    gpu->host().Clear();
    session.reset();
  }
  uint32_t Get(const std::string& name) { return session->ReadRegister(name).value(); }
  const sim::Counters& counters() const { return gpu->card().counters; }

  std::unique_ptr<sim::Gpu> gpu;
  std::unique_ptr<DirectPort> port;
  std::unique_ptr<client::Session> session;
};

inline std::vector<uint8_t> Pattern(size_t size, uint32_t seed) {
  std::vector<uint8_t> data(size);
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t& byte : data) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return data;
}

constexpr uint32_t Low(uint64_t value) {
  return static_cast<uint32_t>(value);
}
constexpr uint32_t High(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

inline uint32_t Word(client::HostMemory& memory, uint64_t offset) {
  uint8_t bytes[4];
  memory.Read(offset, bytes);
  return LoadLe<uint32_t>(bytes);
}
inline void SetWord(client::HostMemory& memory, uint64_t offset, uint32_t value) {
  uint8_t bytes[4];
  StoreLe(bytes, value);
  memory.Write(offset, bytes);
}

}  // namespace tg::test
