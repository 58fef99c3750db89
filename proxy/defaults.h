// Where things are when nobody says otherwise: as tinygrad itself computes it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schemas/result.h"
#include "schemas/wire/address.h"

namespace tg::proxy {

using EnvironmentFn = std::function<const char*(const char*)>;  // as getenv

// Python's tempfile.gettempdir(): TMPDIR, TEMP, TMP, /tmp, /var/tmp, /usr/tmp, the working
// directory; the first that is a directory one can write to.
std::string TempDir(const EnvironmentFn& env);

// `<tempdir>/rpcproxy.sock`.
wire::Address DefaultListen(const EnvironmentFn& env);

// The server the client would connect to: the first host of REMOTE (port 6667), else
// APL_REMOTE_SOCK, else `<tempdir>/tinygpu.sock`. APL_REMOTE_SOCK is passed over when it is where
// we listen ourselves (a shell that already points its clients at the proxy); `notes` says so.
struct UpstreamChoice {
  wire::Address address;
  std::vector<std::string> notes;
};
Result<UpstreamChoice> DefaultUpstream(const EnvironmentFn& env,
                                       const std::optional<wire::Address>& listen);

// TinyGPU.app's executable in its standard place; empty where there is no such file.
std::string DefaultApp();

// tinygrad runs `pkill -f TinyGPU` and `pkill -f tinygpu.sock`, which end any process that has such
// a word in its command line. The offending arguments of ours.
std::vector<std::string> DangerousArguments(int argc, const char* const* argv);

}  // namespace tg::proxy
