// The GPU's command queues as far as they were seen: where they are, how far the host wrote, how
// far the GPU read, and every submission: announced by which doorbell, retired by which fence.
//
// Fed in call order with what the device model makes of each call: register accesses by name,
// doorbell writes, and "memory there was observed" (its bytes are in the QueueMemory by then).
//
// Units: everything here is in bytes, monotonic, as if the ring had no end (ring offset = value mod
// ring size). The hardware's own units: SDMA bytes, PM4 dwords, AQL packets, and an AQL doorbell
// names the last packet, not the one after.
//
// When the ring's bytes count as seen: once the queue's write pointer word in memory is observed at
// or past a submission's end (the client writes ring, then pointer, then doorbell; the proxy stores
// them in that order), or, where no such word is known, on the ring's first lap.
//
// Bounded: kMaxQueues queues, kMaxSubmissions remembered of each, kMaxFenceWords fence addresses.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/model/queue_memory.h"
#include "decoder/model/queue_setup.h"
#include "decoder/model/queue_walk.h"
#include "schemas/amd/packet_walker.h"

namespace tg::model {

inline constexpr size_t kMaxQueues = 128;
inline constexpr size_t kMaxSubmissions = 1u << 15;  // per queue; about 200 bytes each
inline constexpr size_t kMaxFenceWords = 4096;
inline constexpr size_t kMaxSignals = 16;  // remembered per submission
inline constexpr size_t kMaxQueueWarnings = 256;
inline constexpr uint64_t kMaxRingBytes = 1ull << 30;  // larger is damage

// A pointer value and how it was learnt.
struct PointerSeen {
  enum class Source : uint8_t { kNone, kSetup, kRegister, kMemory, kDoorbell };
  Source source = Source::kNone;
  uint64_t raw = 0;  // in the hardware's unit
  uint64_t call = 0;
  bool by_client = false;  // in a SYSMEM_READ of the client: as it was then, not as it is now
  explicit operator bool() const { return source != Source::kNone; }
};
std::string_view SourceText(PointerSeen::Source source);  // "register", "memory", ...

struct FenceRef {
  uint64_t va = 0;
  uint64_t value = 0;
  uint32_t bytes = 4;
};

struct Submission {
  enum class Content : uint8_t { kPending, kObserved, kNotObserved };

  uint64_t number = 0;            // within its queue, from 1
  uint32_t epoch = 0;             // the queue's set-up it belongs to
  std::optional<uint64_t> begin;  // bytes; nothing when the pointer before was not known
  uint64_t end = 0;
  uint64_t doorbell_value = 0;  // as written
  uint64_t doorbell_call = 0;
  uint64_t doorbell_ns = 0;
  uint64_t written_call = 0;  // newest call by which ring bytes were seen; 0: not observed
  Content content = Content::kPending;
  uint32_t packets = 0;
  uint32_t not_packets = 0;       // stretches that did not decode
  std::vector<FenceRef> signals;  // ring and indirect buffers, in order; the last kMaxSignals
  std::optional<uint64_t> retired_call;  // when its last signal was first seen in memory
  uint64_t retired_ns = 0;
  bool wiped = false;  // the queue was set up again before that: a value seen later is the host's
};

struct Queue {
  size_t index = 0;
  std::string name;  // "SDMA0", "COMPUTE0", "QUEUE@0x1f0"
  amd::PacketFormat format;
  bool known_format = true;  // false: a doorbell of no known queue
  QueueSetup setup;
  uint64_t setup_call = 0;  // the write that enabled it; 0: not in the trace
  uint32_t epochs = 0;      // times it was set up
  uint32_t xccs = 1;        // compute: how many XCCs were given the same ring

  std::optional<uint64_t> ring_va, ring_bytes, rptr_va, wptr_va;
  std::optional<uint32_t> doorbell_offset;
  // Where the ring seems to lie when its address leads nowhere (no page tables, no set-up in the
  // trace): the region whose last write before a doorbell ended at the doorbell's value.
  Place guess;

