// Page faults that the hubs latched, as the client read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/access.h"
#include "schemas/amd/fault.h"

namespace tg::model {

struct Fault {
  Stamp first;  // read with this status
  Stamp last;
  bool gc_hub = true;
  uint32_t raw = 0;
  std::optional<uint32_t> raw_high;  // gfx12
  amd::FaultStatus status;
  std::optional<uint32_t> address_low, address_high;
  Stamp cleared;
  // Virtual address of the page, when both halves were read.
  std::optional<uint64_t> va() const {
    if (!address_low || !address_high) return std::nullopt;
    return amd::FaultAddress(*address_low, *address_high);
  }
  std::string text;  // "write by SDMA0, entry not valid, vmid 0"
};

class Faults {
 public:
  const std::vector<Fault>& all() const { return faults_; }  // the first 256
  uint64_t total() const { return total_; }
  const Fault* newest() const { return faults_.empty() ? nullptr : &faults_.back(); }
  // Last value read of the status register of a hub; 0 is "no fault", nothing: never read.
  std::optional<uint32_t> status(bool gc_hub) const { return gc_hub ? status_gc_ : status_mm_; }

  // ---- for the device that feeds it ----
  void SetGc(amd::IpVersion gc) { gc_ = gc; }
  void OnRegister(const RegisterAccess& access);

 private:
  void OnStatus(const RegisterAccess& access, bool gc_hub);
  amd::IpVersion gc_{11, 0, 0};
  std::vector<Fault> faults_;
  uint64_t total_ = 0;
  std::optional<uint32_t> status_gc_, status_mm_;
};

}  // namespace tg::model
