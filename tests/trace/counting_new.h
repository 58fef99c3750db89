// Counts this program's heap allocations, of all threads (operator new is replaced).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tg::trace::testing {

uint64_t Allocations();
// The largest single one since the last call.
size_t LargestAllocation();

}  // namespace tg::trace::testing
