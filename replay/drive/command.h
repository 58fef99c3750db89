// `rpcreplay drive`: the command line of the client that plays a trace.
#pragma once

namespace CLI {
class App;
}

namespace tg::replay {

// Adds the subcommand. When the command line names it, it runs inside app.parse() and leaves the
// program's exit code (exit_code.h) in `exit_code`.
void AddDriveCommand(CLI::App& app, int& exit_code);

}  // namespace tg::replay
