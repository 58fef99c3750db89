// The power controller's (SMU's) mailbox: which number is which message, per firmware interface.
//
// Registers mmMP1_SMN_C2PMSG_n: 90 response, 82 argument, 66 message; the debug mailbox has 54, 53
// and 75 in these roles. A message: write 90 = 0, 82 = argument, 66 = message; poll 90 until it is
// 1; perhaps read 82. tinygrad waits for 1 only: any other answer shows as a 10 s poll.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schemas/amd/ip.h"

namespace tg::amd {

inline constexpr uint32_t kSmuNoAnswer = 0;
inline constexpr uint32_t kSmuOk = 1;
inline constexpr uint32_t kSmuDebugMode1Reset = 2;  // debug mailbox

// "SetSoftMinByFreq"; "message 0x77" when the version or the number is not known.
std::string SmuMessageName(IpVersion mp1, uint32_t message);
std::optional<uint32_t> SmuMessageNumber(IpVersion mp1, std::string_view name);
std::string_view SmuDebugMessageName(uint32_t message);  // empty if not known
std::string SmuClockName(IpVersion mp1, uint32_t clock);
std::string SmuResponseText(uint32_t response);  // "ok", "rejected: busy", ...
// "UCLK level 2", "FCLK 1800 MHz", or the number in hex.
std::string SmuArgumentText(IpVersion mp1, uint32_t message, uint32_t argument);

}  // namespace tg::amd
