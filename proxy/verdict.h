// Says, when a client is gone, what its session came to: the verdict that `rpcdecode` would give,
// and the command that shows more.
//
// The trace is read back from its file, by a thread of its own and only after the client is gone,
// so forwarding never waits for it. It goes on where it stopped at the client before, so a trace is
// read once. Bounded: some megabytes of device state, and a budget of time for each client; when a
// trace is too long for that, it says so instead of a verdict.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proxy/log.h"

namespace tg::proxy {

struct VerdictOptions {
  uint64_t settle_ms = 300;   // without a new packet: the last snapshots are in
  uint64_t budget_ms = 8000;  // of reading, for one client
};

class VerdictTeller {
 public:
  // `trace` is the file; it is opened when the first client is gone.
  VerdictTeller(std::string trace, LogFn log, VerdictOptions options = {});
  ~VerdictTeller();  // waits for a reading in progress
  VerdictTeller(const VerdictTeller&) = delete;
  VerdictTeller& operator=(const VerdictTeller&) = delete;

  // A client is gone. Returns at once.
  void ClientGone();
  // The trace is closed: says what was not said yet, then returns.
  void TraceClosed();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::proxy
