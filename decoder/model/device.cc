#include "decoder/model/device.h"

#include <algorithm>
#include <cstdio>

#include "decoder/model/device_impl.h"
#include "schemas/trace/trace.pb.h"

namespace tg::model {
namespace {

using wire::Command;

constexpr size_t kMaxPending = 1024;
constexpr size_t kMaxStreams = 64;
constexpr size_t kMaxWarningsPerRule = 20;
constexpr size_t kMaxWarnings = 500;

}  // namespace

std::string DeviceHex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

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

Device::Impl::BarUse Device::Impl::Use(uint32_t bar) const {
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
