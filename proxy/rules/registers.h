// Which registers a request touches, known before it is forwarded.
//
// A register is named by its address in the card's register space. It is reached at that offset of
// BAR 5, or through an index and a data register (MM_INDEX/MM_DATA, RSMU_*, PCIE_*2): then the
// message shows the data register's offset, and the address is what was last written to the index.
// Both count as accesses to the register.
//
// Where names and index registers lie differs from card to card. It is known from `--asic`, or from
// the card's own IP discovery table once the client has read it through this connection (its
// driver's first step; the registers it needs for that lie at the same place in all cards). Until
// then most accesses to BAR 5 cannot be told apart, and Touch::kUnknown says so. The first table
// counts. A device number of its own (TCP) has a map of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/roles.h"
#include "decoder/model/windows.h"
#include "schemas/amd/registers.h"
#include "schemas/result.h"
#include "schemas/wire/framer.h"

namespace tg::model {
class Device;
}

namespace tg::proxy {

// "navi31", "navi48", ... or "0x744c": a map with the bases that such boards share.
Result<amd::RegisterMap> MapOfAsic(std::string_view name);
std::string KnownAsics();  // "navi31 navi33 ..."

// Addresses, of all instances, of the registers that a name or pattern fits; ascending.
std::vector<uint64_t> AddressesOf(const amd::RegisterMap& map, std::string_view pattern);

// Registers of BAR 5 that one request reaches.
struct Touched {
  std::vector<uint64_t> addresses;  // dword addresses: the message's own, then those behind windows
  bool unknown = false;  // more than these: an index that was not seen, or a map that is not known
};

class RegisterScope {
 public:
  // `asic`: nullptr to learn from the traffic.
  explicit RegisterScope(std::shared_ptr<const amd::RegisterMap> asic);
  ~RegisterScope();

  // nullptr: not known yet.
  const amd::RegisterMap* map() const { return map_.get(); }
  // What an MMIO_READ or MMIO_WRITE of BAR 5 would reach. `payload`: as much as is here.
  Touched Look(const wire::RequestHeader& header, std::span<const uint8_t> payload) const;

  // Everything that is forwarded, and its answer (kReply and kBodyChunk). True from OnReply when
  // the map has just become known.
  void OnForwarded(const wire::RequestEvent& event, uint64_t call);
  bool OnReply(const wire::ReplyEvent& event);

 private:
  model::Role RoleOf(uint64_t address) const;
  Touched Walk(const wire::RequestHeader& header, std::span<const uint8_t> payload,
               model::Windows& windows) const;
  void Know(std::shared_ptr<const amd::RegisterMap> map);

  std::shared_ptr<const amd::RegisterMap> map_;
  std::unique_ptr<model::RoleMap> roles_;
  model::Windows windows_;
  std::unique_ptr<model::Device> learner_;  // until the map is known
  uint64_t fed_ = 0;
  std::vector<uint8_t> body_;  // of a reply that comes in pieces
};

}  // namespace tg::proxy
