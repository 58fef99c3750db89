#include "replay/sim/server_app.h"

#include <algorithm>
#include <cstring>

#include "replay/proof.h"
#include "schemas/wire/bytes.h"

namespace tg::sim {
namespace {

using wire::Command;

// MAP_BAR answers with the address of the mapping in the server's own process.
constexpr uint64_t kMappingBase = 0x7000'0000'0000;
constexpr uint64_t kMappingStep = 0x100'0000'0000;

// What a host's driver can wire down for one region, at the very most.
constexpr uint64_t kRegionMaximum = 1ull << 34;

constexpr bool IsWidth(uint64_t size) {
  return size == 1 || size == 2 || size == 4;
}

}  // namespace

AppProtocol::AppProtocol(Gpu& gpu)
    : Protocol(gpu), bulk_(std::make_unique_for_overwrite<uint8_t[]>(wire::kAppBulkLimit)) {}

SessionEnd AppProtocol::Serve(Link& link) {
  stats_.clients++;
  SessionEnd end = SessionEnd::kDisconnected;
  for (;;) {
    std::array<uint8_t, wire::kRequestSizeR2> header;
    const ptrdiff_t got = link.RecvOnce(header.data(), header.size());
    if (got != static_cast<ptrdiff_t>(header.size())) {
      if (got > 0) stats_.short_headers++;
      break;
    }
    const wire::RequestHeader request = wire::DecodeRequest(header);
    const Verdict verdict = Admit(request);
    if (verdict.exit) {
      end = SessionEnd::kExit;
      break;
    }
    if (!Handle(link, request, verdict.refuse)) break;
  }
  EndSession();
  return end;
}

bool AppProtocol::Handle(Link& link, const wire::RequestHeader& request, const HangRule* refuse) {
  const auto command = static_cast<Command>(request.command);
  if (command == Command::kMmioWrite) {
    Write(link, request, refuse != nullptr);
    return true;
  }
  if (refuse) return Refuse(link, refuse->text);
  switch (command) {
    case Command::kMapBar:
      return MapBar(link, request.bar);
    case Command::kMapSysmemFd:
      return MapSysmem(link, request.arg0);
    case Command::kCfgRead:
      return Reply(link,
                   {0, IsWidth(request.arg1) ? gpu_.CfgRead(request.arg0, request.arg1) : 0, 0});
    case Command::kCfgWrite:
      if (IsWidth(request.arg1))
        gpu_.CfgWrite(request.arg0, request.arg1, static_cast<uint32_t>(request.arg2));
      return Reply(link, {});
    case Command::kReset:
      gpu_.Reset();
      return Reply(link, {});
    case Command::kResizeBar:
      return Reply(link, {});  // it never resizes
    case Command::kMmioRead:
      return Read(link, request);
    default:  // TinyGPU.app has no PING; the proof is for `rpcreplay drive`
      return Reply(
          link, replay::IsProofRequest(request) ? replay::kProofReply : wire::ReplyHeader{1, 0, 0});
  }
}

bool AppProtocol::MapBar(Link& link, uint32_t bar) {
  if (bar >= mapped_.size() || gpu_.BarSize(bar) == 0) return Reply(link, {1, 0, 0});
  mapped_[bar] = true;
  return Reply(link, {0, kMappingBase + bar * kMappingStep, gpu_.BarSize(bar)});
}

bool AppProtocol::MapSysmem(Link& link, uint64_t size) {
  if (regions_.size() >= wire::kAppRegionLimit || size > kRegionMaximum)
    return Reply(link, {1, 0, 0});
  const uint64_t granted = std::max<uint64_t>((size + 0xfff) & ~0xfffull, kAppRegionMinimum);
  auto region = Region::CreateShared(granted);
  if (!region) return Reply(link, {1, 0, 0});
  const auto segments = gpu_.host().Map(region->data(), granted, kAppDmaSegments);
  if (segments.empty()) return Reply(link, {1, 0, 0});
  // 32 pairs and their end: 528 bytes of a region that has 16 KiB at least.
  uint8_t* table = region->data();
  for (const DmaSegment& segment : segments) {
    StoreLe(table, segment.address);
    StoreLe(table + 8, segment.size);
    table += 16;
  }
  std::memset(table, 0, 16);
  regions_.push_back(*std::move(region));
  return link.SendWithDescriptor(wire::EncodeReply({0, granted, regions_.size() - 1}),
                                 regions_.back().descriptor());
}

bool AppProtocol::ValidRange(const wire::RequestHeader& request) {
  const uint64_t offset = request.arg0, size = request.arg1;
  if (request.bar >= 256 || offset + size < offset) {
    stats_.poison++;
    return false;
  }
  return request.bar < mapped_.size() && mapped_[request.bar] &&
         offset + size <= gpu_.BarSize(request.bar) && size <= wire::kAppBulkLimit;
}

bool AppProtocol::Read(Link& link, const wire::RequestHeader& request) {
  if (!ValidRange(request)) return Reply(link, {1, 0, 0});
  const std::span<uint8_t> body(bulk_.get(), request.arg1);
  gpu_.BarRead(request.bar, request.arg0, body);
  return Reply(link, {0, request.arg1, 0}) && link.Send(body);
}

void AppProtocol::Write(Link& link, const wire::RequestHeader& request, bool drop) {
  const uint64_t size = request.arg1;
  if (size > wire::kAppBulkLimit) {
    stats_.poison++;
    drop = true;
  }
  for (uint64_t left = size; left > 0;) {
    const uint64_t piece = std::min(left, wire::kAppBulkLimit);
    if (link.RecvAll(bulk_.get(), piece) < piece) break;
    left -= piece;
  }
  if (drop || !ValidRange(request)) {
    stats_.writes_dropped++;
    return;
  }
  gpu_.BarWrite(request.bar, request.arg0, {bulk_.get(), size});
}

void AppProtocol::EndSession() {
  gpu_.host().Clear();
  regions_.clear();
  mapped_.fill(false);
}

}  // namespace tg::sim
