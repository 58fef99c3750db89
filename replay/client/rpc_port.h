// A port over the TinyGPU RPC: both flavours, Unix socket with shared memory and TCP without.
#pragma once

#include <chrono>
#include <memory>

#include "replay/client/port.h"
#include "schemas/result.h"
#include "schemas/wire/address.h"

namespace tg::client {

struct RpcOptions {
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds reply_timeout{30'000};
};

// Connects, and makes sure that a simulated card is what answers (see replay/proof.h): this client
// would load meaningless firmware into a real one.
Result<std::unique_ptr<Port>> ConnectPort(const wire::Address& address, const RpcOptions& options);

}  // namespace tg::client
