// serve.py's side of the protocol: the same frames over TCP, without descriptors.
//
//   - PROBE hands out device numbers; any other command for a number not handed out is refused
//     ("device N not probed"); PING needs none;
//   - errors have status 1 and a text, Python's own for the mistakes it does not check itself;
//   - a read past the end of a BAR or a region announces all of it and sends what is there;
//   - a write that fails ends the session, but the socket stays open until the next client comes;
//   - mapped BARs and memory regions outlive the client; handles go on counting.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "replay/sim/protocol.h"
#include "replay/sim/region.h"

namespace tg::sim {

class TcpProtocol : public Protocol {
 public:
  explicit TcpProtocol(Gpu& gpu) : Protocol(gpu) {}
  SessionEnd Serve(Link& link) override;

 private:
  // An error text, or nothing: answered.
  struct Failure {
    std::string text;
    bool failed = false;
  };
  Failure Handle(Link& link, const wire::RequestHeader& request, bool& alive);
  Failure Probe(Link& link, const wire::RequestHeader& request, bool& alive);
  Failure MapBar(Link& link, const wire::RequestHeader& request, bool& alive);
  Failure MapSysmem(Link& link, const wire::RequestHeader& request, bool& alive);
  Failure ReadBar(Link& link, const wire::RequestHeader& request, bool& alive);
  Failure WriteBar(Link& link, const wire::RequestHeader& request, bool& alive);
  Failure ReadSysmem(Link& link, const wire::RequestHeader& request, bool& alive);
  Failure WriteSysmem(Link& link, const wire::RequestHeader& request, bool& alive);
  bool ReceivePayload(Link& link, uint64_t size);
  bool SendBody(Link& link, uint64_t announced, std::span<const uint8_t> body);

  bool probed_ = false;
  std::array<bool, 6> mapped_{};
  std::vector<Region> regions_;
  uint64_t region_bytes_ = 0;
  std::vector<uint8_t> payload_;
};

}  // namespace tg::sim
