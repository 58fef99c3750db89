#include "replay/client/card.h"

#include <array>
#include <set>

#include "schemas/amd/vram_layout.h"
#include "schemas/wire/bytes.h"

namespace tg::client {
namespace {

constexpr uint32_t kVram = 0, kDoorbells = 2, kRegisters = 5;
constexpr uint32_t kCapPointer = 0x34, kCapExpress = 0x10, kLinkControl = 0x10;

}  // namespace

Card::Card(Port& port) : port_(port) {
  port.ResizeBar(kVram);
  DisableAspm();
  const uint64_t bar0 = port.MapBar(kVram);
  port.MapBar(kDoorbells);
  bar5_size_ = port.MapBar(kRegisters);
  vram_size_ = static_cast<uint64_t>(GetDword(amd::kConfigMemsizeByte / 4)) << 20;
  large_bar_ = bar0 >= vram_size_;
  Discover();
}

void Card::DisableAspm() {
  uint32_t at = port_.CfgRead(kCapPointer, 1) & 0xfc;
  std::set<uint32_t> seen;
  while (at && seen.insert(at).second && port_.CfgRead(at, 1) != kCapExpress)
    at = port_.CfgRead(at + 1, 1) & 0xfc;
  if (!at || !seen.count(at)) return;
  const uint32_t control = port_.CfgRead(at + kLinkControl, 2) & ~3u;
  port_.CfgWrite(at + kLinkControl, 2, control);
  port_.CfgRead(at + kLinkControl, 2);
}

void Card::Discover() {
  std::vector<uint8_t> table(amd::kDiscoverySize);
  const uint64_t at = vram_size_ - amd::kDiscoveryFromEnd;
  if (large_bar_) {
    ReadVram(at, table);
  } else {
    for (uint64_t done = 0; done < table.size(); done += 4) {
      const uint64_t address = at + done;
      SetDword(amd::kMmIndexHiByte / 4, static_cast<uint32_t>(address >> 31));
      SetDword(amd::kMmIndexByte / 4, static_cast<uint32_t>(address & 0x7fffffff) | 0x80000000);
      StoreLe(&table[done], GetDword(amd::kMmDataByte / 4));
    }
  }
  auto parsed = amd::ParseDiscovery(table);
  if (!parsed) throw Trouble{parsed.error()};
  discovery_ = *std::move(parsed);
  map_ = amd::RegisterMap(discovery_.ips);
}

amd::IpVersion Card::version(uint16_t hw_id) const {
  return discovery_.Version(hw_id).value_or(amd::IpVersion{});
}

uint64_t Card::DwordOf(std::string_view name) const {
  const auto byte = map_.Find(name);
  if (!byte) Throw(Error::Code::kUnsupported, "this card has no register " + std::string(name));
  return *byte / 4;
}

uint32_t Card::GetDword(uint64_t dword) {
  std::array<uint8_t, 4> bytes;
  uint64_t at = dword * 4;
  if (at >= bar5_size_) {
    SetDword(DwordOf("regBIF_BX_PF0_RSMU_INDEX"), static_cast<uint32_t>(at));
    at = DwordOf("regBIF_BX_PF0_RSMU_DATA") * 4;
  }
  port_.Read(kRegisters, at, bytes);
  return LoadLe<uint32_t>(bytes.data());
}

void Card::SetDword(uint64_t dword, uint32_t value) {
  std::array<uint8_t, 4> bytes;
  uint64_t at = dword * 4;
  if (at >= bar5_size_) {
    SetDword(DwordOf("regBIF_BX_PF0_RSMU_INDEX"), static_cast<uint32_t>(at));
    at = DwordOf("regBIF_BX_PF0_RSMU_DATA") * 4;
  }
  StoreLe(bytes.data(), value);
  port_.Write(kRegisters, at, bytes);
}

uint32_t Card::Get(std::string_view name) {
  return GetDword(DwordOf(name));
}
void Card::Set(std::string_view name, uint32_t value) {
  SetDword(DwordOf(name), value);
}

uint32_t Card::Field(std::string_view name, std::string_view field) {
  const uint32_t value = Get(name);
  return static_cast<uint32_t>(amd::GetField(*map_.FindDef(name), field, value).value_or(0));
}

void Card::Set(std::string_view name, Fields fields, uint32_t value) {
  for (const auto& [field, content] : fields) value = WithField(name, field, content, value);
  SetDword(DwordOf(name), value);
}

uint32_t Card::WithField(std::string_view name, std::string_view field, uint32_t content,
                         uint32_t value) const {
  DwordOf(name);  // an error that names the register, if there is none
  return static_cast<uint32_t>(amd::SetField(*map_.FindDef(name), field, content, value));
}

void Card::Update(std::string_view name, Fields fields) {
  Set(name, fields, Get(name));
}

void Card::SetPair(const std::string& stem, std::string_view low, std::string_view high,
                   uint64_t value) {
  Set(stem + std::string(low), static_cast<uint32_t>(value));
  Set(stem + std::string(high), static_cast<uint32_t>(value >> 32));
}

void Card::ReadVram(uint64_t offset, std::span<uint8_t> out) {
  port_.Read(kVram, offset, out);
}
void Card::WriteVram(uint64_t offset, std::span<const uint8_t> in) {
  port_.Write(kVram, offset, in);
}

uint64_t Card::ReadVram64(uint64_t offset) {
  std::array<uint8_t, 8> bytes;
  ReadVram(offset, bytes);
  return LoadLe<uint64_t>(bytes.data());
}

uint32_t Card::ReadVram32(uint64_t offset) {
  std::array<uint8_t, 4> bytes;
  ReadVram(offset, bytes);
  return LoadLe<uint32_t>(bytes.data());
}

void Card::WriteVram64(uint64_t offset, uint64_t value) {
  std::array<uint8_t, 8> bytes;
  StoreLe(bytes.data(), value);
  WriteVram(offset, bytes);
}

void Card::ZeroVram(uint64_t offset, uint64_t size) {
  const std::vector<uint8_t> zeros(size);
  WriteVram(offset, zeros);
}

void Card::FlushHdp() {
  SetDword(Get("regBIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL") / 4, 0);
}

void Card::Wait(const std::function<bool()>& holds, std::string_view what,
                std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end)
      Throw(Error::Code::kIo,
            std::string(what) + ": not within " + std::to_string(limit.count()) + " ms");
  }
}

}  // namespace tg::client
