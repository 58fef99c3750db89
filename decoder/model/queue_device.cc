#include "decoder/model/queue_device.h"

#include <utility>

namespace tg::model {

Place DeviceMemory::Locate(uint64_t va) const {
  const Walk walk = device_.gpuvm().WalkVa(va);
  const VaTarget& target = walk.target;
  Place place;
  switch (target.kind) {
    case VaTarget::Kind::kVram:
      place.kind = Place::Kind::kVram;
      place.offset = target.address;
      place.run = target.contiguous;
      return place;
    case VaTarget::Kind::kSysmem:
      place.kind = Place::Kind::kSysmem;
      place.region = target.region;
      place.offset = target.region_offset;
      place.run = target.contiguous;
      return place;
    case VaTarget::Kind::kForeign:
      place.kind = Place::Kind::kDma;
      place.offset = target.address;
      return place;
    case VaTarget::Kind::kNone:
      break;
  }
  if (walk.end == Walk::End::kNotValid) place.kind = Place::Kind::kUnmapped;
  if (!device_.gpuvm().root_assumed()) return place;
  if (const auto dma = device_.sysmem().Locate(va)) {
    place.kind = Place::Kind::kSysmem;
    place.region = dma->region->index;
    place.offset = dma->offset;
    place.run = dma->contiguous;
    place.assumed = true;
  }
  return place;
}

bool DeviceMemory::ReadPlace(const Place& place, std::span<uint8_t> out) const {
  if (place.kind == Place::Kind::kVram) return device_.vram().Read(place.offset, out);
  if (place.kind != Place::Kind::kSysmem) return false;
  const Region* region = device_.sysmem().Find(place.region);
  return region && region->shadow.Read(place.offset, out);
}

DeviceQueues::DeviceQueues(Device& device)
    : device_(device), memory_(device), queues_(memory_), copies_(memory_) {
  device.AddObserver(this);
  queues_.SetPacketListener([this](const QueuePacketEvent& event) { OnPacket(event); });
}

void DeviceQueues::OnPacket(const QueuePacketEvent& event) {
  const auto& regions = device_.sysmem().regions();
  if (regions.size() != regions_seen_) {
    regions_seen_ = regions.size();
    for (const auto& [index, region] : regions) copies_.OnRegion(index, region.granted);
  }
  copies_.OnPacket(event);
}

// The discovery table may come late; what was set up before is decoded with it all the same.
void DeviceQueues::FollowVersions() {
  const uint64_t generation = device_.registers().map_generation();
  if (generation == map_generation_) return;
  map_generation_ = generation;
  const amd::RegisterMap& map = device_.registers().map();
  const auto gc = map.Version(amd::kHwGc);
  const auto sdma = map.Version(amd::kHwSdma0);
  const unsigned gc_major = gc ? gc->major : 11;
  // SDMA and GC of one generation: 9 with 4, 10 with 5, 11 with 6, 12 with 7.
  const unsigned sdma_major = sdma ? sdma->major : gc_major >= 12 ? 7 : gc_major >= 11 ? 6 : 4;
  queues_.SetVersions(sdma_major, gc_major);
}

// A queue that is about to be enabled again: its pointers start anew, and what was outstanding is
// forgotten by the hardware.
void DeviceQueues::NoteAbandoned(std::string_view name, uint32_t instance, uint32_t value,
                                 uint64_t call) {
  const auto reg = ParseQueueRegister(name, instance);
  if (!reg || !(value & 1)) return;
  if (reg->reg != (reg->sdma ? QueueReg::kControl : QueueReg::kActive)) return;
  const auto index = queues_.FindByRegister(*reg);
  if (!index || queues_.queues()[*index].doorbells == 0) return;
  QueueState state = StateOf(queues_, *index);
  if (state.outstanding()) abandoned_[*index] = {.call = call, .state = std::move(state)};
}

void DeviceQueues::OnRegister(const RegisterAccess& access) {
  if (!access.reg || !access.reg->hit) return;
  FollowVersions();
  const auto& hit = access.reg->hit;
  if (access.write) {
    NoteAbandoned(hit.name(), hit.instance, access.value, access.at.call);
    queues_.OnRegisterWrite(hit.name(), hit.instance, access.value, access.at.call,
                            access.at.time_ns);
  } else {
    queues_.OnRegisterRead(hit.name(), hit.instance, access.value, access.at.call,
                           access.at.time_ns);
  }
}

void DeviceQueues::OnMemory(const MemoryAccess& access) {
  if (access.space == Space::kVram) {
    if (access.write) queues_.OnVramWrite(access.offset, access.data, access.at.call);
    return;
  }
  if (access.space != Space::kSysmem) return;
  const uint64_t size = access.all_zero ? access.size : access.data.size();
  const auto seen = access.snapshot ? Queues::Seen::kStored
                    : access.write  ? Queues::Seen::kClientWrote
                                    : Queues::Seen::kClientRead;
  queues_.OnSysmem(seen, access.index, access.offset, size, access.at.call, access.at.time_ns);
}

void DeviceQueues::OnDoorbell(const DoorbellWrite& doorbell) {
  FollowVersions();
  queues_.OnDoorbell(doorbell.offset, doorbell.value, doorbell.size, doorbell.at.call,
                     doorbell.at.time_ns);
}

void DeviceQueues::OnConnect(Stamp at) {
  queues_.OnConnect(at.call, at.time_ns);
}

void DeviceQueues::Finish() {
  queues_.OnEnd(device_.now().call, device_.now().time_ns);
}

}  // namespace tg::model
