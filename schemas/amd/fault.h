// Page-fault status of the GPU's VM hubs: GCVM_/MMVM_L2_PROTECTION_FAULT_STATUS (gfx12:
// _STATUS_LO32, _HI32) and _ADDR_LO32/_HI32. Latched until CNTL.clear_protection_fault_status_addr
// is written.
//
// Bits: kernel gc_*_sh_mask.h; names of clients: kernel gmc_v11_0.c and gmc_v9_0.c.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schemas/amd/ip.h"

namespace tg::amd {

struct FaultStatus {
  bool more_faults = false;
  uint8_t walker_error = 0;
  uint8_t permissions = 0;  // bit 0 entry not valid, 1 read, 2 write, 3 execute not allowed
  bool mapping_error = false;
  uint16_t client = 0;
  bool write = false;
  bool atomic = false;
  uint8_t vmid = 0;
  bool vf = false;
  uint8_t vfid = 0;
  bool prt = false;  // gfx11 and later
  bool uce = false;  // gfx9, gfx12
  bool fed = false;  // gfx9, gfx11.0.3, gfx12
};

// `high` is STATUS_HI32 of gfx12, else 0.
FaultStatus DecodeFaultStatus(IpVersion gc, uint32_t status, uint32_t high = 0);
// "TCP", "SDMA0", or "client 77".
std::string FaultClientName(IpVersion gc, bool gc_hub, uint16_t client);
// True for clients that are SDMA engines (they decide which engine hangs).
bool IsSdmaFaultClient(IpVersion gc, uint16_t client);
// Virtual address of the page: ADDR_HI32[3:0] and ADDR_LO32 hold it >> 12.
constexpr uint64_t FaultAddress(uint32_t low, uint32_t high) {
  return ((static_cast<uint64_t>(high & 0xf) << 32) | low) << 12;
}
// "write by SDMA0, entry not valid, vmid 0"
std::string DescribeFault(IpVersion gc, bool gc_hub, const FaultStatus& status);

}  // namespace tg::amd
