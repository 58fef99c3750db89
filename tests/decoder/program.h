// Runs the rpcdecode program and gives back what it said.
#pragma once

#include <string>
#include <vector>

namespace tg::testing {

struct ProgramResult {
  int exit_code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

// No shell between: arguments go as they are.
ProgramResult RunDecoder(const std::vector<std::string>& arguments);

}  // namespace tg::testing
