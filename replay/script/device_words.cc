#include "replay/script/device_words.h"

#include <algorithm>

#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"
#include "schemas/trace/trace.pb.h"

namespace tg::replay {
namespace {

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
    while (reader.Next(record)) {
      device_.Feed(record);
      if (record.kind != trace::Record::Kind::kPacket || !record.packet->has_event()) continue;
      const auto kind = record.packet->event().kind();
      if (kind == tinygpu::trace::SessionEvent::STALL) StallBegins();
      if (kind == tinygpu::trace::SessionEvent::STALL_OVER) StallEnds();
    }
    queues_.Finish();
    StallEnds();
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

  void Own(uint64_t va, uint64_t size, bool signal = false) {
    InSharedMemory(va, size, [&](uint32_t region, uint64_t offset, uint64_t run) {
      words_.ranges_[{session_, region}].Add(offset, run);
      if (signal) words_.signals_[{session_, region}].Add(offset, run);
    });
  }

  uint64_t SetUps() const {
    uint64_t count = 0;
    for (const model::Queue& queue : queues_.queues().queues()) count += queue.epochs;
    return count;
  }

  // What is announced and not done.
  void StallBegins() {
    if (!stalled_.empty()) return;  // the same stall goes on
    set_ups_ = SetUps();
    for (const model::Queue& queue : queues_.queues().queues())
      for (const model::Submission& submission : queue.submissions)
        if (!submission.retired_call && !submission.signals.empty())
          stalled_.push_back(submission.doorbell_call);
  }

  // After a recovery the client itself stores the fences: they say nothing of the device's work.
  void StallEnds() {
    const bool recovered = SetUps() != set_ups_;
    for (const model::Queue& queue : queues_.queues().queues())
      for (const model::Submission& submission : queue.submissions) {
        if (std::find(stalled_.begin(), stalled_.end(), submission.doorbell_call) == stalled_.end())
          continue;
        Bell& bell = words_.bells_[submission.doorbell_call];
        if (submission.retired_call && !recovered)
          bell.slow_until = *submission.retired_call;
        else
          bell.stuck = true;
      }
    stalled_.clear();
  }

  void OnPacket(const model::QueuePacketEvent& event) {
    if (event.queue->rptr_va) Own(*event.queue->rptr_va, 8, true);
    if (Bell& bell = words_.bells_[event.call]; event.queue->wptr_va && !bell.wptr)
      InSharedMemory(*event.queue->wptr_va, 8, [&](uint32_t region, uint64_t offset, uint64_t) {
        bell.wptr = Bell::Pointer{region, offset};
      });
    const amd::WalkItem& item = *event.visited.item;
    if (item.kind != amd::WalkItem::Kind::kPacket) return;
    if (const auto fence = amd::FenceOf(item.packet)) {
      Own(fence->address, fence->bytes, true);
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
  std::vector<uint64_t> stalled_;  // doorbells of the stall that lasts
  uint64_t set_ups_ = 0;           // of queues, when it began
  bool connected_ = false;
};

DeviceWords DeviceWords::Read(trace::TraceReader& reader) {
  DeviceWords words;
  DeviceWordsReader(words).Read(reader);
  return words;
}

bool DeviceWords::Owns(uint32_t session, uint32_t region, uint64_t offset, uint64_t size) const {
  const auto found = ranges_.find({session, region});
  return found != ranges_.end() && found->second.Overlaps(offset, size);
}

bool DeviceWords::Signals(uint32_t session, uint32_t region, uint64_t offset, uint64_t size) const {
  const auto found = signals_.find({session, region});
  return found != signals_.end() && found->second.Overlaps(offset, size);
}

const Bell* DeviceWords::Find(uint64_t call) const {
  const auto found = bells_.find(call);
  return found == bells_.end() ? nullptr : &found->second;
}

size_t DeviceWords::ranges() const {
  size_t count = 0;
  for (const auto& [place, set] : ranges_) count += set.size();
  return count;
}

}  // namespace tg::replay
