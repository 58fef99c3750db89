// `rpcreplay client`: a client that boots the card, copies and waits, as tinygrad does.
#pragma once

namespace CLI {
class App;
}

namespace tg::client {

// Adds the subcommand. When the command line names it, it runs inside app.parse() and leaves the
// program's exit code in `exit_code`: 0 done, 1 the device hung or data came back wrong, 2 usage, 3
// the server could not be reached or refused.
void AddClientCommand(CLI::App& app, int& exit_code);

}  // namespace tg::client
