#include "replay/sim/server_tcp.h"

#include <algorithm>
#include <cstring>

#include "replay/proof.h"
#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

using wire::Command;

constexpr const char* kPciAddress = "0000:03:00.0";
constexpr uint32_t kVendor = 0x1002;
constexpr uint64_t kBaseClass = 0x03;
constexpr uint64_t kPage = 0x1000;
constexpr uint64_t kContiguousLimit = 2 << 20;
// serve.py is bounded by the host's memory, and so is its buffer for a payload. These bounds stand
// for it.
constexpr uint64_t kRegionLimit = 8ull << 30;
constexpr uint64_t kPayloadLimit = 1ull << 30;

}  // namespace

SessionEnd TcpProtocol::Serve(Link& link) {
  stats_.clients++;
  for (;;) {
    std::array<uint8_t, wire::kRequestSizeR2> header;
    if (link.RecvAll(header.data(), header.size()) < header.size())
      return SessionEnd::kDisconnected;
    const wire::RequestHeader request = wire::DecodeRequest(header);
    const Verdict verdict = Admit(request);
    if (verdict.exit) return SessionEnd::kExit;

    const wire::CommandInfo* info = wire::FindCommand(request.command);
    if (info && info->payload && !ReceivePayload(link, request.arg1))
      return SessionEnd::kDisconnected;
    bool alive = true;
    const Failure failure =
        verdict.refuse ? Failure{verdict.refuse->text, true} : Handle(link, request, alive);
    if (failure.failed) {
      if (info && !info->reply) {
        stats_.writes_dropped++;
        return SessionEnd::kAbandoned;
      }
      alive = Refuse(link, failure.text);
    }
    if (!alive) return SessionEnd::kDisconnected;
  }
}

bool TcpProtocol::ReceivePayload(Link& link, uint64_t size) {
  if (size > kPayloadLimit) {
    stats_.poison++;
    return false;
  }
  // Grows as bytes come: an announced size costs nothing by itself.
  payload_.clear();
  while (payload_.size() < size) {
    const size_t piece = std::min<uint64_t>(size - payload_.size(), 1 << 20);
    const size_t at = payload_.size();
    payload_.resize(at + piece);
    if (link.RecvAll(payload_.data() + at, piece) < piece) return false;
  }
  return true;
}

bool TcpProtocol::SendBody(Link& link, uint64_t announced, std::span<const uint8_t> body) {
  return Reply(link, {0, announced, 0}) && link.Send(body);
}

TcpProtocol::Failure TcpProtocol::Handle(Link& link, const wire::RequestHeader& request,
                                         bool& alive) {
  const auto command = static_cast<Command>(request.command);
  if (command == Command::kPing) {
    alive =
        Reply(link, replay::IsProofRequest(request) ? replay::kProofReply : wire::ReplyHeader{});
    return {};
  }
  if (command == Command::kProbe) return Probe(link, request, alive);
  if (!probed_ || request.dev != 0)
    return {"device " + std::to_string(request.dev) + " not probed", true};
  switch (command) {
    case Command::kMapBar:
      return MapBar(link, request, alive);
    case Command::kCfgRead: {
      const uint64_t size = std::min<uint64_t>(request.arg1, 4);
      alive = Reply(link, {0, size == 0 ? 0 : gpu_.CfgRead(request.arg0, size), 0});
      return {};
    }
    case Command::kCfgWrite:
      if (request.arg1 < 8 && request.arg2 >> 8 * request.arg1 != 0)
        return {"int too big to convert", true};
      gpu_.CfgWrite(request.arg0, request.arg1, static_cast<uint32_t>(request.arg2));
      alive = Reply(link, {});
      return {};
    case Command::kReset:
      gpu_.Reset();
      alive = Reply(link, {});
      return {};
    case Command::kResizeBar:
      if (request.bar != 0 || gpu_.BarSize(0) < gpu_.card().asic.bar0_full)
        return {"Cannot resize BAR " + std::to_string(request.bar) +
                    ": [Errno 28] No space left on device",
                true};
      alive = Reply(link, {});
      return {};
    case Command::kMmioRead:
      return ReadBar(link, request, alive);
    case Command::kMmioWrite:
      return WriteBar(link, request, alive);
    case Command::kMapSysmem:
      return MapSysmem(link, request, alive);
    case Command::kSysmemRead:
      return ReadSysmem(link, request, alive);
    case Command::kSysmemWrite:
      return WriteSysmem(link, request, alive);
    default:
      return {"unknown command " + std::to_string(request.command), true};
  }
}

