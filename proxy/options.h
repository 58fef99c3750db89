// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proxy/proxy.h"
#include "proxy/rules/policy.h"
#include "schemas/result.h"

namespace tg::proxy {

struct CommandLine {
  enum class Verb : uint8_t { kServe, kRun, kStatus, kExit };
  Verb verb = Verb::kServe;
  int exit_code = 0;  // kExit: help was printed, or the command line was wrong

  std::optional<wire::Address> listen;    // as given
  std::optional<wire::Address> upstream;  // as given
  std::string trace;                      // empty: a name with date and time
  std::string log_level = "info";
  std::string durability = "process";
  std::string sysmem = "rings";
  std::string app;
  bool verdict = true;     // say what a session came to when its client is gone
  SessionOptions session;  // without `rules`
  RuleOptions rules;
  std::vector<std::string> command;  // kRun
  bool json = false;                 // kStatus
};

// Prints help and usage errors itself.
CommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace tg::proxy
