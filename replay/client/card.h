// The card as the client's boot code sees it: registers by name, VRAM by offset, waiting with a
// limit. Access for access what tinygrad's AM driver does (amdev.py).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "replay/client/port.h"
#include "schemas/amd/discovery.h"
#include "schemas/amd/registers.h"

namespace tg::client {

class Card {
 public:
  using Fields = std::initializer_list<std::pair<std::string_view, uint32_t>>;

  // Maps the BARs and reads the discovery table.
  explicit Card(Port& port);

  Port& port() { return port_; }
  const amd::Discovery& discovery() const { return discovery_; }
  amd::IpVersion version(uint16_t hw_id) const;
  bool gfx12() const { return version(amd::kHwGc).major >= 12; }
  uint64_t vram_size() const { return vram_size_; }
  bool large_bar() const { return large_bar_; }
  uint64_t fb_base() const { return fb_base_; }
  void set_fb_base(uint64_t base) { fb_base_ = base; }

  uint32_t Get(std::string_view name);
  uint32_t Field(std::string_view name, std::string_view field);
  void Set(std::string_view name, uint32_t value);
  // `value` with these fields put in.
  void Set(std::string_view name, Fields fields, uint32_t value = 0);
  // `value` with one field replaced; nothing is accessed.
  uint32_t WithField(std::string_view name, std::string_view field, uint32_t content,
                     uint32_t value = 0) const;
  // Reads, changes the fields, writes.
  void Update(std::string_view name, Fields fields);
  // Two registers: stem + low, stem + high.
  void SetPair(const std::string& stem, std::string_view low, std::string_view high,
               uint64_t value);
  uint64_t DwordOf(std::string_view name) const;
  void SetDword(uint64_t dword, uint32_t value);
  uint32_t GetDword(uint64_t dword);

  void ReadVram(uint64_t offset, std::span<uint8_t> out);
  void WriteVram(uint64_t offset, std::span<const uint8_t> in);
  uint64_t ReadVram64(uint64_t offset);
  void WriteVram64(uint64_t offset, uint64_t value);
  uint32_t ReadVram32(uint64_t offset);
  void ZeroVram(uint64_t offset, uint64_t size);

  void FlushHdp();
  // Reads until it holds; an error that names `what` after `limit`.
  void Wait(const std::function<bool()>& holds, std::string_view what,
            std::chrono::milliseconds limit = std::chrono::seconds(10));

 private:
  void DisableAspm();
  void Discover();

  Port& port_;
  uint64_t bar5_size_ = 0;
  uint64_t vram_size_ = 0;
  bool large_bar_ = false;
  uint64_t fb_base_ = 0;
  amd::Discovery discovery_;
  amd::RegisterMap map_;
};

}  // namespace tg::client
