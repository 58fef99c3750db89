#include "replay/sim/discovery_blob.h"

#include <algorithm>
#include <cstring>

#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

constexpr uint32_t kBinarySignature = 0x28211407;
constexpr uint32_t kTableSignature = 0x53445049;    // "IPDS"
constexpr uint32_t kHarvestSignature = 0x56524148;  // "HARV"
constexpr uint32_t kGcTableId = 0x4347;
constexpr size_t kBinaryHeader = 0x3c;
constexpr size_t kIpHeader = 0x50;
constexpr size_t kHarvestTable = 0x88;
enum Table { kIpDiscovery = 0, kGc = 1, kHarvest = 2 };

class Blob {
 public:
  template <typename T>
  void Put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    StoreLe(&bytes_[at], value);
  }
  void Zero(size_t count) { bytes_.resize(bytes_.size() + count); }
  void AlignTo(size_t alignment) {
    while (bytes_.size() % alignment) bytes_.push_back(0);
  }
  template <typename T>
  void Patch(size_t at, T value) {
    StoreLe(&bytes_[at], value);
  }
  // The sum of all bytes, modulo 2^16: the checksum of this format.
  uint16_t Sum(size_t from, size_t to) const {
    uint16_t sum = 0;
    for (size_t i = from; i < to; i++) sum = static_cast<uint16_t>(sum + bytes_[i]);
    return sum;
  }
  size_t size() const { return bytes_.size(); }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace

std::vector<uint8_t> BuildDiscovery(const Asic& asic, bool wide_bases,
                                    std::span<const HarvestedIp> harvested) {
  Blob blob;
  blob.Zero(kBinaryHeader);
  const auto set_table = [&blob](Table table, size_t from) {
    const size_t entry = 0xc + 8 * static_cast<size_t>(table);
    blob.Patch(entry, static_cast<uint16_t>(from));
    blob.Patch(entry + 2, blob.Sum(from, blob.size()));
    blob.Patch(entry + 4, static_cast<uint16_t>(blob.size() - from));
    blob.AlignTo(4);
  };

  const size_t ips = blob.size();
  blob.Put(kTableSignature);
  blob.Put(asic.discovery_version);
  blob.Put<uint16_t>(0);  // size, below
  blob.Put<uint32_t>(0);  // id
  blob.Put<uint16_t>(1);  // dies
  blob.Put<uint16_t>(0);  // die id
  blob.Put(static_cast<uint16_t>(ips + kIpHeader));
  blob.Zero(ips + 0x4e - blob.size());
  blob.Put<uint8_t>(wide_bases ? 1 : 0);
  blob.Put<uint8_t>(0);
  blob.Put<uint16_t>(0);  // die id
  blob.Put(static_cast<uint16_t>(asic.ips.size()));
  for (const AsicIp& ip : asic.ips) {
    blob.Put(ip.hw_id);
    blob.Put(ip.instance);
    blob.Put(static_cast<uint8_t>(ip.bases.size()));
    blob.Put(ip.version.major);
    blob.Put(ip.version.minor);
    blob.Put(ip.version.revision);
    blob.Put<uint8_t>(0);  // harvest, or sub-revision and variant
    for (uint32_t base : ip.bases) wide_bases ? blob.Put<uint64_t>(base) : blob.Put(base);
  }
  blob.Patch(ips + 6, static_cast<uint16_t>(blob.size() - ips));
  set_table(kIpDiscovery, ips);

  const size_t gc = blob.size();
  blob.Put(kGcTableId);
  blob.Put(asic.gc.major);
  blob.Put(asic.gc.minor);
  blob.Put(static_cast<uint32_t>(0xc + 4 * asic.gc.words.size()));
  for (uint32_t word : asic.gc.words) blob.Put(word);
  set_table(kGc, gc);

  const size_t harvest = blob.size();
  blob.Put(kHarvestSignature);
  blob.Put<uint32_t>(0);  // version
  for (const HarvestedIp& ip : harvested.first(std::min<size_t>(harvested.size(), 32))) {
    blob.Put(ip.hw_id);
    blob.Put(ip.instance);
    blob.Put<uint8_t>(0);
  }
  blob.Zero(harvest + kHarvestTable - blob.size());
  set_table(kHarvest, harvest);

  blob.Patch<uint32_t>(0, kBinarySignature);
  blob.Patch<uint16_t>(4, 2);  // version 2.0 of the binary
  blob.Patch(0xa, static_cast<uint16_t>(blob.size()));
  blob.Patch(8, blob.Sum(0xa, blob.size()));
  std::vector<uint8_t> bytes = blob.Take();
  bytes.resize(kDiscoverySize);
  return bytes;
}

}  // namespace tg::sim
