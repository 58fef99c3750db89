// Memory: regions, their snapshots, BARs, VRAM.
#include <algorithm>
#include <array>
#include <cstring>

#include "decoder/model/device_impl.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/bytes.h"

namespace tg::model {

using wire::Command;

void Device::Impl::OnChunk(const pb::BodyChunk& chunk, Stamp at) {
  if (chunk.calls_back() > at.call) return;
  const auto found = streams_.find(at.call - chunk.calls_back());
  if (found == streams_.end() || found->second.write == chunk.of_reply()) return;
  const Stream& stream = found->second;
  const wire::RequestHeader& header = stream.header;
  const auto* bytes = reinterpret_cast<const uint8_t*>(chunk.data().data());
  std::span<const uint8_t> data(bytes, chunk.data().size());
  const uint64_t into = chunk.offset();
  if (into < header.arg1 && !data.empty()) {
    data = data.first(std::min<uint64_t>(data.size(), header.arg1 - into));
    const Provenance by{stream.write ? Origin::kWrite : Origin::kRead, stream.at.call};
    Shadow* shadow = nullptr;
    const auto command = static_cast<Command>(header.command);
    if (command == Command::kSysmemRead || command == Command::kSysmemWrite) {
      if (Region* region = sysmem_.FindMutable(header.bar)) shadow = &region->shadow;
    } else if (Use(header.bar) == BarUse::kVram) {
      shadow = &vram_;
    } else if (const auto other = bar_shadows_.find(header.bar); other != bar_shadows_.end()) {
      shadow = &other->second;
    }
    if (shadow) {
      if (stream.write) {
        shadow->Write(header.arg0 + into, data, by);
      } else {
        shadow->Observe(header.arg0 + into, data, by);
      }
    }
  }
  if (chunk.last()) streams_.erase(found);
}

// The largest gives, and more than is needed at once, so that this is rare.
void Device::Impl::MakeRoom(uint64_t bytes) {
  Shadow* largest = &vram_;
  const auto look = [&](Shadow& shadow) {
    if (shadow.held_bytes() > largest->held_bytes()) largest = &shadow;
  };
  for (auto& [bar, shadow] : bar_shadows_) look(shadow);
  sysmem_.ForEachShadow(look);
  largest->Forget(std::max(bytes, budget_.limit / 64));
}

void Device::Impl::OnRegion(const pb::SysmemRegion& region, Stamp at) {
  Region* added = sysmem_.FindMutable(region.index());
  if (!added || added->mapped != at || added->connection != connection_) {
    added = sysmem_.Add(region.index(), options_.max_shadow_bytes, &budget_);
  }
  if (!added) return;
  added->connection = connection_;
  added->mapped = at;
  if (region.asked() != 0) added->asked = region.asked();
  if (region.granted() != 0) added->granted = region.granted();
  added->by_descriptor = added->by_descriptor || region.mapped() != 0;
  added->problem = region.problem();
  const int count = std::min(region.address_size(), region.length_size());
  if (count == 0) return;
  std::vector<DmaRange> ranges;
  uint64_t offset = 0;
  for (int i = 0; i < count; ++i) {
    ranges.push_back({region.address(i), region.length(i), offset});
    offset += region.length(i);
  }
  // The table itself stands at the head of a fresh region until somebody overwrites it.
  if (region.mapped() != 0) {
    const Provenance by{Origin::kTable, at.call};
    std::vector<uint8_t> table;
    for (const DmaRange& range : ranges) {
      std::array<uint8_t, 16> pair{};
      StoreLe(pair.data(), range.address);
      StoreLe(pair.data() + 8, range.length);
      table.insert(table.end(), pair.begin(), pair.end());
    }
    table.insert(table.end(), 16, 0);
    if (added->granted == 0 || table.size() <= added->granted) added->shadow.Write(0, table, by);
  }
  sysmem_.SetRanges(*added, std::move(ranges));
}

void Device::Impl::OnSnapshot(const pb::SysmemData& data, Stamp at) {
  Region* region = sysmem_.FindMutable(data.index());
  if (!region) {
    Warn("snapshot", at.call,
         "snapshot of region " + std::to_string(data.index()) +
             ", which was never mapped in this trace");
    return;
  }
  sysmem_.NoteCopy(at.call, data.after_call());
  ++region->snapshots;
  region->last_snapshot = at;
  const Provenance by{Origin::kSnapshot, at.call};
  const auto* bytes = reinterpret_cast<const uint8_t*>(data.data().data());
  std::span<const uint8_t> content(bytes, data.data().size());
  if (data.torn()) {
    // Overwritten while it was copied: what stands there is not known any more.
    region->shadow.WriteUnknown(data.offset(), data.zeros() ? data.size() : content.size(), by);
    content = {};
  } else if (data.zeros()) {
    region->shadow.WriteZeros(data.offset(), data.size(), by);
  } else {
    region->shadow.Observe(data.offset(), content, by);
  }
  MemoryAccess access;
  access.at = access.last = at;
  access.space = Space::kSysmem;
  access.index = data.index();
  access.offset = data.offset();
  access.size = data.zeros() ? data.size() : data.data().size();
  access.data = content;
  access.all_zero = data.zeros() && !data.torn();
  access.snapshot = true;
  for (Observer* observer : observers_) observer->OnMemory(access);
}

void Device::Impl::MapBar(const Call& call, const trace::ReplyView& reply) {
  if (call.header.bar >= 256) {
    Warn("bar-number", call.at.call,
         "MAP_BAR " + std::to_string(call.header.bar) + " (server truncates to " +
             std::to_string(call.header.bar & 0xff) + ")");
  }
  Bar& bar = bars_.Touch(call.header.bar);
  if (reply.reply.status != 0) {
    bar.refused_at = call.at;
    bar.refused.assign(reinterpret_cast<const char*>(reply.body.data.data()),
                       reply.body.data.size());
    if (bar.refused.empty()) bar.refused = "no reason given";
    return;
  }
  wire::Revision revision = revision_;
  if (revision == wire::Revision::kUndecided) revision = wire::RevisionFromMapBar(reply.reply);
  const wire::BarWords words = wire::MapBarWords(
      reply.reply, revision == wire::Revision::kUndecided ? wire::Revision::kR2 : revision);
  bar.size = words.size;
  bar.address = words.address;
  bar.mapped = call.at;
  bar.kind = !transport_known_ ? AddressKind::kUnknown
             : tcp_            ? AddressKind::kPhysical
                               : AddressKind::kServerVirtual;
}

void Device::Impl::MapSysmem(const Call& call, const trace::ReplyView& reply) {
  const bool by_descriptor = static_cast<Command>(call.header.command) == Command::kMapSysmemFd;
  const auto index = static_cast<uint32_t>(reply.reply.resp1);
  Region* region = sysmem_.FindMutable(index);
  // The proxy's own packet about it may have come first.
  if (!region || region->mapped != call.at || region->connection != connection_) {
    region = sysmem_.Add(index, options_.max_shadow_bytes, &budget_);
  }
  if (!region) {
    Warn("regions", call.at.call, "more regions than can be followed");
    return;
  }
  region->connection = connection_;
  region->mapped = call.at;
  region->asked = call.header.arg0;
  region->by_descriptor = by_descriptor;
  if (by_descriptor) {
    region->granted = reply.reply.resp0;
    return;
  }
  region->granted = reply.reply.resp0 / 8 * 4096;
  if (!region->ranges.empty()) return;
  std::vector<DmaRange> ranges;
  for (size_t at = 0; at + 8 <= reply.body.data.size(); at += 8) {
    const auto address = LoadLe<uint64_t>(reply.body.data.data() + at);
    if (!ranges.empty() && ranges.back().address + ranges.back().length == address) {
      ranges.back().length += 4096;
    } else {
      ranges.push_back({address, 4096, at / 8 * 4096});
    }
  }
  if (!reply.body.whole()) region->problem = "the trace keeps only the first of its addresses";
  sysmem_.SetRanges(*region, std::move(ranges));
}

void Device::Impl::OnSysmem(const Call& call, const trace::BodyView& body, bool write) {
  const wire::RequestHeader& header = call.header;
  Region* region = sysmem_.FindMutable(header.bar);
  if (!region) {
    // A TCP server's handles outlive a client: the trace may begin after the mapping.
    region = sysmem_.Add(header.bar, options_.max_shadow_bytes, &budget_);
    if (!region) return;
    region->connection = connection_;
    region->problem = "mapped before this trace began";
  }
  const Provenance by{write ? Origin::kWrite : Origin::kRead, call.last.call};
  const uint64_t size = std::min(header.arg1, body.all_zero ? header.arg1 : body.size);
  if (region->granted != 0 &&
      (header.arg0 > region->granted || size > region->granted - header.arg0)) {
    Warn("sysmem-range", call.at.call,
         std::string(write ? "SYSMEM_WRITE" : "SYSMEM_READ") + " runs past the end of region " +
             std::to_string(header.bar) + " (" + DeviceHex(region->granted) + " long)");
    return;
  }
  if (body.all_zero && write) {
    region->shadow.WriteZeros(header.arg0, size, by);
  } else if (write) {
    if (!body.whole()) region->shadow.WriteUnknown(header.arg0, size, by);
    region->shadow.Write(header.arg0, body.data, by);
  } else {
    region->shadow.Observe(header.arg0, body.data, by);
  }
  if (observers_.empty()) return;
  MemoryAccess access;
  access.at = call.at;
  access.last = call.last;
  access.space = Space::kSysmem;
  access.index = header.bar;
  access.offset = header.arg0;
  access.size = size;
  access.data = body.data;
  access.all_zero = body.all_zero;
  access.write = write;
  access.times = call.times;
  for (Observer* observer : observers_) observer->OnMemory(access);
}

void Device::Impl::BarAccess(const Call& call, const trace::BodyView& body, bool write,
                             uint64_t latency_ns) {
  const wire::RequestHeader& header = call.header;
  const uint64_t offset = header.arg0;
  const uint64_t size = header.arg1;
  Bar& bar = bars_.Touch(header.bar);
  if (size == 0) return;
  if (write) {
    bar.writes += call.times;
    bar.bytes_written += size * call.times;
  } else {
    bar.reads += call.times;
    bar.bytes_read += size * call.times;
  }
  const uint64_t end = size > ~0ull - offset ? ~0ull : offset + size;
  if (bar.mapped && end > bar.size) {
    if (write) {
      Warn("bar-range", call.at.call,
           "MMIO_WRITE bar " + std::to_string(header.bar) + " at " + DeviceHex(offset) + ", " +
               std::to_string(size) + " bytes: outside the BAR (" + DeviceHex(bar.size) +
               "), the server drops it");
    }
    return;
  }
  bar.highest = std::max(bar.highest, end);
  if (header.bar == 2 || header.bar == 5) AmdHint();
  const BarUse use = Use(header.bar);
  switch (use) {
    case BarUse::kRegisters:
      RegisterRun(call, body.data, body.all_zero, write, latency_ns);
      return;
    case BarUse::kDoorbells:
      if (write) {
        const size_t known = body.all_zero ? std::min<uint64_t>(size, 4096) : body.data.size();
        if (body.all_zero && !ZerosAllowed(call, known / 8)) return;
        for (size_t at = 0; at < known; at += 8) {
          DoorbellWrite doorbell;
          doorbell.at = call.at;
          doorbell.last = call.last;
          doorbell.times = call.times;
          doorbell.offset = offset + at;
          doorbell.size = static_cast<uint32_t>(std::min<uint64_t>(8, known - at));
          if (!body.all_zero) std::memcpy(&doorbell.value, body.data.data() + at, doorbell.size);
          boot_.OnDoorbell(call.at);
          ih_.OnDoorbell();
          for (Observer* observer : observers_) observer->OnDoorbell(doorbell);
        }
      }
      return;
    case BarUse::kVram:
    case BarUse::kOther:
      break;
  }
  // Not known to be a GPU of either kind yet: its BAR0 may be registers as well.
  if (header.bar == 0 && size == 4 && vendor() == Vendor::kUnknown) {
    RegisterRun(call, body.data, body.all_zero, write, latency_ns);
  }
  MemoryAccess access;
  access.at = call.at;
  access.last = call.last;
  access.times = call.times;
  access.space = use == BarUse::kVram ? Space::kVram : Space::kBar;
  access.index = header.bar;
  access.offset = offset;
  access.size = size;
  access.data = body.data;
  access.all_zero = body.all_zero;
  access.write = write;
  access.latency_ns = latency_ns;
  if (use == BarUse::kVram) {
    OnVram(access);
    return;
  }
  auto shadow = bar_shadows_.find(header.bar);
  if (shadow == bar_shadows_.end()) {
    if (bar_shadows_.size() >= 8) return;
    shadow = bar_shadows_.emplace(header.bar, Shadow(options_.max_shadow_bytes, &budget_)).first;
  }
  const Provenance by{write ? Origin::kWrite : Origin::kRead, call.last.call};
  if (write && body.all_zero) {
    shadow->second.WriteZeros(offset, size, by);
  } else if (write) {
    if (body.data.size() < size) shadow->second.WriteUnknown(offset, size, by);
    shadow->second.Write(offset, body.data, by);
  } else {
    shadow->second.Observe(offset, body.data, by);
  }
  for (Observer* observer : observers_) observer->OnMemory(access);
}

void Device::Impl::OnVram(const MemoryAccess& access) {
  const Provenance by{access.write ? Origin::kWrite : Origin::kRead, access.last.call};
  if (access.write) {
    if (access.all_zero) {
      vram_.WriteZeros(access.offset, access.size, by);
    } else {
      if (access.data.size() < access.size) {
        vram_.WriteUnknown(access.offset, access.size, by);
      }
      vram_.Write(access.offset, access.data, by);
    }
  } else {
    // The driver reads 8 bytes of VRAM to see a page-table entry (field report B03).
    if (access.size == 8 && access.data.size() == 8 &&
        LoadLe<uint64_t>(access.data.data()) == ~0ull) {
      const auto before = vram_.U64(access.offset);
      const Provenance writer = vram_.OriginOf(access.offset);
      if (before && *before != ~0ull && writer.origin == Origin::kWrite) {
        Warn("read-back", access.at.call,
             "VRAM " + DeviceHex(access.offset) + " reads all ones, though " + DeviceHex(*before) +
                 " was there (record " + std::to_string(writer.call) + ")");
      }
    }
    vram_.Observe(access.offset, access.data, by);
    if (access.size == 4 && access.data.size() == 4) {
      ih_.OnVramRead(access.at, access.offset, LoadLe<uint32_t>(access.data.data()));
    }
  }
  boot_.OnVram(access);
  if (access.write && access.offset == 0) DiscoveryFromWindow(access.at);
  psp_.OnVram(access);
  LookForDiscovery(access);
  for (Observer* observer : observers_) observer->OnMemory(access);
}

}  // namespace tg::model
