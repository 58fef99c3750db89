// What the driver can do to this card: it differs by generation.
//
// tinygrad a9069c17 and 0.14.0, runtime/support/am/{amdev,ip}.py: SDMA is reset when the driver
// ends only from SDMA 6 on; a hive (several cards coupled by XGMI) is never reset by one driver, it
// raises "Malformed state" instead of a full boot; on gc 9.5.0 releases since 0.14.0 boot a card
// that AM set up only partially, whatever AM_RESET says.
#pragma once

#include <string>

#include "decoder/explain/facts.h"
#include "decoder/explain/finding.h"

namespace tg::explain {

// SDMA is soft-reset when the driver ends in order.
bool ResetsSdmaAtExit(const Facts& facts);

// The whole card is to be reset because of `why`; `then`: what is left if that does not help.
void AdviseCardReset(const Facts& facts, Finding& f, const std::string& why,
                     const std::string& then = "if it fails again, power-cycle");

}  // namespace tg::explain
