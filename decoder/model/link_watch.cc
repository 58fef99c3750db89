#include "decoder/model/link_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/model/words.h"

namespace tg::model {
namespace {

constexpr size_t kMaxRegisters = 1u << 16;
constexpr size_t kMaxBars = 64;
constexpr uint64_t kLargestRegisterBar = 64ull
                                         << 20;  // NVIDIA BAR0 16..64 MiB, AMD BAR5 512 KiB..2 MiB
constexpr uint64_t kNvBoot0 = 0x0, kNvBoot42 = 0xa00;
constexpr uint16_t kPciNvidia = 0x10de, kPciAmd = 0x1002;
constexpr uint64_t kSlowFactor = 20, kSlowNs = 1'000'000;
// Without all-ones reads beside it, a slow machine must not look like a slow link.
constexpr uint64_t kJumpFactor = 200, kJumpNs = 10'000'000, kSlowReads = 8, kEnoughReads = 50;

bool IsAllOnes(uint64_t value, uint64_t size) {
  return size == 8 ? value == UINT64_MAX : value == (1ull << size * 8) - 1;
}

// (device, BAR, offset) as one key; BARs past 255 and offsets past 2^48 share keys, which costs
// nothing but a missed "last good read".
uint64_t Key(const wire::RequestHeader& h) {
  return h.arg0 ^ (static_cast<uint64_t>(h.bar & 0xff) << 48) ^
         (static_cast<uint64_t>(h.dev & 0xff) << 56);
}

constexpr size_t kWrittenSlots = 8192;
size_t WrittenSlot(uint64_t key) {
  return (key * 0x9e3779b97f4a7c15ull) >> 51;  // 13 bits
}

std::string CommandText(uint16_t command) {
  return fmt::format("COMMAND {} = memory {}, bus master {}", HexPadded(command, 4),
                     command & 2 ? "on" : "off", command & 4 ? "on" : "off");
}

std::string LatencyRise(uint64_t before, uint64_t after) {
  return fmt::format("reply time rose from {} to {}", Duration(before), Duration(after));
}

}  // namespace

std::string_view VendorText(Vendor vendor) {
  switch (vendor) {
    case Vendor::kUnknown:
      return "";
    case Vendor::kAmd:
      return "AMD";
    case Vendor::kNvidia:
      return "NVIDIA";
    case Vendor::kOther:
      return "other";
  }
  return "";
}

std::string WriteText(const WriteSeen& write) {
  const bool config = write.header.command == static_cast<uint8_t>(wire::Command::kCfgWrite);
  std::string out = config ? CallText(write.header) : TargetText(write.header);
  if (write.value_bytes > 0)
    out += " <- " + HexPadded(write.value, write.value_bytes * 2);
  else
    out += fmt::format(" ({})", Bytes(write.header.arg1));
  if (write.count > 1) out += " x" + Thousands(write.count);
  return out;
}

void RecentWrites::Add(const WriteSeen& write) {
  total_ = SaturatingAdd(total_, write.count);
  if (count_ > 0) {
    WriteSeen& last = ring_[(count_ - 1) % kSuspects];
    if (last.value == write.value && last.header == write.header && write.value_bytes > 0 &&
        last.value_bytes == write.value_bytes) {
      last.count = SaturatingAdd(last.count, write.count);
      last.last_seq = write.last_seq;
      last.time_ns = write.time_ns;
      return;
    }
  }
  ring_[count_++ % kSuspects] = write;
}

std::vector<WriteSeen> RecentWrites::OldestFirst() const {
  std::vector<WriteSeen> out;
  for (uint64_t i = count_ - std::min<uint64_t>(count_, kSuspects); i < count_; i++)
    out.push_back(ring_[i % kSuspects]);
  return out;
}

LinkWatch::Register* LinkWatch::Find(uint64_t key) {
  const uint32_t at = index_.Find(key);
  return at == FlatIndex::kNone ? nullptr : &registers_[at];
}

// nullptr: there are too many.
LinkWatch::Register* LinkWatch::FindOrAdd(uint64_t key) {
  if (Register* found = Find(key)) return found;
  if (registers_.size() >= kMaxRegisters) return nullptr;
  index_.Add(key, static_cast<uint32_t>(registers_.size()));
  return &registers_.emplace_back();
}

void LinkWatch::OnBar(uint32_t bar, uint64_t size) {
  if (bar_size_.size() < kMaxBars) bar_size_[bar] = size;
  if (bar == 5) bar5_used_ = true;
}

void LinkWatch::NewConnection() {
  // Another process, another set of registers as far as "last good read" goes.
  registers_.clear();
  index_ = {};
  written_.clear();
  latency_reads_ = slow_reads_ = 0;
}

bool LinkWatch::LooksNvidia() const {
  if (vendor_ != Vendor::kUnknown) return vendor_ == Vendor::kNvidia;
  return !bar5_used_;
}

bool LinkWatch::IsRegisterBar(const wire::RequestHeader& header) const {
  const auto size = bar_size_.find(header.bar);
  if (size != bar_size_.end() && size->second > kLargestRegisterBar) return false;
  if (vendor_ == Vendor::kOther) return true;
  return header.bar == (LooksNvidia() ? 0u : 5u);
}

std::string LinkWatch::RegisterName(const wire::RequestHeader& header, bool full) const {
  if (header.bar == 0 && header.dev == 0 && LooksNvidia()) {
    if (header.arg0 == kNvBoot0) return full ? "NV_PMC_BOOT_0" : "BOOT_0";
    if (header.arg0 == kNvBoot42) return full ? "NV_PMC_BOOT_42" : "BOOT_42";
  }
  return TargetText(header);
}

void LinkWatch::OnConfigRead(const ReadSeen& read, const RecentWrites& writes) {
  const uint64_t offset = read.header.arg0, size = read.header.arg1;
  if (size != 1 && size != 2 && size != 4) return;
  const uint64_t value = size == 4 ? read.value & 0xffffffff : read.value & ((1u << size * 8) - 1);
  WatchLatency(read, writes);
  // Of the header's first 16 bytes none can be all ones on a device that answers.
  if (offset < 0x10 && size >= 2 && IsAllOnes(value, size)) {
    if (config_ones_seq_ == 0) config_ones_seq_ = read.seq;
    return;
  }
  if (offset < 0x10) {
    config_ones_seq_ = 0;
    config_seq_ = read.last_seq;
  }
  if (offset == 0 && size >= 2) {
    config_id_ = static_cast<uint32_t>(value);
    config_has_device_ = size == 4;
    const uint16_t vendor = static_cast<uint16_t>(value);
    vendor_ = vendor == kPciNvidia ? Vendor::kNvidia
              : vendor == kPciAmd  ? Vendor::kAmd
                                   : Vendor::kOther;
  }
  if (offset == 4 && size >= 2) {
    command_ = static_cast<uint16_t>(value);
    command_seq_ = read.last_seq;
  }
  if (offset >= 0x10 && offset < 0x28) bar_registers_seen_ = true;
}

void LinkWatch::OnConfigWrite(const wire::RequestHeader& header, uint64_t seq) {
  if (header.arg0 != 4 || (header.arg1 != 2 && header.arg1 != 4)) return;
  command_ = static_cast<uint16_t>(header.arg2);
  command_seq_ = seq;
}

void LinkWatch::OnWrite(const wire::RequestHeader& header, uint64_t value) {
  if (header.bar == 5) bar5_used_ = true;
  const bool ones = header.arg1 > 0 && header.arg1 <= 8 && IsAllOnes(value, header.arg1);
  if ((header.arg1 == 4 || header.arg1 == 8) && !IsRegisterBar(header)) {
    if (written_.empty()) written_.resize(kWrittenSlots);
    written_[WrittenSlot(Key(header))] = {Key(header), value};
  }
  if (!ones && !ones_written_) return;
  Register* reg = ones ? FindOrAdd(Key(header)) : Find(Key(header));
  if (reg) reg->ones_written = ones;
  ones_written_ |= ones;
}

void LinkWatch::WatchLatency(const ReadSeen& read, const RecentWrites& writes) {
  if (read.latency_ns == 0) return;
  const double latency = static_cast<double>(read.latency_ns);
  const bool slow = latency_reads_ >= kEnoughReads && read.latency_ns >= kJumpNs &&
                    latency > latency_mean_ * kJumpFactor;
  if (slow) {
    if (slow_reads_ == 0) {
      slow_seq_ = read.seq;
      slow_latency_ = read.latency_ns;
      slow_write_.reset();
      if (writes.newest()) slow_write_ = *writes.newest();
    }
    slow_reads_ = SaturatingAdd(slow_reads_, read.count);
    slow_latency_ = std::min(slow_latency_, read.latency_ns);
    if (slow_reads_ >= kSlowReads && !slow_warning_) {
      std::string text =
          fmt::format("{} since record {}",
                      LatencyRise(static_cast<uint64_t>(latency_mean_), slow_latency_), slow_seq_);
      if (slow_write_)
        text += fmt::format("; last write before: {} (record {})", WriteText(*slow_write_),
                            slow_write_->last_seq);
      slow_warning_ = Warning{"B03", slow_seq_, std::move(text)};
    }
    return;
  }
  slow_reads_ = 0;
  // A mean that follows: old reads count less and less after the first thousand.
  latency_reads_ = SaturatingAdd(latency_reads_, read.count);
  const double weight = static_cast<double>(std::min<uint64_t>(read.count, 1000)) /
                        static_cast<double>(std::min<uint64_t>(latency_reads_, 1000));
  latency_mean_ += (latency - latency_mean_) * std::min(weight, 1.0);
}

void LinkWatch::NoteOnes(const ReadSeen& read, const Register* before, const RecentWrites& writes) {
  ones_reads_ = SaturatingAdd(ones_reads_, read.count);
  const uint64_t key = Key(read.header);
  for (auto r = ones_.rbegin(); r != ones_.rend(); ++r) {
    if (r->good_again || Key(r->first.header) != key) continue;
    r->last_seq = read.last_seq;
    r->count = SaturatingAdd(r->count, read.count);
    return;
  }
  if (ones_.size() >= kMaxOnes) return;
  OnesRegister r;
  r.first = read;
  r.last_seq = read.last_seq;
  r.count = read.count;
  if (before && before->read) {
    r.good = *before;
    r.writes_between = writes.total() - before->writes_total;
    for (const WriteSeen& write : writes.OldestFirst())
      if (write.last_seq > before->seq) r.writes.push_back(write);
  }
  ones_.push_back(std::move(r));
  ones_open_++;
}

void LinkWatch::OnRead(const ReadSeen& read, const RecentWrites& writes) {
  const uint64_t size = read.header.arg1;
  if (size == 0 || size > 8) return;
  if (read.header.bar == 5) bar5_used_ = true;
  const bool slow_before = slow_warning_.has_value();
  const double mean_before = latency_mean_;
  WatchLatency(read, writes);
  bool read_back = false;
  if (!IsRegisterBar(read.header)) {
    if ((size != 4 && size != 8) || !IsAllOnes(read.value, size)) return;
    if (written_.empty()) return;
    const uint64_t key = Key(read.header);
    const Written& wrote = written_[WrittenSlot(key)];
    // Of 8 bytes written the low half may be read alone.
    if (wrote.key != key || IsAllOnes(wrote.value & (size == 8 ? ~0ull : UINT32_MAX), size)) return;
    read_back = true;
  }

  if (!IsAllOnes(read.value, size)) {
    if (current_) {
      current_->ended_seq = read.seq;
      const bool changed = current_->good.has_value();
      if (current_->count >= 4 && (changed || current_->registers >= 2)) {
        past_runs_++;
        if (!past_) past_ = std::move(current_);
      }
      current_.reset();
    }
    if (Register* reg = FindOrAdd(Key(read.header))) {
      reg->seq = read.last_seq;
      reg->time_ns = read.time_ns;
      reg->value = read.value;
      reg->latency_ns = read.latency_ns;
      reg->writes_total = writes.total();
      reg->read = true;
      reg->ones_written = false;
    }
    if (ones_open_ > 0) {
      for (OnesRegister& r : ones_) {
        if (r.good_again || Key(r.first.header) != Key(read.header)) continue;
        r.good_again = read.seq;
        ones_open_--;
      }
    }
    last_ = LinkState::kAnswering;
    good_seq_ = read.last_seq;
    return;
  }

  const Register* reg = Find(Key(read.header));
  if (reg && reg->ones_written) return;  // reads back what was written
  if (!read_back) NoteOnes(read, reg, writes);
  if (!current_) {
    Run run;
    run.first = read;
    run.registers = 1;
    run.read_back = read_back;
    run.mean_before_ns = mean_before;
    if (writes.newest()) run.last_write = *writes.newest();
    if (reg && reg->read) run.good = *reg;
    run.writes_between = writes.total() - (run.good ? run.good->writes_total : 0);
    current_ = std::move(run);
  } else if (Key(read.header) != Key(current_->first.header)) {
    current_->registers = 2;
  }
  current_->last_seq = read.last_seq;
  current_->count = SaturatingAdd(current_->count, read.count);
  current_->latency_ns += (static_cast<double>(read.latency_ns) - current_->latency_ns) *
                          (static_cast<double>(read.count) / static_cast<double>(current_->count));
  // Slow replies that begin with the all-ones reads are told there, not twice.
  if (!slow_before && slow_warning_ && slow_seq_ >= current_->first.seq) {
    slow_warning_.reset();
    slow_reads_ = 0;
  }
  last_ = LinkState::kAllOnes;
}

LinkState LinkWatch::state() const {
  if (current_) {
    if (config_ones_seq_) return LinkState::kDeviceGone;
    if (command_ && !(*command_ & 2)) return LinkState::kMemoryOff;
    return LinkState::kAllOnes;
  }
  // Registers that answer since: configuration space alone is not well (it may just retry).
  if (config_ones_seq_ > good_seq_) return LinkState::kDeviceGone;
  return last_ == LinkState::kAllOnes ? LinkState::kUnknown : last_;
}

std::string LinkWatch::Conclusion() const {
  if (config_ones_seq_) {
    return fmt::format("PCI config reads all ones too (record {}): the device is gone from the bus",
                       config_ones_seq_);
  }
  std::string out;
  if (command_ && !(*command_ & 2)) {
    return fmt::format("{} (record {}): all ones expected", CommandText(*command_), command_seq_);
  }
  if (config_answers()) {
    const std::string id = config_has_device_
                               ? fmt::format("{}:{}", HexPadded(*config_id_ & 0xffff, 4),
                                             HexPadded(*config_id_ >> 16, 4))
                               : "vendor " + HexPadded(*config_id_, 4);
    out = fmt::format(
        "PCI config still answers ({}): BAR decode or link problem, not a lost device", id);
  } else if (config_id_) {
    out = "PCI config was not read since: device, link or BAR decode cannot be told apart";
  } else {
    out = "PCI config was not read: device, link or BAR decode cannot be told apart";
  }
  out += command_ ? "; " + CommandText(*command_) : "; COMMAND register not observed";
  if (!bar_registers_seen_) out += ", BAR registers not observed";
  return out;
}

std::string LinkWatch::RunText(const Run& run) const {
  const wire::RequestHeader& header = run.first.header;
  const std::string name = RegisterName(header, true);
  std::string out =
      fmt::format("{} = {}", name, HexPadded(run.first.value, static_cast<int>(header.arg1) * 2));
  if (header.bar == 0 && header.arg0 == kNvBoot42 && LooksNvidia())
    out += " -> architecture 0x3f (63) is not a chip, it is an all-ones read";
  else
    out += run.read_back ? " reads back all ones, though something else was written there"
                         : " is an all-ones read";
  out +=
      "; " + (run.ended_seq ? fmt::format("the device answered again at record {}", run.ended_seq)
                            : Conclusion());
  if (run.good) {
    out +=
        fmt::format("; last good {} at record {} ({})", RegisterName(header, false), run.good->seq,
                    HexPadded(run.good->value, static_cast<int>(header.arg1) * 2));
  }
  if (run.writes_between == 1 && run.good && run.last_write) {
    out += fmt::format("; only write in between: {} (record {})", WriteText(*run.last_write),
                       run.last_write->last_seq);
  } else if (run.writes_between > 0 && run.last_write) {
    out += fmt::format("; last write before: {} (record {}, {})", WriteText(*run.last_write),
                       run.last_write->last_seq,
                       run.good ? Thousands(run.writes_between) + " writes in between"
                                : Count(run.writes_between, "write") + " so far");
  } else if (run.good) {
    out += "; no write in between";
  }
  if (run.mean_before_ns > 0 && run.latency_ns > static_cast<double>(kSlowNs) &&
      run.latency_ns > run.mean_before_ns * kSlowFactor) {
    out += "; " + LatencyRise(static_cast<uint64_t>(run.mean_before_ns),
                              static_cast<uint64_t>(run.latency_ns));
  }
  if (run.count > 1)
    out += fmt::format("; {} all-ones reads up to record {}", Thousands(run.count), run.last_seq);
  return out;
}

std::vector<Warning> LinkWatch::Explain() const {
  std::vector<Warning> out;
  if (past_) {
    std::string text = RunText(*past_);
    if (past_runs_ > 1) text += fmt::format("; {} such episodes", Thousands(past_runs_));
    out.push_back({"B03", past_->first.seq, std::move(text)});
  }
  if (current_) {
    out.push_back({"B03", current_->first.seq, RunText(*current_)});
  } else if (config_ones_seq_) {
    out.push_back(
        {"B03", config_ones_seq_,
         config_ones_seq_ > good_seq_
             ? "PCI config reads all ones: the device is gone from the bus"
             : "PCI config reads all ones, yet registers answer: it may still retry after a "
               "reset"});
  }
  if (slow_warning_) out.push_back(*slow_warning_);
  return out;
}

}  // namespace tg::model
