// Bus interface: what lies between PCIe and the blocks. Index/data windows, HDP flush, memory size,
// and whether a doorbell is let through and to whom.
#pragma once

#include <cstdint>

#include "replay/sim/card.h"

namespace tg::sim {

class Nbio {
 public:
  explicit Nbio(Card& card);

  // Who a doorbell at this dword index may reach, by the aperture switch and the routing entries.
  enum class Route : uint8_t { kGated, kCompute, kSdma };
  Route RouteDoorbell(uint32_t dword) const;

  // An uncorrectable error, of the ATHUB or the controller: its status bit is set until the client
  // clears it, the engines stop.
  void FatalError(bool athub);

 private:
  void DefineVramWindow();
  void DefineRegisterWindows();
  void DefineHdp();
  void DefineDoorbells();
  void ClearErrors();
  uint32_t VramWindowRead() const;
  void VramWindowWrite(uint32_t value);

  Card& card_;
  Register mm_index_, mm_index_hi_, mm_data_;
  Register rsmu_index_;
  Register pcie_index_, pcie_index_hi_;
  Register aperture_, compute_entry_, sdma_entry_;
  Register doorbell_int_;
};

}  // namespace tg::sim
