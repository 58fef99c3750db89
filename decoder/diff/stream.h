// Internal to the event stream: its working state, shared by stream*.cc, one file per kind of
// event.
#pragma once

#include <array>
#include <bitset>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decoder/diff/events.h"
#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"

namespace tinygpu::trace {
class BodyChunk;
}

namespace tg::diff {

// Order matters.
class Hash {
 public:
  Hash& Add(uint64_t word) {
    state_ = (state_ ^ word) * 0x9fb21c651e98df25ull;
    state_ ^= state_ >> 29;
    return *this;
  }
  Hash& Add(std::string_view text);
  uint64_t Get() const { return state_ * 0xff51afd7ed558ccdull ^ state_ >> 32; }

 private:
  uint64_t state_ = 0x2545f4914f6cdd1dull;
};
uint64_t HashBytes(std::span<const uint8_t> bytes);

// The driver's boot allocator and page tables begin there; below all lies where it lies.
inline constexpr uint64_t kReservedVram = 32u << 20;
inline constexpr uint64_t kStagingSize = 2u << 20;  // tinygrad hcq.py: 32 buffers of 2 MiB
inline constexpr uint64_t kLeastRing = 16u << 20;   // regions of that size are rings

class EventStream::Impl : public model::Observer {
 public:
  Impl(std::unique_ptr<trace::TraceReader> reader, StreamOptions options);
  bool Next(Token& token);
  const trace::TraceReader& reader() const { return *reader_; }
  std::vector<std::string> unused_patterns() const { return filter_.Unused(); }

  void OnRegister(const model::RegisterAccess& access) override;
  void OnMemory(const model::MemoryAccess& access) override;
  void OnDoorbell(const model::DoorbellWrite& doorbell) override;
  void OnConnect(model::Stamp at) override;

 private:
  struct RegionSeen {
    uint64_t number = 0;  // in the order of the trace
    uint64_t size = 0;
  };
  // What becomes a token: the event, and what alignment compares of it.
  struct Draft {
    std::shared_ptr<Event> event;
    Token token;
  };

  // stream.cc: records, handing out
  void Feed(const trace::Record& record);
  void Gap(uint64_t seq, uint64_t time_ns, std::string text);
  Draft Make(Event::Kind kind, model::Stamp at, bool write) const;
  void EmitRead(Draft draft);   // one of a run of equal reads
  void EmitWrite(Draft draft);  // equal ones in a row are one
  void Emit(Draft draft);       // ends all runs
  void Push(Draft draft);
  void FlushRuns();
  bool Held();
  bool Filtered(Token& token);

  // stream_calls.cc
  bool Unanswered() const;
  void OnRequest(const trace::Record& record);
  void OnReply(const trace::Record& record);
  void OnPacketRecord(const trace::Record& record);
  void OnInterrupts();
  void End();

  // stream_memory.cc
  void OnVram(const model::MemoryAccess& access);
  void OnSysmem(const model::MemoryAccess& access);
  void OnBar(const model::MemoryAccess& access);
  void OnEntryWrite(const model::MemoryAccess& access);
  void OnEntryRead(const model::MemoryAccess& access);
  void FlushEntries();
  void EmitAccess(Draft draft);
  void OnLastChunk(const tinygpu::trace::BodyChunk& chunk, uint64_t newest);
  void Content(const model::MemoryAccess& access, Draft& draft, bool addresses);
  bool InIhRing(uint64_t offset) const;

  // stream_queues.cc
  void OnPacket(const model::QueuePacketEvent& event);
  Part PartOf(const model::QueuePacketEvent& event);
  void AddAddress(uint64_t va, Hash& hash, std::vector<Soft>& soft) const;
  uint64_t StagingCount() const;
  const RegionSeen* Staging(uint64_t va) const;

  struct Entry {
    uint64_t at = 0;  // VRAM offset of the first entry
    uint64_t flags = 0;
    Event::Target target = Event::Target::kVram;
    bool unknown = false;  // a DMA address, and not all regions' addresses are known
    uint32_t region = 0;
    uint64_t to = 0;
    bool Continues(const Entry& first, uint64_t count) const;
  };
  struct Entries {
    std::array<uint64_t, 512> word{};
    std::bitset<512> known;
  };
  struct Table {
    int level = 0;
    std::unique_ptr<Entries> entries;  // as written; made by the first write
  };
  struct OpenDoorbell {
    std::shared_ptr<Event> event;
    std::shared_ptr<Parts> parts;
  };
  const RegionSeen* FindRegion(uint32_t index) const;
  bool RegionsUnknown() const;

  std::unique_ptr<trace::TraceReader> reader_;
  const StreamOptions options_;
  const bool strict_;
  FilterUse filter_;
  model::Device device_;
  model::DeviceQueues queues_;

  std::deque<Token> ready_;
  std::unordered_map<uint64_t, OpenDoorbell> open_;  // doorbells that wait for their packets
  bool ended_ = false;
  bool done_ = false;

  wire::RequestHeader last_request_;
  uint64_t last_seq_ = 0;
  uint64_t last_time_ns_ = 0;
  bool answered_ = false;
  const trace::Record* record_ = nullptr;  // fed now
  std::map<uint64_t, Draft> in_pieces_;    // accesses whose content is not whole yet, by call
  bool folded_alone_ = false;              // the record fed now is a run of one call
  size_t skipped_ = 0;
  bool gap_seen_ = false;
  uint64_t unanswered_ = 0;
  std::string closed_first_;
  bool connected_ = false, end_seen_ = false, raw_seen_ = false, ones_seen_ = false;
  uint64_t interrupts_ = 0, discarded_ = 0;
  uint64_t compute_doorbells_ = 0, drained_doorbells_ = 0;

  std::optional<Draft> poll_, write_;
  Entry run_;
  uint64_t run_count_ = 0;
  Draft run_draft_;
  std::shared_ptr<std::vector<Soft>> run_pages_;

  std::unordered_map<uint64_t, Table> tables_;  // by page of VRAM
  std::unordered_map<uint32_t, RegionSeen> regions_;
  uint64_t next_region_ = 0;
  uint64_t staging_ = 0;  // regions of a staging buffer's size
};

}  // namespace tg::diff
