#include "replay/serve/engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "decoder/model/queue_walk.h"
#include "schemas/wire/bytes.h"

namespace tg::replay {
namespace {

using model::Place;

constexpr uint64_t kMaxStretch = 64ull << 20;  // ring bytes of one doorbell
constexpr size_t kMaxOps = 1u << 20;           // waiting in one queue
constexpr uint64_t kMaxCopy = 4ull << 30;      // the packet's count has 30 bits
constexpr size_t kPiece = 1u << 20;
constexpr uint64_t kPage = 4096;

// SDMA WRITE_LINEAR and PM4 WRITE_DATA: header, three dwords, data.
constexpr size_t kWriteHead = 16;
bool HasData(const amd::DecodedPacket& packet) {
  return packet.name == "WRITE_LINEAR" || packet.name == "WRITE_DATA";
}

// The device's clock as tinygrad reads it: 100 MHz.
uint64_t Clock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) /
         10;
}

}  // namespace

Engine::Engine(std::unique_ptr<trace::TraceReader> reader, const DeviceWords& words)
    : reader_(std::move(reader)), words_(words), queues_(device_) {
  device_.AddObserver(this);  // after the queues: they know of a doorbell first
}

Engine::~Engine() = default;

void Engine::SetRegion(uint32_t index, SharedMemory* memory) {
  if (memory)
    regions_[index] = memory;
  else
    regions_.erase(index);
  wrote_.erase(index);
}

void Engine::OnConnect(model::Stamp) {
  if (connected_) session_++;
  connected_ = true;
  work_.clear();
}

void Engine::Follow(uint64_t number) {
  followed_ = number;
  for (;;) {
    if (!have_record_) {
      if (!reader_->Next(record_)) return;
      have_record_ = true;
    }
    if (record_.call > number) return;
    have_record_ = false;
    device_.Feed(record_);
  }
}

Place Engine::Locate(uint64_t va) const {
  return queues_.memory().Locate(va);
}

bool Engine::ReadPlace(const Place& place, std::span<uint8_t> out) const {
  if (place.kind == Place::Kind::kVram) {
    if (!vram_.Known(place.offset, out.size())) return false;
    vram_.Read(place.offset, out);
    return true;
  }
  const auto found = regions_.find(place.region);
  if (place.kind != Place::Kind::kSysmem || found == regions_.end()) return false;
  const std::span<uint8_t> bytes = found->second->bytes();
  if (place.offset > bytes.size() || out.size() > bytes.size() - place.offset) return false;
  std::memcpy(out.data(), bytes.data() + place.offset, out.size());
  return true;
}

void Engine::OnMemory(const model::MemoryAccess& access) {
  if (access.space != model::Space::kVram) return;
  if (access.all_zero)
    vram_.Zero(access.offset, access.size);
  else
    vram_.Write(access.offset, access.data);
}

void Engine::OnDoorbell(const model::DoorbellWrite& doorbell) {
  const auto index = queues_.queues().FindByDoorbell(doorbell.offset);
  const model::Queue* queue = index ? &queues_.queues().queues()[*index] : nullptr;
  if (!queue || queue->submissions.empty()) {
    blind_ = true;
    return;
  }
  const model::Submission& submission = queue->submissions.back();
  if (submission.doorbell_call == doorbell.at.call) Load(*queue, submission);
}

// Reads the client's ring as it stands now and keeps what there is to do.
void Engine::Load(const model::Queue& queue, const model::Submission& submission) {
  Work& work = work_[queue.index];
  if (work.epoch != queue.epochs) work = {queue.epochs, false, {}};
  const Bell* bell = words_.Find(submission.doorbell_call);
  if (bell && bell->stuck) {
    work.stuck = true;
    if (stuck_call_ == 0) stuck_call_ = submission.doorbell_call;
  }
  if (work.stuck) return;
  if (bell && bell->slow_until != 0) {
    Op hold;
    hold.kind = Op::Kind::kHold;
    hold.value = bell->slow_until;
    work.ops.push_back(hold);
  }
  if (!LoadOps(queue, submission, work.ops)) blind_ = true;
}

bool Engine::LoadOps(const model::Queue& queue, const model::Submission& submission,
                     std::deque<Op>& ops) {
  if (!submission.begin || !queue.ring_va || queue.ring_bytes.value_or(0) == 0) return false;
  const uint64_t ring = *queue.ring_bytes;
  const uint64_t size = submission.end - *submission.begin;
  if (submission.end < *submission.begin || size > ring || size > kMaxStretch) return false;
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  const uint64_t begin = *submission.begin % ring;
  const size_t first = static_cast<size_t>(std::min(size, ring - begin));
  if (!Read(*queue.ring_va + begin, std::span(bytes).first(first)) ||
      !Read(*queue.ring_va, std::span(bytes).subspan(first)))
    return false;
  model::RingWalk walk(*this, queue.format);
  walk.Visit(bytes, *queue.ring_va + begin, [&](const model::VisitedItem& visited) {
    if (visited.item->kind != amd::WalkItem::Kind::kPacket || ops.size() >= kMaxOps) return;
    packets_++;
    if (auto op = Translate(visited.item->packet)) ops.push_back(std::move(*op));
  });
  if (queue.rptr_va) {
    Op pointer;
    pointer.kind = Op::Kind::kPointer;
    pointer.address = *queue.rptr_va;
    pointer.value = queue.ToRaw(submission.end);
    ops.push_back(pointer);
  }
  return true;
}