// Payload: u32 pairs (mask, device id); arg0 base class or 0 for any; arg2 vendor.
TcpProtocol::Failure TcpProtocol::Probe(Link& link, const wire::RequestHeader& request,
                                        bool& alive) {
  bool match = false;
  for (size_t at = 0; at + 8 <= payload_.size(); at += 8) {
    const uint32_t mask = LoadLe<uint32_t>(&payload_[at]);
    match |= (gpu_.card().asic.device_id & mask) == LoadLe<uint32_t>(&payload_[at + 4]);
  }
  if (payload_.size() % 8) return {"unpack requires a buffer of 8 bytes", true};
  match &= request.arg2 == kVendor && (request.arg0 == 0 || request.arg0 == kBaseClass);
  std::string text;
  if (match) {
    probed_ = true;
    text = std::string(kPciAddress) + ":0";
  }
  alive = Reply(link, {0, text.size(), match ? 1u : 0u}) &&
          link.Send({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return {};
}

TcpProtocol::Failure TcpProtocol::MapBar(Link& link, const wire::RequestHeader& request,
                                         bool& alive) {
  if (gpu_.BarSize(request.bar) == 0)
    return {"[Errno 2] No such file or directory: '/sys/bus/pci/devices/" +
                std::string(kPciAddress) + "/resource" + std::to_string(request.bar) + "'",
            true};
  mapped_[request.bar] = true;
  alive = Reply(link, {0, gpu_.BarAddress(request.bar), gpu_.BarSize(request.bar)});
  return {};
}

TcpProtocol::Failure TcpProtocol::ReadBar(Link& link, const wire::RequestHeader& request,
                                          bool& alive) {
  // A key error's text is the key.
  if (request.bar >= mapped_.size() || !mapped_[request.bar])
    return {"(0, " + std::to_string(request.bar) + ")", true};
  const uint64_t size = gpu_.BarSize(request.bar);
  const uint64_t first = std::min(request.arg0, size);
  const uint64_t count = std::min(request.arg1, size - first);
  if (request.arg1 == 4 && request.arg0 % 4 == 0 && count < 4)
    return {"index out of bounds on dimension 1", true};
  if (count > kPayloadLimit) return {"", true};  // a MemoryError has no text
  payload_.resize(count);
  gpu_.BarRead(request.bar, first, payload_);
  alive = SendBody(link, request.arg1, payload_);
  return {};
}

TcpProtocol::Failure TcpProtocol::WriteBar(Link&, const wire::RequestHeader& request, bool&) {
  const bool fits = request.bar < mapped_.size() && mapped_[request.bar] &&
                    request.arg0 <= gpu_.BarSize(request.bar) &&
                    payload_.size() <= gpu_.BarSize(request.bar) - request.arg0;
  if (!fits) return {"", true};
  gpu_.BarWrite(request.bar, request.arg0, payload_);
  return {};
}

TcpProtocol::Failure TcpProtocol::MapSysmem(Link& link, const wire::RequestHeader& request,
                                            bool& alive) {
  if (request.arg1 != 0 && request.arg0 > kContiguousLimit)
    return {"Contiguous allocation is only supported for sizes up to 2MB", true};
  const uint64_t size = (request.arg0 + kPage - 1) & ~(kPage - 1);
  if (size < request.arg0 || size > kRegionLimit - region_bytes_)
    return {"[Errno 12] Cannot allocate memory", true};
  if (size == 0) return {"[Errno 22] Invalid argument", true};
  auto region = Region::CreatePrivate(size);
  if (!region) return {region.error().message, true};
  // Scattered as memory is: a piece per 2 MiB, or one when asked for.
  const auto pieces = static_cast<uint32_t>(request.arg1 ? 1 : size / kContiguousLimit + 1);
  const auto segments = gpu_.host().Map(region->data(), size, pieces);
  if (segments.empty()) return {"[Errno 12] Cannot allocate memory", true};
  region_bytes_ += size;
  regions_.push_back(*std::move(region));

  std::vector<uint8_t> addresses;
  addresses.reserve(size / kPage * 8);
  for (const DmaSegment& segment : segments) {
    for (uint64_t at = 0; at < segment.size; at += kPage) {
      const size_t end = addresses.size();
      addresses.resize(end + 8);
      StoreLe(&addresses[end], segment.address + at);
    }
  }
  alive = Reply(link, {0, addresses.size(), regions_.size() - 1}) && link.Send(addresses);
  return {};
}

TcpProtocol::Failure TcpProtocol::ReadSysmem(Link& link, const wire::RequestHeader& request,
                                             bool& alive) {
  if (request.bar >= regions_.size()) return {"list index out of range", true};
  const Region& region = regions_[request.bar];
  const uint64_t first = std::min(request.arg0, region.size());
  const uint64_t count = std::min(request.arg1, region.size() - first);
  alive = SendBody(link, request.arg1, {region.data() + first, static_cast<size_t>(count)});
  return {};
}

TcpProtocol::Failure TcpProtocol::WriteSysmem(Link&, const wire::RequestHeader& request, bool&) {
  if (request.bar >= regions_.size()) return {"", true};
  const Region& region = regions_[request.bar];
  if (request.arg0 > region.size() || payload_.size() > region.size() - request.arg0)
    return {"", true};
  std::memcpy(region.data() + request.arg0, payload_.data(), payload_.size());
  return {};
}

}  // namespace tg::sim
