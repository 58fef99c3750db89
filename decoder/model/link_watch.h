// Is the device still there? Watches what reads return and how long they take.
//
// A PCI device that does not answer reads as all ones. What that means depends on what else is
// known: configuration space all ones too = gone from the bus; configuration fine = BAR decode or
// link. Most useful is the moment of change: the last good read of the same register, what was
// written in between, and whether replies became slow. Registers may hold all ones legitimately
// (masks that were written so), and VRAM may hold anything; both are told apart here. VRAM that was
// written otherwise a moment ago and reads back as all ones counts, though.
//
// Facts: PCI local bus (COMMAND bit 1 memory space, bit 2 bus master, bit 10 INTx disable);
// NV_PMC_BOOT_0 / NV_PMC_BOOT_42 at BAR0 + 0x0 / 0xa00, architecture in bits 29:24 of BOOT_42
// (envytools; open-gpu-kernel-modules).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "decoder/model/flat_index.h"
#include "decoder/model/types.h"
#include "schemas/wire/commands.h"

namespace tg::model {

// A write that was sent; equal neighbours are one entry.
struct WriteSeen {
  uint64_t seq = 0;       // first
  uint64_t last_seq = 0;  // last
  uint64_t count = 1;
  uint64_t time_ns = 0;  // of the last
  wire::RequestHeader header;
  uint64_t value = 0;       // first 8 bytes, little-endian (CFG_WRITE: arg2)
  uint8_t value_bytes = 0;  // how many of them are known
};
// "bar0+0x1620 <- 0x00000001", "CFG_WRITE 0x4 <- 0x0407".
std::string WriteText(const WriteSeen& write);

inline constexpr size_t kSuspects = 20;  // last writes kept

// All writes so far: how many, and the last kSuspects; equal neighbours are one entry.
class RecentWrites {
 public:
  void Add(const WriteSeen& write);
  uint64_t total() const { return total_; }
  const WriteSeen* newest() const { return count_ ? &ring_[(count_ - 1) % kSuspects] : nullptr; }
  std::vector<WriteSeen> OldestFirst() const;

 private:
  std::array<WriteSeen, kSuspects> ring_;
  uint64_t count_ = 0;
  uint64_t total_ = 0;
};

// What one answered read brought. `count` > 1: equal reads, from `seq` to `last_seq`.
struct ReadSeen {
  wire::RequestHeader header;
  uint64_t seq = 0;
  uint64_t last_seq = 0;
  uint64_t count = 1;
  uint64_t time_ns = 0;
  uint64_t value = 0;
  uint64_t latency_ns = 0;  // least of the run when count > 1
};

std::string_view VendorText(Vendor vendor);

enum class LinkState : uint8_t {
  kUnknown,     // no register read to judge by
  kAnswering,   // the last register read was good
  kAllOnes,     // registers read all ones; configuration space answers or was not looked at
  kMemoryOff,   // all ones, and COMMAND says memory decode is off
  kDeviceGone,  // configuration space reads all ones too
};

class LinkWatch {
 public:
  // Last good read of a register.
  struct Register {
    uint64_t seq = 0;
    uint64_t time_ns = 0;
    uint64_t value = 0;
    uint64_t latency_ns = 0;
    uint64_t writes_total = 0;  // writes sent before it
    bool read = false;
    bool ones_written = false;
  };
  // All-ones reads without a good register read between them.
  struct Run {
    ReadSeen first;
    uint64_t last_seq = 0;
    uint64_t count = 0;
    uint64_t registers = 0;        // different ones, counted up to 2
    bool read_back = false;        // the first was memory that had been written otherwise
    std::optional<Register> good;  // of the first register
    uint64_t writes_between = 0;   // since that good read (or since the start)
    std::optional<WriteSeen> last_write;
    double latency_ns = 0;      // mean of the run
    double mean_before_ns = 0;  // of small reads before the run
    uint64_t ended_seq = 0;     // a good read came back here
  };

  // A register whose answer turned to all ones, or never was anything else.
  struct OnesRegister {
    ReadSeen first;                // the first such read
    std::optional<Register> good;  // the last good one before it
    uint64_t last_seq = 0;
    uint64_t count = 0;
    std::vector<WriteSeen> writes;  // sent between the two, the newest kSuspects
    uint64_t writes_between = 0;
    uint64_t good_again = 0;  // record of its next good read; 0: there was none
  };
  static constexpr size_t kMaxOnes = 64;