std::optional<Engine::Op> Engine::Translate(const amd::DecodedPacket& packet) const {
  Op op;
  if (const auto wait = amd::WaitOf(packet)) {
    op.kind = Op::Kind::kWait;
    op.wait = *wait;
    return op;
  }
  if (const auto fence = amd::FenceOf(packet)) {
    op.kind = Op::Kind::kFence;
    op.fence = *fence;
    return op;
  }
  if (const auto copy = amd::CopyOf(packet)) {
    op.kind = Op::Kind::kCopy;
    op.copy = *copy;
    return op;
  }
  const bool timestamp = packet.role == amd::PacketRole::kTimestamp;
  const bool data = packet.role == amd::PacketRole::kWrite && HasData(packet) &&
                    packet.raw.size() == packet.bytes() && packet.raw.size() > kWriteHead;
  if (!timestamp && !data) return std::nullopt;
  for (const amd::PacketField& field : packet.fields) {
    if (field.kind != amd::FieldKind::kAddress) continue;
    op.kind = timestamp ? Op::Kind::kTimestamp : Op::Kind::kStore;
    op.address = field.value;
    if (data) op.bytes.assign(packet.raw.begin() + kWriteHead, packet.raw.end());
    return op;
  }
  return std::nullopt;
}

// A register, or memory nobody knows, is not waited for.
bool Engine::Holds(const amd::WaitSpec& wait) const {
  uint32_t value = 0;
  if (!wait.memory || !Read32(wait.address, value)) return true;
  return amd::CompareHolds(wait.function, value, wait.reference, wait.mask);
}

bool Engine::MayGo(const Op& op) const {
  if (op.kind == Op::Kind::kHold) return followed_ >= op.value;
  return op.kind != Op::Kind::kWait || Holds(op.wait);
}

size_t Engine::Run() {
  const size_t before = stored_;
  // A fence of one queue may be what another waits for.
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& [queue, work] : work_) {
      while (!work.ops.empty() && MayGo(work.ops.front())) {
        Do(work.ops.front());
        work.ops.pop_front();
        moved = true;
      }
    }
  }
  return stored_ - before;
}

void Engine::Do(const Op& op) {
  uint8_t word[8];
  switch (op.kind) {
    case Op::Kind::kHold:
    case Op::Kind::kWait:
      break;
    case Op::Kind::kFence:
      StoreLe(word, op.fence.value);
      Store(op.fence.address, std::span(word).first(std::min<size_t>(op.fence.bytes, 8)));
      break;
    case Op::Kind::kTimestamp:
      StoreLe(word, Clock());
      Store(op.address, word);
      break;
    case Op::Kind::kPointer:
      StoreLe(word, op.value);
      Store(op.address, word);
      break;
    case Op::Kind::kStore:
      Store(op.address, op.bytes);
      break;
    case Op::Kind::kCopy:
      Copy(op.copy);
      break;
  }
}

void Engine::StorePlace(const Place& place, std::span<const uint8_t> bytes) {
  if (place.kind == Place::Kind::kVram) {
    vram_.Write(place.offset, bytes);
    return;
  }
  const auto found = regions_.find(place.region);
  if (place.kind != Place::Kind::kSysmem || found == regions_.end()) return;
  const std::span<uint8_t> memory = found->second->bytes();
  if (place.offset >= memory.size()) return;
  bytes = bytes.first(
      static_cast<size_t>(std::min<uint64_t>(bytes.size(), memory.size() - place.offset)));
  uint8_t* at = memory.data() + place.offset;
  // A fence is the last thing the client may see of a submission.
  if (bytes.size() == 4 && place.offset % 4 == 0)
    __atomic_store_n(reinterpret_cast<uint32_t*>(at), LoadLe<uint32_t>(bytes.data()),
                     __ATOMIC_RELEASE);
  else if (bytes.size() == 8 && place.offset % 8 == 0)
    __atomic_store_n(reinterpret_cast<uint64_t*>(at), LoadLe<uint64_t>(bytes.data()),
                     __ATOMIC_RELEASE);
  else
    std::memcpy(at, bytes.data(), bytes.size());
  wrote_[place.region].Add(place.offset, bytes.size());
  stored_++;
}

void Engine::Store(uint64_t va, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const Place place = Locate(va);
    const size_t part = static_cast<size_t>(
        std::min<uint64_t>(bytes.size(), std::max(place.run, kPage - va % kPage)));
    StorePlace(place, bytes.first(part));
    bytes = bytes.subspan(part);
    if (part > ~va) return;
    va += part;
  }
}

// What is not known is left as it is; the trace may show it (see Player).
void Engine::Copy(const amd::CopySpec& copy) {
  std::vector<uint8_t> piece;
  uint64_t src = copy.src, dst = copy.dst;
  for (uint64_t left = std::min(copy.bytes, kMaxCopy); left > 0;) {
    const Place from = Locate(src);
    const Place to = Locate(dst);
    const uint64_t run = std::min({left, uint64_t{kPiece}, std::max(from.run, kPage - src % kPage),
                                   std::max(to.run, kPage - dst % kPage)});
    // VRAM is known in patches: go page by page where it is.
    uint64_t part = run;
    if (from.kind == Place::Kind::kVram) part = std::min(run, kPage - from.offset % kPage);
    piece.resize(static_cast<size_t>(part));
    if (ReadPlace(from, piece)) {
      StorePlace(to, piece);
    } else {
      unknown_bytes_ += part;
      if (to.kind == Place::Kind::kSysmem)
        if (const auto found = wrote_.find(to.region); found != wrote_.end())
          found->second.Remove(to.offset, part);
    }
    if (part > ~src || part > ~dst) return;
    src += part;
    dst += part;
    left -= part;
  }
}

bool Engine::Keeps(uint32_t region, uint64_t offset, uint64_t size) const {
  if (!blind_ && words_.Signals(session_, region, offset, size)) return true;
  const auto found = wrote_.find(region);
  return found != wrote_.end() && found->second.Overlaps(offset, size);
}

}  // namespace tg::replay