  uint64_t doorbells = 0;
  std::optional<uint64_t> announced;  // bytes: end of what doorbells announced
  uint64_t last_doorbell_value = 0, last_doorbell_call = 0, last_doorbell_ns = 0;
  bool warm_start = false;  // the first doorbell's start is not zero, or not known

  PointerSeen rptr_register, rptr_memory;
  PointerSeen wptr_register, wptr_memory;

  std::deque<Submission> submissions;  // the newest kMaxSubmissions
  uint64_t submissions_total = 0;
  uint64_t bytes_total = 0;

  uint32_t unit() const { return format.pointer_unit(); }
  bool sdma() const { return format.format == amd::RingFormat::kSdma; }
  // Hardware units to bytes and back.
  uint64_t ToBytes(uint64_t raw) const { return raw * unit(); }
  uint64_t ToRaw(uint64_t bytes) const { return bytes / unit(); }
  std::optional<uint64_t> RingOffset(uint64_t position) const {
    return ring_bytes && *ring_bytes ? std::optional<uint64_t>(position % *ring_bytes)
                                     : std::nullopt;
  }
  // The newest read pointer, in bytes and unwrapped next to `announced`. Nothing when only the
  // set-up is known.
  std::optional<uint64_t> ReadPosition() const;
  const PointerSeen& newest_rptr() const;
};

struct QueueWarning {
  std::string rule;  // "ring-overrun", "doorbell-backwards", ...
  size_t queue = 0;
  uint64_t call = 0;
  std::string text;
};

// A packet of a submission whose bytes were seen, in order; `item.packet.raw` is valid during the
// call. Packets of indirect buffers have depth > 0.
struct QueuePacketEvent {
  const Queue* queue = nullptr;
  const Submission* submission = nullptr;
  VisitedItem visited;
  uint64_t call = 0;  // the doorbell's
  uint64_t ns = 0;
};

class Queues {
 public:
  explicit Queues(const QueueMemory& memory);
  ~Queues();
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  // Major versions of the SDMA and GC blocks, once known. Queues already found follow.
  void SetVersions(unsigned sdma_major, unsigned gc_major);
  void SetPacketListener(std::function<void(const QueuePacketEvent&)> listener);

  void OnRegisterWrite(std::string_view name, uint32_t instance, uint32_t value, uint64_t call,
                       uint64_t ns);
  void OnRegisterRead(std::string_view name, uint32_t instance, uint32_t value, uint64_t call,
                      uint64_t ns);
  // A write to VRAM, for MQDs. Only the start is looked at.
  void OnVramWrite(uint64_t address, std::span<const uint8_t> bytes, uint64_t call);
  // `offset` within BAR2; `size` 4 or 8.
  void OnDoorbell(uint64_t offset, uint64_t value, uint32_t size, uint64_t call, uint64_t ns);
  // Bytes [offset, offset + size) of a region (handle) were just observed: stored by the proxy, or
  // in a SYSMEM_WRITE or SYSMEM_READ of the client.
  enum class Seen : uint8_t { kStored, kClientWrote, kClientRead };
  void OnSysmem(Seen seen, uint32_t region, uint64_t offset, uint64_t size, uint64_t call,
                uint64_t ns);
  // The client is gone: pending submissions whose bytes did not come are closed.
  void OnEnd(uint64_t call, uint64_t ns);
  // A new client: the regions of the one before are gone. What queues were is kept.
  void OnConnect(uint64_t call, uint64_t ns);

  const std::deque<Queue>& queues() const { return queues_; }
  std::vector<QueueWarning> warnings() const;
  const QueueMemory& memory() const { return memory_; }

