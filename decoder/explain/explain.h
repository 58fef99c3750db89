// Says why it hung: all rules over the facts of a trace, ranked; the first is the verdict.
#pragma once

#include <string>
#include <vector>

#include "decoder/explain/facts.h"
#include "decoder/explain/finding.h"

namespace tg::explain {

struct Explanation {
  std::vector<Finding> findings;  // most certain first; never empty
  std::string noticed;            // who noticed and when: "the client's wait, after 30 s"
  std::string recovery;           // what recovery reset, and what it left
  std::string next_start;         // what the next start of the driver will do
  const Finding& verdict() const { return findings.front(); }
};

// `facts` as Derive() left them.
Explanation Explain(const Facts& facts);

}  // namespace tg::explain
