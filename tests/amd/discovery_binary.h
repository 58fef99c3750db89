// Builds discovery binaries for tests, after the layout in schemas/amd/discovery.h.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schemas/amd/discovery.h"
#include "schemas/amd/vram_layout.h"

namespace tg::amd {

class DiscoveryBinary {
 public:
  DiscoveryBinary() : bytes_(kDiscoverySize, 0) {
    U32(0, kDiscoverySignature);
    U16(0xc, kIpAt);
    U32(kIpAt, kIpTableSignature);
    U16(kIpAt + 4, 4);
    U16(kIpAt + 0xc, 1);
    U16(kIpAt + 0xe + 2, kIpAt + 0x50);
    at_ = kIpAt + 0x54;
  }
  void U8(size_t at, uint8_t v) { bytes_.at(at) = v; }
  void U16(size_t at, uint16_t v) {
    U8(at, static_cast<uint8_t>(v));
    U8(at + 1, static_cast<uint8_t>(v >> 8));
  }
  void U32(size_t at, uint32_t v) {
    U16(at, static_cast<uint16_t>(v));
    U16(at + 2, static_cast<uint16_t>(v >> 16));
  }
  void Ip(uint16_t hw_id, uint8_t instance, IpVersion v, std::vector<uint32_t> bases) {
    U16(at_, hw_id);
    U8(at_ + 2, instance);
    U8(at_ + 3, static_cast<uint8_t>(bases.size()));
    U8(at_ + 4, v.major);
    U8(at_ + 5, v.minor);
    U8(at_ + 6, v.revision);
    at_ += 8;
    for (const uint32_t base : bases) {
      U32(at_, base);
      at_ += 4;
    }
    U16(kIpAt + 0x52, ++count_);
  }
  void Gc(uint16_t major, std::vector<std::pair<size_t, uint32_t>> fields) {
    U16(0x14, kGcAt);
    U32(kGcAt, 0x4347);
    U16(kGcAt + 4, major);
    for (const auto& [at, value] : fields) U32(kGcAt + at, value);
  }
  void Harvest(std::vector<std::pair<uint16_t, uint8_t>> list) {
    U16(0x1c, kHarvestAt);
    U32(kHarvestAt, kHarvestSignature);
    size_t at = kHarvestAt + 8;
    for (const auto& [hw_id, instance] : list) {
      U16(at, hw_id);
      U8(at + 2, instance);
      at += 4;
    }
  }
  void Sum() {
    U16(0xa, kDiscoverySize);
    uint16_t sum = 0;
    for (size_t i = 0xa; i < bytes_.size(); ++i) sum = static_cast<uint16_t>(sum + bytes_[i]);
    U16(8, sum);
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::vector<uint8_t>& bytes() { return bytes_; }

  static constexpr uint16_t kIpAt = 0x3c;
  static constexpr uint16_t kGcAt = 0x1800;
  static constexpr uint16_t kHarvestAt = 0x2000;

 private:
  std::vector<uint8_t> bytes_;
  size_t at_ = 0;
  uint16_t count_ = 0;
};

}  // namespace tg::amd