  // The ring bytes [begin, end) of a queue, put together across the ring's end. False unless every
  // byte was observed, or if the stretch is longer than the ring.
  bool ReadRing(const Queue& queue, uint64_t begin, uint64_t end, std::vector<uint8_t>& out) const;
  // Whether the ring's bytes up to `end` are those of this lap (see above).
  bool ContentReady(const Queue& queue, uint64_t end) const;
  // The submission (newest first) whose signal makes [va] reach `value`, or nullptr.
  struct Producer {
    const Queue* queue = nullptr;
    const Submission* submission = nullptr;
  };
  Producer FindProducer(uint64_t va, uint64_t value) const;
  // The largest value that any submission signals at [va].
  std::optional<uint64_t> HighestSignal(uint64_t va) const;
  std::optional<size_t> FindByDoorbell(uint64_t offset) const;
  // The queue that this register sets up, as GRBM_GFX_CNTL selects now.
  std::optional<size_t> FindByRegister(const QueueRegister& reg) const;
  std::optional<size_t> FindByName(std::string_view name) const;  // any case

 private:
  // Set-up in progress: one SDMA queue, or one HQD of one XCC.
  struct Engine {
    QueueRegister id;
    QueueSelect select;
    QueueSetup setup;
    Halves rptr_read, wptr_read;
    std::optional<size_t> queue;
  };
  // A word in memory that submissions signal.
  struct FenceWord {
    uint64_t va = 0;
    uint32_t bytes = 4;
    struct Pending {
      uint64_t value = 0;
      size_t queue = 0;
      uint64_t submission = 0;
    };
    std::deque<Pending> pending;
  };
  struct Written {
    Seen seen = Seen::kStored;
    uint32_t region = 0;
    uint64_t offset = 0, size = 0, call = 0;
  };
  struct Overrun {
    uint64_t call = 0;
    std::string text;
  };

  Queue& Make(std::string name, amd::RingFormat format);
  Engine& EngineOf(const QueueRegister& reg);
  void Commit(Engine& engine, uint64_t call);
  void Adopt(Queue& queue, const QueueSetup& setup);
  void StartEpoch(Queue& queue, uint64_t call);
  Queue& QueueOfEngine(Engine& engine);
  Queue& QueueOfDoorbell(uint64_t offset);
  Queue* FindCompute(const QueueSetup& setup);
  void SetFormat(Queue& queue);
  void Announce(Queue& queue, uint64_t value, uint64_t call, uint64_t ns);
  void GuessRing(Queue& queue, uint64_t end);
  void NoteRptr(Queue& queue, uint64_t call);
  void CheckOverrun(Queue& queue, uint64_t call);
  void Advance(Queue& queue, uint64_t call, uint64_t ns);
  void Decode(Queue& queue, Submission& submission, uint64_t call, uint64_t ns);
  void WaitForFence(Queue& queue, Submission& submission, uint64_t call, uint64_t ns);
  void CheckFence(FenceWord& word, uint64_t call, uint64_t ns);
  Submission* FindSubmission(size_t queue, uint64_t number);
  const Written* PieceEndingAt(const Queue& queue, uint64_t end) const;
  bool PointerWord(const std::optional<uint64_t>& va, uint32_t region, uint64_t offset,
                   uint64_t size, uint64_t& value) const;
  void Warn(const Queue& queue, std::string rule, uint64_t call, std::string text);

  const QueueMemory& memory_;
  amd::SdmaGen sdma_gen_ = amd::SdmaGen::k6;
  amd::Pm4Gen pm4_gen_ = amd::Pm4Gen::kGfx11;
  std::function<void(const QueuePacketEvent&)> listener_;
  std::map<uint32_t, Engine> engines_;
  std::map<uint32_t, QueueSelect> select_;  // by XCC
  std::deque<Queue> queues_;
  std::vector<uint64_t> next_;                                 // by queue: submission to decode
  std::map<std::pair<uint64_t, uint64_t>, FenceWord> fences_;  // by (space, offset)
  std::vector<QueueWarning> warnings_;
  std::map<size_t, Overrun> overrun_;  // by queue: may be taken back by a newer read pointer
  std::deque<Written> written_;        // the last pieces of memory observed
};

}  // namespace tg::model
