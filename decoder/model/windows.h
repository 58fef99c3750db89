// Index/data register pairs, through which what lies outside BAR5 (or outside a small BAR0) is
// reached.
//
//   MM_INDEX (byte 0), MM_INDEX_HI (24), MM_DATA (4): bit 31 of INDEX set: VRAM at
//     HI << 31 | INDEX & 0x7fffffff; clear: the register at byte INDEX.
//   RSMU_INDEX, _INDEX_HI, RSMU_DATA: the register at that byte address.
//   PCIE_INDEX2, _INDEX2_HI, PCIE_DATA2: bits 31:0 byte address, 33:32 die, 34 set for a die.
#pragma once

#include <cstdint>
#include <optional>

#include "decoder/model/roles.h"
#include "decoder/model/types.h"

namespace tg::model {

struct WindowTarget {
  Via via = Via::kDirect;
  bool vram = false;     // else a register
  uint64_t address = 0;  // byte
  uint8_t die = 0;
};

class Windows {
 public:
  // An access to the register with that role. Gives the real target of a data register. `blind` is
  // set when a data register is used while its index is not known.
  std::optional<WindowTarget> OnAccess(Role role, uint32_t value, bool write, bool* blind);
  // The register names changed: what were taken for indices may have been others.
  void Forget() { *this = Windows(); }

 private:
  std::optional<uint32_t> mm_index_, mm_index_hi_, rsmu_index_, rsmu_index_hi_, pcie_index_,
      pcie_index_hi_;
};

}  // namespace tg::model
