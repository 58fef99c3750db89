#include "replay/script/device_words.h"

#include <algorithm>

#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"

namespace tg::replay {
namespace {

constexpr size_t kMaxRanges = 1u << 18;    // of one region
constexpr uint64_t kMaxCopy = 1ull << 32;  // a packet's count has 30 bits
constexpr uint64_t kTimestampBytes = 8;

}  // namespace

class DeviceWordsReader : public model::Observer {
 public:
  explicit DeviceWordsReader(DeviceWords& words) : words_(words), queues_(device_) {
    device_.AddObserver(this);
    queues_.queues().SetPacketListener(
        [this](const model::QueuePacketEvent& event) { OnPacket(event); });
  }

  void Read(trace::TraceReader& reader) {
    trace::Record record;
    while (reader.Next(record)) device_.Feed(record);
    queues_.Finish();
    TakeBells();
  }

  void OnConnect(model::Stamp) override {
    if (connected_) session_++;
    connected_ = true;
  }

 private:
  // Calls `take(region, offset, size)` for the parts of [va, va + size) that lie in shared memory.
  template <typename Take>
  void InSharedMemory(uint64_t va, uint64_t size, Take take) {
    size = std::min(size, kMaxCopy);
    while (size > 0) {
      const model::Place place = queues_.memory().Locate(va);
      const uint64_t run = std::min(size, std::max<uint64_t>(place.run, 4096 - va % 4096));
      if (place.kind == model::Place::Kind::kSysmem) take(place.region, place.offset, run);
      if (run > ~va) return;
      va += run;
      size -= run;
    }
  }

  void Own(uint64_t va, uint64_t size) {
    InSharedMemory(va, size, [this](uint32_t region, uint64_t offset, uint64_t run) {
      words_.Add(session_, region, offset, run);
    });
  }

  void OnPacket(const model::QueuePacketEvent& event) {
    if (event.queue->rptr_va) Own(*event.queue->rptr_va, 8);
    if (Bell& bell = words_.bells_[event.call]; event.queue->wptr_va && !bell.wptr)
      InSharedMemory(*event.queue->wptr_va, 8, [&](uint32_t region, uint64_t offset, uint64_t) {
        bell.wptr = Bell::Pointer{region, offset};
      });
    const amd::WalkItem& item = *event.visited.item;
    if (item.kind != amd::WalkItem::Kind::kPacket) return;
    if (const auto fence = amd::FenceOf(item.packet)) {
      Own(fence->address, fence->bytes);
      Bell& bell = words_.bells_[event.call];
      InSharedMemory(fence->address, fence->bytes,
                     [&](uint32_t region, uint64_t offset, uint64_t run) {
                       if (run >= fence->bytes && bell.fences.size() < model::kMaxSignals)
                         bell.fences.push_back({region, offset, fence->value, fence->bytes});
                     });
    } else if (const auto copy = amd::CopyOf(item.packet)) {
      Own(copy->dst, copy->bytes);
      if (copy->dst2) Own(*copy->dst2, copy->bytes);
    } else if (item.packet.role == amd::PacketRole::kTimestamp ||
               item.packet.role == amd::PacketRole::kWrite) {
      for (const amd::PacketField& field : item.packet.fields)
        if (field.kind == amd::FieldKind::kAddress) Own(field.value, kTimestampBytes);
    }
  }

  void TakeBells() {
    for (const model::Queue& queue : queues_.queues().queues())
      for (const model::Submission& submission : queue.submissions) {
        Bell& bell = words_.bells_[submission.doorbell_call];
        bell.call = submission.doorbell_call;
        bell.queue = queue.name;
        bell.value = submission.doorbell_value;
        bell.observed = submission.content == model::Submission::Content::kObserved;
        bell.retired = submission.retired_call.has_value();
      }
    std::erase_if(words_.bells_, [](const auto& entry) { return entry.second.call == 0; });
  }

  DeviceWords& words_;
  model::Device device_;
  model::DeviceQueues queues_;
  uint32_t session_ = 0;
  bool connected_ = false;
};

DeviceWords DeviceWords::Read(trace::TraceReader& reader) {
  DeviceWords words;
  DeviceWordsReader(words).Read(reader);
  return words;
}

void DeviceWords::Add(uint32_t session, uint32_t region, uint64_t offset, uint64_t size) {
  if (size == 0 || size > ~offset) return;
  std::map<uint64_t, uint64_t>& ranges = ranges_[{session, region}];
  uint64_t end = offset + size;
  auto next = ranges.upper_bound(offset);
  if (next != ranges.begin()) {
    const auto before = std::prev(next);
    if (before->second >= offset) {
      if (before->second >= end) return;
      offset = before->first;
      ranges.erase(before);
    }
  }
  while (next != ranges.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ranges.erase(next);
  }
  if (ranges.size() < kMaxRanges) ranges[offset] = end;
}

bool DeviceWords::Owns(uint32_t session, uint32_t region, uint64_t offset, uint64_t size) const {
  const auto found = ranges_.find({session, region});
  if (found == ranges_.end() || size == 0) return false;
  auto after = found->second.lower_bound(offset + size);
  if (after == found->second.begin()) return false;
  return std::prev(after)->second > offset;
}

const Bell* DeviceWords::Find(uint64_t call) const {
  const auto found = bells_.find(call);
  return found == bells_.end() ? nullptr : &found->second;
}

size_t DeviceWords::ranges() const {
  size_t count = 0;
  for (const auto& [place, ranges] : ranges_) count += ranges.size();
  return count;
}

}  // namespace tg::replay
