// What a run of the simulator came to: requests, engine work, faults, rules of --hang that struck,
// and the registers that were asked for and are not modelled.
#pragma once

#include <string>

#include "replay/sim/gpu.h"
#include "replay/sim/protocol.h"

namespace tg::sim {

std::string ReportText(const Gpu& gpu, const ServerStats& stats);
// {"schema": 1, "asic", "clients", "requests": {NAME: n}, "counters": {name: n}, "hangs": [...],
//  "gaps": [{"dword", "name", "reads", "writes"}], "missing": [...]}
std::string ReportJson(const Gpu& gpu, const ServerStats& stats);

}  // namespace tg::sim
