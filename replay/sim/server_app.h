// TinyGPU.app's side of the protocol, with its rules and its corner cases:
//
//   - the header is taken with ONE receive of 33 bytes; fewer bytes end the session;
//   - MMIO_WRITE is posted: an invalid one is read and dropped without a word;
//   - a payload cut short by the client's end is still copied in full, stale bytes and all;
//   - 64 MiB buffer, 128 regions of at least 16 KiB, at most 32 DMA segments each, whose table
//   stands
//     at the start of the region, ended by a pair of length 0;
//   - errors have status 1 and no text; commands it does not know too, payload and all (it is then
//     read as headers);
//   - regions end with their client. The card is left as it is.
//
// Where the real server would read or write out of bounds (BAR 256, ranges that wrap, payloads over
// 64 MiB) this one drops the request and counts it.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "replay/sim/protocol.h"
#include "replay/sim/region.h"

namespace tg::sim {

inline constexpr uint32_t kAppDmaSegments = 32;
inline constexpr uint64_t kAppRegionMinimum = 0x4000;

class AppProtocol : public Protocol {
 public:
  explicit AppProtocol(Gpu& gpu);
  SessionEnd Serve(Link& link) override;

 private:
  bool Handle(Link& link, const wire::RequestHeader& request, const HangRule* refuse);
  bool MapBar(Link& link, uint32_t bar);
  bool MapSysmem(Link& link, uint64_t size);
  bool Read(Link& link, const wire::RequestHeader& request);
  void Write(Link& link, const wire::RequestHeader& request, bool drop);
  bool ValidRange(const wire::RequestHeader& request);
  void EndSession();

  std::unique_ptr<uint8_t[]> bulk_;  // 64 MiB, kept from request to request and client to client
  std::array<bool, wire::kAppBarLimit> mapped_{};
  std::vector<Region> regions_;
};

}  // namespace tg::sim
