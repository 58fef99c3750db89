#include "decoder/model/device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>

#include "decoder/model/windows.h"
#include "schemas/amd/vram_layout.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/wire/bytes.h"

namespace tg::model {
namespace {

namespace pb = tinygpu::trace;
using wire::Command;

constexpr size_t kMaxPending = 1024;
constexpr size_t kMaxStreams = 64;
constexpr size_t kMaxWarningsPerRule = 20;
constexpr size_t kMaxWarnings = 500;
constexpr uint64_t kMaxRegisterRun = 64 * 1024;  // bytes of one access taken apart into registers
// A wide write of zeros is a few bytes in the trace and thousands of registers or doorbells: so
// many of them in all.
constexpr uint64_t kMaxZeroRuns = 1u << 18;
constexpr uint32_t kOnes = 0xFFFFFFFF;

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// One call, or a folded run of equal ones.
struct Call {
  const wire::RequestHeader& header;
  Stamp at;
  Stamp last;
  uint64_t times = 1;
};

// A call whose answer has not come.
struct Pending {
  wire::RequestHeader header;
  Stamp at;
  Stamp last;
  uint64_t times = 1;
  bool autopsy = false;  // the proxy asked, not the client
};

// A payload or body whose rest comes in BodyChunk packets.
struct Stream {
  bool write = false;
  wire::RequestHeader header;
  Stamp at;
};

enum class BarUse : uint8_t { kOther, kRegisters, kVram, kDoorbells };

}  // namespace

class Device::Impl {
 public:
  explicit Impl(DeviceOptions options)
      : options_(options),
        vram_(options.max_shadow_bytes),
        gpuvm_(vram_, sysmem_),
        psp_(vram_),
        link_(bars_) {
    if (options_.dev) dev_ = *options_.dev;
    dev_known_ = options_.dev.has_value();
  }

  void Feed(const trace::Record& record);

  // ---- calls ----
  void OnRequest(const Call& call, const trace::RequestView& request);
  void OnReply(uint64_t call, const trace::ReplyView& reply);
  void Answer(const Call& call, const trace::ReplyView& reply);
  void OnRepeat(const trace::Record& record);
  void OnPacket(const pb::Packet& packet, Stamp at);
  void OnChunk(const pb::BodyChunk& chunk, Stamp at);
  void OnRegion(const pb::SysmemRegion& region, Stamp at);
  void OnSnapshot(const pb::SysmemData& data, Stamp at);
  void OnEvent(const pb::SessionEvent& event, Stamp at);

  // ---- targets ----
  BarUse Use(uint32_t bar) const;
  void BarAccess(const Call& call, const trace::BodyView& body, bool write, uint64_t latency_ns);
  void RegisterRun(const Call& call, std::span<const uint8_t> data, bool all_zero, bool write,
                   uint64_t latency_ns);
  bool ZerosAllowed(const Call& call, uint64_t count);
  void OnRegister(const Call& call, uint64_t address, uint8_t bar, uint8_t die, uint32_t value,
                  bool write, Via via, uint64_t latency_ns);
  void OnWindow(const Call& call, const WindowTarget& target, uint32_t value, bool write,
                uint64_t latency_ns);
  void OnRole(const RegisterAccess& access);
  void OnVram(const MemoryAccess& access);
  void OnSysmem(const Call& call, const trace::BodyView& body, bool write);
  void MapBar(const Call& call, const trace::ReplyView& reply);
  void MapSysmem(const Call& call, const trace::ReplyView& reply);

  // ---- discovery ----
  void LookForDiscovery(const MemoryAccess& access);
  // `cut`: the trace does not have all of it.
  void TakeDiscovery(std::span<const uint8_t> bytes, bool cut, DiscoverySource source, Stamp at);
  void DiscoveryFromWindow(Stamp at);
  void GcIs(amd::IpVersion gc, amd::IpVersion mp1, bool assumed);

  void Warn(const char* rule, uint64_t call, std::string text);
  Vendor vendor() const { return vendor_; }
  // After anything that tells whose card it is.
  void JudgeVendor();
  void AmdHint() {
    if (amd_hint_) return;
    amd_hint_ = true;
    JudgeVendor();
  }
  void NvHint() {
    if (nv_hint_) return;
    nv_hint_ = true;
    JudgeVendor();
  }

