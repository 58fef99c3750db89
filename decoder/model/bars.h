// PCI: configuration space as far as it was accessed, BARs, bus-master toggles.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/types.h"

namespace tg::model {

// What the address word of a MAP_BAR reply is.
enum class AddressKind : uint8_t {
  kUnknown,
  kServerVirtual,  // TinyGPU.app: where the server process has mapped the BAR; no bus address
  kPhysical,       // serve.py: the BAR's bus address
};
std::string_view AddressKindName(AddressKind kind);  // "server virtual address"

struct Bar {
  uint32_t index = 0;
  uint64_t size = 0;
  uint64_t address = 0;
  AddressKind kind = AddressKind::kUnknown;
  Stamp mapped;         // MAP_BAR with status 0; else the fields above are not known
  std::string refused;  // why MAP_BAR failed ("no reason given")
  Stamp refused_at;
  uint64_t reads = 0, writes = 0;  // calls
  uint64_t bytes_read = 0, bytes_written = 0;
  uint64_t highest = 0;  // one past the highest byte accessed
};

struct ConfigAccess {
  Stamp at;
  uint32_t offset = 0;
  uint32_t size = 0;
  uint32_t value = 0;
  bool write = false;
};

// One change of the PCI command register's bus-master bit.
struct BusMasterToggle {
  Stamp at;
  bool on = false;
};

class Bars {
 public:
  const Bar* Find(uint32_t index) const;
  const std::vector<Bar>& all() const { return bars_; }  // ascending by index

  std::optional<uint16_t> vendor_id() const { return Word16(0); }
  std::optional<uint16_t> device_id() const { return Word16(2); }
  // The latest value read or written; bits: 0 I/O, 1 memory, 2 bus master, 10 INTx off.
  std::optional<uint16_t> command() const { return Word16(4); }
  std::optional<uint32_t> Config(uint32_t offset, uint32_t size) const;  // 1, 2 or 4 bytes
  // A read of configuration space that gave all ones: the device does not answer at all.
  std::optional<Stamp> config_all_ones() const;
  Stamp last_config_ok() const { return config_ok_; }
  const std::vector<ConfigAccess>& config_log() const { return config_log_; }  // the first 256
  uint64_t config_accesses() const { return config_accesses_; }
  const std::vector<BusMasterToggle>& bus_master() const { return bus_master_; }
  Vendor vendor() const;

  struct Resize {
    Stamp at;
    uint32_t bar = 0;
    bool ok = false;
    std::string text;
  };
  const std::vector<Resize>& resizes() const { return resizes_; }
  struct ResetCall {
    Stamp at;
    bool ok = false;
    std::string text;
  };
  const std::vector<ResetCall>& resets() const { return resets_; }

  // ---- for the device that feeds it ----
  Bar& Touch(uint32_t index);
  void OnConfig(const ConfigAccess& access, uint64_t times);
  void OnResize(Resize resize);
  void OnReset(ResetCall reset);

 private:
  std::optional<uint16_t> Word16(uint32_t offset) const;
  static constexpr uint32_t kConfigSize = 4096;

  std::vector<Bar> bars_;
  std::vector<uint8_t> config_;  // kConfigSize bytes once touched
  std::vector<bool> config_known_;
  std::vector<ConfigAccess> config_log_;
  uint64_t config_accesses_ = 0;
  std::optional<Stamp> config_ones_;
  Stamp config_ok_;
  std::vector<BusMasterToggle> bus_master_;
  std::vector<Resize> resizes_;
  std::vector<ResetCall> resets_;
};

}  // namespace tg::model