  void OnConfigRead(const ReadSeen& read, const RecentWrites& writes);
  void OnConfigWrite(const wire::RequestHeader& header, uint64_t seq);
  // MMIO_READ of up to 8 bytes, answered with status 0. `writes`: those sent before it.
  void OnRead(const ReadSeen& read, const RecentWrites& writes);
  // MMIO_WRITE of up to 8 bytes whose value is known.
  void OnWrite(const wire::RequestHeader& header, uint64_t value);
  void OnBar(uint32_t bar, uint64_t size);
  void OnVendor(Vendor vendor) { vendor_ = vendor; }
  void NewConnection();

  Vendor vendor() const { return vendor_; }
  LinkState state() const;
  // First all-ones read of the run that still lasts, 0 if none.
  uint64_t ones_since() const { return current_ ? current_->first.seq : 0; }
  uint64_t ones_count() const { return current_ ? current_->count : 0; }
  // Configuration space answered after the last good read of the register that went bad first.
  bool config_answers() const {
    return config_id_ && (!current_ || !current_->good || config_seq_ > current_->good->seq);
  }
  const Run* run() const { return current_ ? &*current_ : nullptr; }  // that still lasts
  bool several_registers() const { return current_ && current_->registers >= 2; }
  const std::vector<OnesRegister>& ones() const { return ones_; }  // the first kMaxOnes
  uint64_t ones_reads() const { return ones_reads_; }              // of registers, in all
  uint64_t last_good_read() const { return good_seq_; }            // of any register; 0: none
  // What the state comes to, for people: "PCI config still answers (0x10de:0x2b85): BAR decode
  // ...".
  std::string Conclusion() const;
  // "NV_PMC_BOOT_42", where no table of registers is needed to know it; else "bar0+0x1620".
  std::string RegisterName(const wire::RequestHeader& header, bool full) const;
  std::optional<uint32_t> config_id() const { return config_id_; }
  std::optional<uint16_t> command() const { return command_; }
  // Warnings for what was seen so far (rule B03).
  std::vector<Warning> Explain() const;

 private:
  bool IsRegisterBar(const wire::RequestHeader& header) const;
  bool LooksNvidia() const;
  std::string RunText(const Run& run) const;
  void WatchLatency(const ReadSeen& read, const RecentWrites& writes);
  Register* Find(uint64_t key);
  Register* FindOrAdd(uint64_t key);
  void NoteOnes(const ReadSeen& read, const Register* before, const RecentWrites& writes);

  Vendor vendor_ = Vendor::kUnknown;
  std::vector<Register> registers_;                  // at most kMaxRegisters
  FlatIndex index_;                                  // key -> position in registers_
  std::unordered_map<uint32_t, uint64_t> bar_size_;  // at most kMaxBars
  // What was written last to small places outside the register BAR, by a hash of the key: of two
  // places that share a slot the older one is forgotten. Small, as every write goes through it.
  struct Written {
    uint64_t key = UINT64_MAX;
    uint64_t value = 0;
  };
  std::vector<Written> written_;
  bool ones_written_ = false;  // some entry of registers_ has it
  std::vector<OnesRegister> ones_;
  size_t ones_open_ = 0;  // entries without good_again
  uint64_t ones_reads_ = 0;
  bool bar5_used_ = false;

  std::optional<uint32_t> config_id_;  // last good vendor and device word
  bool config_has_device_ = false;     // read as 4 bytes
  uint64_t config_seq_ = 0;            // newest good read of the header
  uint64_t good_seq_ = 0;              // newest good read of a register
  uint64_t config_ones_seq_ = 0;       // configuration header read all ones here, not good since
  std::optional<uint16_t> command_;
  uint64_t command_seq_ = 0;
  bool bar_registers_seen_ = false;

  std::optional<Run> current_;
  std::optional<Run> past_;  // first finished run worth telling
  uint64_t past_runs_ = 0;
  LinkState last_ = LinkState::kUnknown;

  // Reply times of small reads.
  uint64_t latency_reads_ = 0;
  double latency_mean_ = 0;
  uint64_t slow_reads_ = 0;
  uint64_t slow_seq_ = 0;
  uint64_t slow_latency_ = 0;
  std::optional<WriteSeen> slow_write_;
  std::optional<Warning> slow_warning_;
};

}  // namespace tg::model
