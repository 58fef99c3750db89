// The device model's inside; see device.h. Calls and packets come in through device.cc, go to
// memory (device_memory.cc) or registers (device_registers.cc), and from there to the parts that
// give them a meaning. No header for anybody else.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decoder/model/device.h"
#include "decoder/model/windows.h"

namespace tinygpu::trace {
class BodyChunk;
class Packet;
class SessionEvent;
class SysmemData;
class SysmemRegion;
}  // namespace tinygpu::trace

namespace tg::model {

namespace pb = tinygpu::trace;

inline constexpr uint32_t kOnes = 0xFFFFFFFF;
std::string DeviceHex(uint64_t value);  // "0x2480"

class Device::Impl {
 public:
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

  explicit Impl(DeviceOptions options)
      : options_(options),
        budget_{.limit = (options.forget_oldest ? 1 : 2) * options.max_shadow_bytes},
        vram_(options.max_shadow_bytes, &budget_),
        gpuvm_(vram_, sysmem_),
        psp_(vram_) {
    if (options_.dev) dev_ = *options_.dev;
    dev_known_ = options_.dev.has_value();
    if (options.forget_oldest) budget_.make_room = [this](uint64_t bytes) { MakeRoom(bytes); };
  }

  void Feed(const trace::Record& record);
  void MakeRoom(uint64_t bytes);

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

  ShadowBudget budget_;  // of vram_, bar_shadows_, sysmem_
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

}  // namespace tg::model