  DeviceOptions options_;
  std::vector<Observer*> observers_;
  Stamp now_;
  uint64_t calls_ = 0;
  uint32_t dev_ = 0;
  bool dev_known_ = false;
  uint64_t other_dev_calls_ = 0;
  bool tcp_ = false;
  bool transport_known_ = false;
  bool autopsy_ = false;  // the answer being fed is one to the proxy's own question
  uint32_t connection_ = 0;
  wire::Revision revision_ = wire::Revision::kUndecided;
  bool amd_hint_ = false;
  bool nv_hint_ = false;
  Vendor vendor_ = Vendor::kUnknown;
  std::deque<Pending> pending_;
  std::map<uint64_t, Stream> streams_;

  Bars bars_;
  Registers registers_;
  Shadow vram_;
  std::map<uint32_t, Shadow> bar_shadows_;
  Sysmem sysmem_;
  Gpuvm gpuvm_;
  Windows windows_;
  Ih ih_;
  Psp psp_;
  Smu smu_;
  Boot boot_;
  Faults faults_;
  Link link_;

  std::optional<amd::Discovery> discovery_;
  DiscoverySource discovery_source_ = DiscoverySource::kNone;
  Stamp discovery_at_;
  std::optional<uint64_t> window_table_;  // VRAM offset at which a table began to be read
  uint16_t assumed_device_ = 0;
  uint64_t zero_runs_ = 0;
  amd::IpVersion gc_{11, 0, 0};
  std::optional<uint64_t> vram_size_;
  std::vector<Warning> warnings_;
  std::map<std::string, size_t> warned_;
};

void Device::Impl::Warn(const char* rule, uint64_t call, std::string text) {
  size_t& count = warned_[rule];
  ++count;
  if (count > kMaxWarningsPerRule || warnings_.size() >= kMaxWarnings) return;
  if (count == kMaxWarningsPerRule) text += " (further ones of this kind are not listed)";
  warnings_.push_back({rule, call, std::move(text)});
}

void Device::Impl::JudgeVendor() {
  vendor_ = bars_.vendor();
  if (vendor_ == Vendor::kUnknown) {
    vendor_ = amd_hint_ ? Vendor::kAmd : nv_hint_ ? Vendor::kNvidia : Vendor::kUnknown;
  }
  if (vendor_ == Vendor::kNvidia) {
    registers_.SetOtherName(0x0, "NV_PMC_BOOT_0", Role::kNvBoot0);
    registers_.SetOtherName(0xa00, "NV_PMC_BOOT_42", Role::kNvBoot42);
  }
}

BarUse Device::Impl::Use(uint32_t bar) const {
  switch (vendor()) {
    case Vendor::kAmd:
    case Vendor::kUnknown:
      if (bar == 5) return BarUse::kRegisters;
      if (bar == 2) return BarUse::kDoorbells;
      return bar == 0 ? BarUse::kVram : BarUse::kOther;
    case Vendor::kNvidia:
      return bar == 0 ? BarUse::kRegisters : BarUse::kOther;
    case Vendor::kOther:
      break;
  }
  return BarUse::kOther;
}

void Device::Impl::Feed(const trace::Record& record) {
  switch (record.kind) {
    case trace::Record::Kind::kRequest: {
      const Stamp at{record.call, record.time_ns};
      OnRequest({record.request.header, at, at, 1}, record.request);
      break;
    }
    case trace::Record::Kind::kReply:
      OnReply(record.call, record.reply);
      break;
    case trace::Record::Kind::kRepeat:
      OnRepeat(record);
      break;
    case trace::Record::Kind::kPacket:
      if (record.packet) OnPacket(*record.packet, {record.call, record.time_ns});
      break;
  }
}

void Device::Impl::OnRequest(const Call& call, const trace::RequestView& request) {
  const wire::RequestHeader& header = call.header;
  calls_ += call.times;
  now_ = call.last;
  const auto command = static_cast<Command>(header.command);
  if (header.command >= wire::kCommandCount) return;
  if (command != Command::kProbe && command != Command::kPing) {
    if (!dev_known_) {
      dev_ = header.dev;
      dev_known_ = true;
    }
    if (header.dev != dev_) {
      other_dev_calls_ += call.times;
      return;
    }
  }
  const bool autopsy = request.injected.starts_with(trace::kAutopsyMark);
  if (!autopsy) boot_.OnCall(call.at, call.last, call.times);
  // Neither reached the server.
  if (request.truncated || !request.refused.empty()) return;
  switch (command) {
    case Command::kMmioWrite:
      BarAccess(call, request.payload, true, 0);
      break;
    case Command::kSysmemWrite:
      OnSysmem(call, request.payload, true);
      break;
    case Command::kCfgWrite:
      bars_.OnConfig({call.at, static_cast<uint32_t>(std::min<uint64_t>(header.arg0, kOnes)),
                      static_cast<uint32_t>(std::min<uint64_t>(header.arg1, 8)),
                      static_cast<uint32_t>(header.arg2), true},
                     call.times);
      JudgeVendor();
      break;
    case Command::kMapBar:
      if (header.bar == 2 || header.bar == 5) AmdHint();
      if (header.bar == 1) NvHint();
      break;
    case Command::kResizeBar:
      if (header.bar == 1) NvHint();
      break;
    default:
      break;
  }
  if (request.payload.streamed && streams_.size() < kMaxStreams) {
    streams_[call.at.call] = {true, header, call.at};
  }
  const wire::CommandInfo* info = wire::FindCommand(header.command);
  if (info && info->reply) {
    if (pending_.size() >= kMaxPending) pending_.pop_front();
    pending_.push_back({header, call.at, call.last, call.times, autopsy});
  }
}

void Device::Impl::OnReply(uint64_t call, const trace::ReplyView& reply) {
  // Replies come in order, so it is the first one unless some were lost.
  for (auto p = pending_.begin(); p != pending_.end(); ++p) {
    if (p->at.call != call) continue;
    const Pending answered = *p;
    pending_.erase(p);
    // Altered or made up by the proxy: it says nothing about the device.
    if (!reply.injected.empty() && !answered.autopsy) return;
    autopsy_ = answered.autopsy;
    if (reply.body.streamed && streams_.size() < kMaxStreams) {
      streams_[call] = {false, answered.header, answered.at};
    }
    Answer({answered.header, answered.at, answered.last, answered.times}, reply);
    autopsy_ = false;
    return;
  }
}

void Device::Impl::Answer(const Call& call, const trace::ReplyView& reply) {
  const wire::RequestHeader& header = call.header;
  const bool ok = reply.reply.status == 0;
  const auto refusal = [&] {
    std::string text(reinterpret_cast<const char*>(reply.body.data.data()), reply.body.data.size());
    return text.empty() ? std::string("no reason given") : text;
  };
  switch (static_cast<Command>(header.command)) {
    case Command::kMapBar:
      MapBar(call, reply);
      break;
    case Command::kMapSysmem:
    case Command::kMapSysmemFd:
      if (ok) {
        MapSysmem(call, reply);
      } else {
        sysmem_.Refuse({call.at, header.arg0, refusal()});
      }
      break;
    case Command::kCfgRead:
      if (ok) {
        const bool known_before = bars_.vendor() != Vendor::kUnknown;
        bars_.OnConfig({call.at, static_cast<uint32_t>(std::min<uint64_t>(header.arg0, kOnes)),
                        static_cast<uint32_t>(std::min<uint64_t>(header.arg1, 8)),
                        static_cast<uint32_t>(reply.reply.resp0), false},
                       call.times);
        JudgeVendor();
        const auto device = bars_.device_id();
        if (!known_before && !discovery_ && bars_.vendor() == Vendor::kAmd && device) {
          assumed_device_ = *device;
          registers_.SetMap(amd::RegisterMap::Assumed(*device));
          const auto& map = registers_.map();
          GcIs(map.Version(amd::kHwGc).value_or(gc_),
               map.Version(amd::kHwMp1).value_or(amd::IpVersion{13, 0, 0}), true);
        }
      }
      break;
    case Command::kResizeBar:
      bars_.OnResize({call.at, header.bar, ok, ok ? "" : refusal()});
      break;
    case Command::kReset:
      bars_.OnReset({call.at, ok, ok ? "" : refusal()});
      break;
    case Command::kMmioRead:
      if (ok) BarAccess(call, reply.body, false, reply.latency_ns);
      break;
    case Command::kSysmemRead:
      if (ok) OnSysmem(call, reply.body, false);
      break;
    default:
      break;
  }
}

void Device::Impl::OnRepeat(const trace::Record& record) {
  const uint64_t length = record.pattern.size();
  if (length == 0) return;
  const auto feed = [&](uint64_t entry, uint64_t first_call, uint64_t times, uint64_t first_ns) {
    const trace::RepeatedCall& one = record.pattern[entry];
    const Stamp at{first_call, first_ns};
    const Stamp last{first_call + (times - 1) * length, record.last_time_ns};
    OnRequest({one.request.header, at, last, times}, one.request);
    // Only the last calls of a run can be without their answer.
    if (one.reply && record.answered > 0) {
      trace::ReplyView reply = *one.reply;
      reply.latency_ns = record.max_latency_ns;
      OnReply(at.call, reply);
    }
  };
  // The answer that ends a run is another one, so it is not in the pattern: it comes by itself,
  // after this record. Its call is the run's last one.
  uint64_t to_answer = 0;
  for (uint64_t i = 0; i < length; ++i) {
    if (record.pattern[i].reply)
      to_answer += record.issued / length + (i < record.issued % length ? 1 : 0);
  }
  const bool open = record.issued > 0 && record.answered < to_answer &&
                    record.pattern[(record.issued - 1) % length].reply;
  const uint64_t issued = record.issued - (open ? 1 : 0);
  // The calls of one pattern entry are taken together, so that a run costs no more than its
  // pattern. A last round that stops in the middle comes after them: what follows continues from
  // there.
  const uint64_t rounds = issued / length;
  const uint64_t rest = issued % length;
  for (uint64_t i = 0; rounds > 0 && i < length; ++i)
    feed(i, record.call + i, rounds, record.time_ns);
  for (uint64_t i = 0; i < rest; ++i)
    feed(i, record.call + rounds * length + i, 1,
         rounds > 0 ? record.last_time_ns : record.time_ns);
  if (open) {
    const trace::RepeatedCall& one = record.pattern[issued % length];
    const Stamp at{record.call + issued, record.last_time_ns};
    OnRequest({one.request.header, at, at, 1}, one.request);
  }
  now_ = {record.call + record.issued - (record.issued > 0 ? 1 : 0), record.last_time_ns};
}

void Device::Impl::OnPacket(const pb::Packet& packet, Stamp at) {
  if (packet.has_region()) OnRegion(packet.region(), at);
  if (packet.has_sysmem()) OnSnapshot(packet.sysmem(), at);
  if (packet.has_chunk()) OnChunk(packet.chunk(), at);
  if (packet.has_event()) OnEvent(packet.event(), at);
}

void Device::Impl::OnEvent(const pb::SessionEvent& event, Stamp at) {
  switch (event.kind()) {
    case pb::SessionEvent::CONNECT:
      connection_ = event.connection();
      transport_known_ = true;
      tcp_ = event.transport() == "tcp";
      // TinyGPU.app frees all regions when a client goes; serve.py keeps them.
      if (!tcp_) sysmem_.Clear();
      pending_.clear();
      streams_.clear();
      boot_.OnConnect(at, connection_);
      for (Observer* observer : observers_) observer->OnConnect(at);
      break;
    case pb::SessionEvent::REVISION:
      if (event.revision() <= 2) revision_ = static_cast<wire::Revision>(event.revision());
      break;
    default:
      break;
  }
}

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

void Device::Impl::OnRegion(const pb::SysmemRegion& region, Stamp at) {
  Region* added = sysmem_.FindMutable(region.index());
  if (!added || added->mapped != at || added->connection != connection_) {
    added = sysmem_.Add(region.index(), options_.max_shadow_bytes);
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
    region = sysmem_.Add(index, options_.max_shadow_bytes);
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
    region = sysmem_.Add(header.bar, options_.max_shadow_bytes);
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
             std::to_string(header.bar) + " (" + Hex(region->granted) + " long)");
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
    uint64_t first = 0;
    if (!body.data.empty()) {
      std::memcpy(&first, body.data.data(), std::min<size_t>(body.data.size(), 8));
    }
    link_.OnWrite({call.last, header.bar, offset, size, first});
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
           "MMIO_WRITE bar " + std::to_string(header.bar) + " at " + Hex(offset) + ", " +
               std::to_string(size) + " bytes: outside the BAR (" + Hex(bar.size) +
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
    shadow = bar_shadows_.emplace(header.bar, Shadow(options_.max_shadow_bytes)).first;
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

// One at a time are no run.
bool Device::Impl::ZerosAllowed(const Call& call, uint64_t count) {
  if (count <= 1) return true;
  if (zero_runs_ + count <= kMaxZeroRuns) {
    zero_runs_ += count;
    return true;
  }
  Warn("zeros", call.at.call, "more wide writes of zeros to registers than are taken apart");
  return false;
}

// Registers are 4 bytes; a wider access is taken apart, low address first, as the server does it.
void Device::Impl::RegisterRun(const Call& call, std::span<const uint8_t> data, bool all_zero,
                               bool write, uint64_t latency_ns) {
  const uint64_t offset = call.header.arg0;
  const uint64_t size = std::min(call.header.arg1, kMaxRegisterRun);
  if (offset % 4 != 0 || size % 4 != 0) {
    Warn("register-size", call.at.call,
         std::string(write ? "write" : "read") + " of " + std::to_string(call.header.arg1) +
             " bytes at bar " + std::to_string(call.header.bar) + " + " + Hex(offset) +
             ": registers are 4 bytes wide");
    return;
  }
  if (all_zero && !ZerosAllowed(call, size / 4)) return;
  for (uint64_t at = 0; at + 4 <= size; at += 4) {
    uint32_t value = 0;
    if (!all_zero) {
      if (at + 4 > data.size()) return;
      value = LoadLe<uint32_t>(data.data() + at);
    }
    OnRegister(call, offset + at, static_cast<uint8_t>(call.header.bar), 0, value, write,
               Via::kDirect, latency_ns);
  }
}

void Device::Impl::OnRegister(const Call& call, uint64_t address, uint8_t bar, uint8_t die,
                              uint32_t value, bool write, Via via, uint64_t latency_ns) {
  RegisterState* state = registers_.Touch(address, bar, die, via);
  if (!state) {
    Warn("registers", call.at.call, "more registers than can be followed");
    return;
  }
  RegisterAccess access;
  access.at = call.at;
  access.last = call.last;
  access.times = call.times;
  access.reg = state;
  access.value = value;
  access.write = write;
  access.via = via;
  access.latency_ns = latency_ns;
  if (!write) {
    const Sample before = state->last_read;
    const bool had_read = state->reads > 0;
    const uint64_t latency_before = state->last_latency_ns;
    registers_.Record(*state, {call.at, value, false}, call.times, call.last);
    state->last_latency_ns = latency_ns;
    if (value == kOnes || !link_.transitions().empty()) {
      link_.OnRegister(access, *state, before, had_read, latency_before);
    }
  } else {
    registers_.Record(*state, {call.at, value, true}, call.times, call.last);
  }
  if (autopsy_) {
    // What the register holds counts; what the client does is another matter.
    faults_.OnRegister(access);
    for (Observer* observer : observers_) observer->OnAutopsy(access);
    return;
  }
  const Role role = state->role;
  if (role != Role::kNone) {
    if (via == Via::kDirect) {
      bool blind = false;
      const auto target = windows_.OnAccess(role, value, write, &blind);
      if (blind) {
        Warn("window", call.at.call,
             std::string(state->name()) +
                 " used before its index register was written: the "
                 "target is not known");
      }
      if (target) {
        for (Observer* observer : observers_) observer->OnRegister(access);
        OnWindow(call, *target, value, write, latency_ns);
        return;
      }
    }
    OnRole(access);
  }
  for (Observer* observer : observers_) observer->OnRegister(access);
}

void Device::Impl::OnWindow(const Call& call, const WindowTarget& target, uint32_t value,
                            bool write, uint64_t latency_ns) {
  if (!target.vram) {
    OnRegister(call, target.address, 5, target.die, value, write, target.via, latency_ns);
    return;
  }
  std::array<uint8_t, 4> bytes{};
  StoreLe(bytes.data(), value);
  MemoryAccess access;
  access.at = call.at;
  access.last = call.last;
  access.times = call.times;
  access.offset = target.address;
  access.size = 4;
  access.data = bytes;
  access.write = write;
  access.via = target.via;
  OnVram(access);
}

void Device::Impl::OnRole(const RegisterAccess& access) {
  const Role role = access.reg->role;
  switch (role) {
    case Role::kMemsize:
      if (!access.write && access.value != kOnes && access.value != 0) {
        vram_size_ = static_cast<uint64_t>(access.value) << 20;
        gpuvm_.SetVramSize(*vram_size_);
      }
      break;
    case Role::kHdpRemap:
      if (!access.write && access.value != kOnes) {
        registers_.SetOtherName(access.value, "HDP flush", Role::kHdpFlush);
      }
      break;
    case Role::kFbBase:
      if (!access.write && access.value != kOnes) {
        gpuvm_.SetFbBase(static_cast<uint64_t>(access.value & 0xFFFFFF) << 24);
        psp_.SetMcBase(gpuvm_.mc_base());
      }
      break;
    case Role::kXgmiCntl:
    case Role::kXgmiSize:
      if (!access.write && access.value != kOnes && access.reg->hit) {
        const amd::RegisterDef& reg = *access.reg->hit.reg;
        if (const auto region = amd::GetField(reg, "pf_lfb_region", access.value)) {
          gpuvm_.SetXgmi(static_cast<uint32_t>(*region), std::nullopt);
        }
        if (const auto size = amd::GetField(reg, "pf_lfb_size", access.value)) {
          gpuvm_.SetXgmi(std::nullopt, *size << 24);
        }
        psp_.SetMcBase(gpuvm_.mc_base());
      }
      break;
    case Role::kRootLoGc:
    case Role::kRootHiGc:
      if (const auto root =
              registers_.Value64("regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR", "_LO32", "_HI32")) {
        gpuvm_.SetRoot(*root);
      }
      break;
    case Role::kRootLoMm:
    case Role::kRootHiMm:
      // Both hubs get the same root; the GC hub's, written later, is what queues use.
      if (const auto root =
              registers_.Value64("regMMVM_CONTEXT0_PAGE_TABLE_BASE_ADDR", "_LO32", "_HI32");
          root && gpuvm_.root_assumed()) {
        gpuvm_.SetRoot(*root);
      }
      break;
    case Role::kVaStartLo:
    case Role::kVaStartHi:
      if (const auto start =
              registers_.Value64("regGCVM_CONTEXT0_PAGE_TABLE_START_ADDR", "_LO32", "_HI32");
          start && *start != ~0ull) {
        gpuvm_.SetVaStart(*start);
      }
      break;
    case Role::kIhBase:
    case Role::kIhBaseHi:
    case Role::kIhCntl:
      if (const auto base = registers_.Value64("regIH_RB_BASE", "", "_HI")) {
        uint64_t size = ih_.ring_size();
        const RegisterState* cntl = registers_.Find("regIH_RB_CNTL");
        if (cntl && cntl->known && cntl->hit) {
          if (const auto n = amd::GetField(*cntl->hit.reg, "rb_size", cntl->value)) {
            size = 4ull << (*n & 0x1f);
          }
        }
        const uint64_t mc = (*base & 0xFFFFFFFFFFull) << 8;
        ih_.SetRing(gpuvm_.McToVram(mc).value_or(ih_.ring_base()), size);
      }
      break;
    case Role::kIhWptr:
    case Role::kIhRptr:
      ih_.OnRegister(access);
      break;
    default:
      break;
  }
  faults_.OnRegister(access);
  psp_.OnRegister(access);
  boot_.OnRegister(access);
  if (smu_.OnRegister(access)) boot_.OnMode1Reset(access.at);
}

void Device::Impl::LookForDiscovery(const MemoryAccess& access) {
  if (access.write || access.data.size() < 4) return;
  const auto first = LoadLe<uint32_t>(access.data.data());
  if (access.via == Via::kVramWindow) {
    if (first == amd::kDiscoverySignature && access.offset % 0x1000 == 0) {
      window_table_ = access.offset;
    }
    if (window_table_ && access.offset == *window_table_ + amd::kDiscoverySize - 4) {
      DiscoveryFromWindow(access.at);
    }
    return;
  }
  if (access.size >= 0x100 && first == amd::kDiscoverySignature) {
    const bool cut = access.data.size() < access.size;
    TakeDiscovery(access.data, cut, DiscoverySource::kBulkRead, access.at);
    if (cut) {
      Warn("discovery", access.at.call,
           "the trace keeps " + std::to_string(access.data.size()) + " of " +
               std::to_string(access.size) + " bytes of the discovery table");
    }
  }
}

void Device::Impl::DiscoveryFromWindow(Stamp at) {
  if (!window_table_) return;
  std::vector<uint8_t> bytes(vram_.KnownBytes(*window_table_, amd::kDiscoverySize));
  vram_.Read(*window_table_, bytes);
  window_table_.reset();
  TakeDiscovery(bytes, bytes.size() < amd::kDiscoverySize, DiscoverySource::kWindow, at);
}

void Device::Impl::TakeDiscovery(std::span<const uint8_t> bytes, bool cut, DiscoverySource source,
                                 Stamp at) {
  auto parsed = amd::ParseDiscovery(bytes);
  if (!parsed) {
    Warn("discovery", at.call, parsed.error().message);
    return;
  }
  for (const std::string& problem : parsed->problems) Warn("discovery", at.call, problem);
  amd::RegisterMap map =
      cut ? amd::RegisterMap::FromPart(parsed->ips) : amd::RegisterMap(parsed->ips);
  for (const std::string& problem : map.problems()) Warn("register-names", at.call, problem);
  const auto gc = map.Version(amd::kHwGc);
  const auto mp1 = map.Version(amd::kHwMp1);
  registers_.SetMap(std::move(map));
  windows_.Forget();
  if (gc) GcIs(*gc, mp1.value_or(amd::IpVersion{13, 0, 0}), false);
  discovery_ = std::move(*parsed);
  discovery_source_ = source;
  discovery_at_ = at;
}

void Device::Impl::GcIs(amd::IpVersion gc, amd::IpVersion mp1, bool assumed) {
  gc_ = gc;
  gpuvm_.SetFormat(amd::PteFormatFor(gc), assumed);
  ih_.SetGc(gc);
  faults_.SetGc(gc);
  smu_.SetMp1(mp1);
}

Device::Device(DeviceOptions options) : impl_(std::make_unique<Impl>(options)) {}
Device::~Device() = default;

void Device::Feed(const trace::Record& record) {
  impl_->Feed(record);
}
void Device::AddObserver(Observer* observer) {
  impl_->observers_.push_back(observer);
}

Stamp Device::now() const {
  return impl_->now_;
}
uint64_t Device::calls() const {
  return impl_->calls_;
}
Vendor Device::vendor() const {
  return impl_->vendor();
}
bool Device::tcp() const {
  return impl_->tcp_;
}
uint32_t Device::connection() const {
  return impl_->connection_;
}
uint32_t Device::dev() const {
  return impl_->dev_;
}
uint64_t Device::other_dev_calls() const {
  return impl_->other_dev_calls_;
}
const Bars& Device::bars() const {
  return impl_->bars_;
}
const Registers& Device::registers() const {
  return impl_->registers_;
}
const Shadow& Device::vram() const {
  return impl_->vram_;
}
const Shadow* Device::bar_shadow(uint32_t index) const {
  const auto found = impl_->bar_shadows_.find(index);
  return found == impl_->bar_shadows_.end() ? nullptr : &found->second;
}
const Sysmem& Device::sysmem() const {
  return impl_->sysmem_;
}
const Gpuvm& Device::gpuvm() const {
  return impl_->gpuvm_;
}
const Ih& Device::ih() const {
  return impl_->ih_;
}
const Psp& Device::psp() const {
  return impl_->psp_;
}
const Smu& Device::smu() const {
  return impl_->smu_;
}
const Boot& Device::boot() const {
  return impl_->boot_;
}
const Faults& Device::faults() const {
  return impl_->faults_;
}
const Link& Device::link() const {
  return impl_->link_;
}
const amd::Discovery* Device::discovery() const {
  return impl_->discovery_ ? &*impl_->discovery_ : nullptr;
}
DiscoverySource Device::discovery_source() const {
  return impl_->discovery_source_;
}
Stamp Device::discovery_at() const {
  return impl_->discovery_at_;
}
amd::IpVersion Device::gc() const {
  return impl_->gc_;
}
std::optional<uint64_t> Device::vram_size() const {
  return impl_->vram_size_;
}
std::optional<bool> Device::large_bar() const {
  const Bar* bar = impl_->bars_.Find(0);
  if (!bar || !bar->mapped || !impl_->vram_size_) return std::nullopt;
  return bar->size >= *impl_->vram_size_;
}
const std::vector<Warning>& Device::warnings() const {
  return impl_->warnings_;
}

}  // namespace tg::model
