// Runs the rpcdecode program and gives back what it said.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tg::testing {

struct ProgramResult {
  int exit_code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

// No shell between: arguments go as they are.
ProgramResult RunDecoder(const std::vector<std::string>& arguments);

// The same with input, output and errors on a terminal of that many columns, and these variables in
// the environment (PAGER and NO_COLOR are not, unless given). All it wrote is in `out`, its lines
// ended by "\r\n" as a terminal has them.
ProgramResult RunDecoderOnTerminal(
    const std::vector<std::string>& arguments,
    const std::vector<std::pair<std::string, std::string>>& environment = {}, int columns = 100);

}  // namespace tg::testing
