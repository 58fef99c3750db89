// One function per possible cause; each looks at the facts and adds what it finds, or nothing.
// The numbers are the rows of the decision table these rules implement (hang specification, 6).
#pragma once

#include <vector>

#include "decoder/explain/facts.h"
#include "decoder/explain/finding.h"

namespace tg::explain {

using Findings = std::vector<Finding>;

void RuleHealthy(const Facts& facts, Findings& out);         // 1
void RuleSlotLeak(const Facts& facts, Findings& out);        // 2
void RuleRingFull(const Facts& facts, Findings& out);        // the other spin without limit
void RuleAllOnes(const Facts& facts, Findings& out);         // 3
void RuleServerGone(const Facts& facts, Findings& out);      // 4
void RulePageFault(const Facts& facts, Findings& out);       // 5, 6
void RuleBadPacket(const Facts& facts, Findings& out);       // 7
void RuleErrorInterrupt(const Facts& facts, Findings& out);  // 11, and what has no row
void RuleComputeHang(const Facts& facts, Findings& out);     // 8
void RuleLostKick(const Facts& facts, Findings& out);        // 10
void RuleSdmaStuck(const Facts& facts, Findings& out);       // 9, 11, 12
void RuleHiveRefused(const Facts& facts, Findings& out);     // gfx9
void RuleKilled(const Facts& facts, Findings& out);          // 13
void RuleMailbox(const Facts& facts, Findings& out);         // 14, 15
void RuleHub(const Facts& facts, Findings& out);             // 16, 17 and the other boot polls
void RuleRas(const Facts& facts, Findings& out);             // 18
void RuleRefused(const Facts& facts, Findings& out);         // 19, B05
void RuleSecondClient(const Facts& facts, Findings& out);    // 20
void RuleUnanswered(const Facts& facts, Findings& out);      // 21, B10
void RuleShortReply(const Facts& facts, Findings& out);      // T3
void RuleNotStarted(const Facts& facts, Findings& out);      // 10, 11: an engine that never began
void RuleShifted(const Facts& facts, Findings& out);         // answers taken for others
void RulePollStuck(const Facts& facts, Findings& out);       // B03, B06, other cards
void RuleSilentEnd(const Facts& facts, Findings& out);       // other cards
void RuleBarAddress(const Facts& facts, Findings& out);      // B06
void RuleOverrun(const Facts& facts, Findings& out);         // B08
void RuleDesync(const Facts& facts, Findings& out);          // B04
void RuleHang(const Facts& facts, Findings& out);            // a hang that none of these names
void RuleIncomplete(const Facts& facts, Findings& out);      // the trace itself

// For parts of the card that a mode-1 reset restarts: if this session asked for one before `call`,
// it did not help.
void AfterReset(const Facts& facts, uint64_t call, Finding& finding);

}  // namespace tg::explain
