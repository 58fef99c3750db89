// Exit codes of rpcreplay; those of rpcdecode where they mean the same.
#pragma once

namespace tg::replay {

enum ExitCode : int {
  kExitOk = 0,
  kExitDiverged = 1,  // the other side did something else than recorded
  kExitUsage = 2,
  kExitUnreadable = 3,  // no trace, or a socket that cannot be used
  kExitLacking = 4,     // the trace lacks what playing it needs, or ends too soon
  kExitSilent = 5,      // the other side stopped answering
  kExitInterrupted = 130,
};

}  // namespace tg::replay
