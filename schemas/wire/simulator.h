// How a server says that nothing real stands behind it: a PING whose arg0 is this word is answered
// with the word and its complement. See replay/proof.h for why.
#pragma once

#include <cstdint>

namespace tg::wire {

inline constexpr uint64_t kSimulatorWord = 0x59414c5045524d53;  // "SMREPLAY", little-endian

}  // namespace tg::wire
