#include "schemas/amd/fault.h"

#include <iterator>

namespace tg::amd {
namespace {

// Index is the client id; empty: not named.
constexpr std::string_view kGfx11Clients[] = {
    "CB/DB",      "",           "GE1", "GE2", "CPF",   "CPC",   "CPG", "RLC",   "TCP",
    "SQC (inst)", "SQC (data)", "SQG", "",    "SDMA0", "SDMA1", "GCR", "SDMA2", "SDMA3",
};
constexpr std::string_view kGfx9Clients[] = {
    "CB",  "DB",  "IA",         "WD",         "CPF", "CPC", "CPG",
    "RLC", "TCP", "SQC (inst)", "SQC (data)", "SQG", "PA",
};

}  // namespace

FaultStatus DecodeFaultStatus(IpVersion gc, uint32_t status, uint32_t high) {
  const auto bits = [&](int lsb, int width) { return (status >> lsb) & ((1u << width) - 1); };
  FaultStatus f;
  f.more_faults = bits(0, 1) != 0;
  f.walker_error = static_cast<uint8_t>(bits(1, 3));
  f.permissions = static_cast<uint8_t>(bits(4, 4));
  f.mapping_error = bits(8, 1) != 0;
  f.client = static_cast<uint16_t>(bits(9, 9));
  f.write = bits(18, 1) != 0;
  f.atomic = bits(19, 1) != 0;
  f.vmid = static_cast<uint8_t>(bits(20, 4));
  f.vf = bits(24, 1) != 0;
  if (gc.major >= 12) {
    f.vfid = static_cast<uint8_t>(bits(25, 5));
    f.prt = bits(30, 1) != 0;
    f.uce = bits(31, 1) != 0;
    f.fed = (high & 1) != 0;
  } else {
    f.vfid = static_cast<uint8_t>(bits(25, 4));
    if (gc.major >= 10) {
      f.prt = bits(29, 1) != 0;
      f.fed = gc == IpVersion{11, 0, 3} && bits(30, 1) != 0;
    } else {
      f.uce = bits(29, 1) != 0;
      f.fed = bits(30, 1) != 0;
    }
  }
  return f;
}

std::string FaultClientName(IpVersion gc, bool gc_hub, uint16_t client) {
  if (gc_hub) {
    if (gc.major >= 10 && client < std::size(kGfx11Clients) && !kGfx11Clients[client].empty()) {
      return std::string(kGfx11Clients[client]);
    }
    if (gc.major < 10 && client < std::size(kGfx9Clients)) {
      return std::string(kGfx9Clients[client]);
    }
  }
  return "client " + std::to_string(client);
}

bool IsSdmaFaultClient(IpVersion gc, uint16_t client) {
  return gc.major >= 10 && (client == 13 || client == 14 || client == 16 || client == 17);
}

std::string DescribeFault(IpVersion gc, bool gc_hub, const FaultStatus& status) {
  std::string text = status.atomic ? "atomic" : status.write ? "write" : "read";
  text += " by " + FaultClientName(gc, gc_hub, status.client);
  constexpr std::string_view kPermissions[] = {"entry not valid", "read not allowed",
                                               "write not allowed", "execute not allowed"};
  for (int i = 0; i < 4; ++i) {
    if (status.permissions >> i & 1) {
      text += ", ";
      text += kPermissions[i];
    }
  }
  if (status.walker_error != 0) text += ", walker error " + std::to_string(status.walker_error);
  if (status.mapping_error) text += ", mapping error";
  if (status.more_faults) text += ", more faults";
  text += ", vmid " + std::to_string(status.vmid);
  return text;
}

}  // namespace tg::amd
