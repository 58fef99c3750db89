// Warnings of the session model, and what follows from its facts taken together.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "decoder/model/session_impl.h"
#include "decoder/model/words.h"
#include "schemas/wire/simulator.h"

namespace tg::model {

using wire::Command;
using wire::Revision;

namespace {

constexpr uint64_t kSmallBar = 256ull << 20;

bool Is(const wire::RequestHeader& header, Command command) {
  return header.command == static_cast<uint8_t>(command);
}

std::string VersionWord(uint64_t word) {
  return fmt::format("{}.{}.{}", word >> 16 & 0xff, word >> 8 & 0xff, word & 0xff);
}

}  // namespace

std::string_view TransportText(Transport transport) {
  switch (transport) {
    case Transport::kUnknown:
      return "";
    case Transport::kUnix:
      return "unix";
    case Transport::kTcp:
      return "tcp";
  }
  return "";
}

std::string_view Session::AddressKind() const {
  switch (transport) {
    case Transport::kUnknown:
      return "";
    case Transport::kUnix:
      return "server virtual address";
    case Transport::kTcp:
      return "physical start";
  }
  return "";
}

std::string Session::SysmemText() const {
  if (regions_total == 0 && sysmem_refused == 0) return {};
  std::string out = fmt::format("sysmem: {}", Count(regions_total, "region"));
  if (regions_total > 0) {
    out += fmt::format(", {} granted ({} asked)", Bytes(sysmem_granted),
                       Bytes(sysmem_asked, sysmem_granted));
  }
  const uint64_t other = sysmem_refused - sysmem_refused_at_cap;
  if (sysmem_refused_at_cap > 0)
    out += fmt::format(", {} refused at cap", Thousands(sysmem_refused_at_cap));
  if (other > 0) out += fmt::format(", {} refused", Thousands(other));
  return out;
}

std::string RefusalText(const Refusal& refusal) {
  std::string out = CallText(refusal.header);
  if (refusal.text.empty()) {
    out += " refused, no reason given";
    if (refusal.text_size > 0)
      out += fmt::format(" (a text of {} was announced but did not come)",
                         Count(refusal.text_size, "byte"));
  } else {
    out += " refused by server: " + Printable(refusal.text);
    if (refusal.text.size() < std::min<uint64_t>(refusal.text_size, kMaxTextBytes))
      out += " [cut off]";
  }
  if (refusal.status != 1) out += fmt::format(" (status {})", refusal.status);
  if (refusal.count > 1) out += fmt::format(" ({} times)", Thousands(refusal.count));
  return out;
}

// TinyGPU.app checks `(u8)bar < 6` and `offset + size <= BAR size` in u64, and uses bar at 32 bits
// afterwards; its bulk buffer is one static 64 MiB array (server.c). serve.py slices.
void SessionModel::Impl::CheckRange(const wire::RequestHeader& h, uint64_t seq) {
  const bool read = Is(h, Command::kMmioRead), write = Is(h, Command::kMmioWrite);
  const bool app = s.transport != Transport::kTcp;
  if (read || write || Is(h, Command::kMapBar) || Is(h, Command::kResizeBar)) {
    if (h.bar >= 256 && app) {
      std::string text = fmt::format("{}: bar {} (server truncates to {})",
                                     wire::CommandName(h.command), h.bar, h.bar & 0xff);
      if (read || write)
        text += "; the range check sees another BAR than the access: out of bounds";
      Warn("T5", seq, std::move(text));
    } else if (h.bar >= wire::kAppBarLimit) {
      Warn("range", seq, fmt::format("{}: there is no BAR {} (0 to 5)", CallText(h), h.bar));
    }
  }
  if (read || write) {
    if (write && h.arg1 > wire::kAppBulkLimit && app) {
      Warn(
          "T6", seq,
          fmt::format("{} of {} bytes overruns TinyGPU.app's 64 MiB buffer by {}: the server's "
                      "memory is overwritten, expect it to crash",
                      CallText(h), Thousands(h.arg1), Count(h.arg1 - wire::kAppBulkLimit, "byte")));
    } else if (read && h.arg1 > wire::kAppBulkLimit && app) {
      Warn("range", seq,
           fmt::format("{} of {} bytes is over TinyGPU.app's limit of 64 MiB: it refuses",
                       CallText(h), Thousands(h.arg1)));
    }
    const uint64_t end = h.arg0 + h.arg1;
    if (end < h.arg0) {
      Warn("range", seq,
           fmt::format("{} size {:#x}: offset + size wraps past 2^64 to {:#x}, so it passes the "
                       "server's range check: access out of bounds",
                       CallText(h), h.arg1, end));
      return;
    }
    const BarSeen* bar = FindBar(h.dev, h.bar);
    if (bar && end > bar->size) {
      Warn("range", seq,
           fmt::format("{} size {:#x} goes past the end of BAR {} ({:#x} long): {}", CallText(h),
                       h.arg1, h.bar, bar->size,
                       app ? (write ? "TinyGPU.app drops it without a word" : "the server refuses")
                       : write ? "serve.py ends the session"
                               : "serve.py sends fewer bytes than it announces"));
    }
    return;
  }
  if (Is(h, Command::kSysmemWrite) || Is(h, Command::kSysmemRead)) {
    const bool sysmem_write = Is(h, Command::kSysmemWrite);
    if (s.transport == Transport::kUnix && sysmem_write && h.arg1 > 0) {
      Warn("T2", seq,
           fmt::format("TinyGPU.app does not implement SYSMEM_WRITE: it answers (which nobody "
                       "awaits) and reads the {} payload bytes as requests: the stream is lost",
                       Thousands(h.arg1)));
    }
    const RegionSeen* region = FindRegion(h.bar);
    if (!region || !sysmem_write) return;  // a short read is told by what came
    const uint64_t end = SaturatingAdd(h.arg0, h.arg1);
    if (end > region->granted) {
      Warn("range", seq,
           fmt::format(
               "{} size {:#x} goes past the end of region {} ({:#x} long): serve.py ends the "
               "session",
               CallText(h), h.arg1, h.bar, region->granted));
    }
  }
}

// On macOS the MAP_BAR word is a pointer of the server process. A device that is given it (or its
// page or 256-byte block number) as a DMA address reads nonsense.
void SessionModel::Impl::CheckBarAddress(const trace::RequestView& request, uint64_t seq) {
  if (s.transport != Transport::kUnix || s.bars.empty()) return;
  const wire::RequestHeader& h = request.header;
  constexpr std::array<int, 3> kShifts = {0, 8, 12};
  const auto shift_text = [](int shift) {
    return shift ? fmt::format(" >> {}", shift) : std::string();
  };
  const auto plain = [](uint64_t value) {
    // Small round numbers occur for other reasons.
    return value >= kLeastAddress && !std::has_single_bit(value);
  };
  const std::span<const uint8_t> data = request.payload.data;
  for (size_t at = 0; at + 8 <= data.size(); at += 8) {
    const uint64_t value = LittleEndian(data.subspan(at, 8));
    if (value < lowest_bar_word || value > highest_bar_word || value < kLeastAddress) continue;
    for (const BarSeen& bar : s.bars) {
      if (bar.address < kLeastAddress || bar.address >> 12 > value || value > bar.address) continue;
      for (const int shift : kShifts) {
        if (value != bar.address >> shift || (value <= UINT32_MAX && !plain(value))) continue;
        Warn("B06", seq,
             fmt::format("write contains MAP_BAR {} server address{}: {} holds {:#x} (record {}, "
                         "MAP_BAR at record {}); it is no bus address",
                         bar.index, shift_text(shift), TargetText(h), value, seq, bar.seq));
        return;
      }
    }
  }
  if (request.payload.size != 4 || data.size() != 4) return;
  const uint32_t word = static_cast<uint32_t>(LittleEndian(data));
  for (HalfAddress& half : halves) {
    if (half.writes_left-- <= 0 || half.header.bar != h.bar) continue;
    const uint64_t distance =
        h.arg0 > half.header.arg0 ? h.arg0 - half.header.arg0 : half.header.arg0 - h.arg0;
    if (distance == 0 || distance > 0x20 || word != half.address >> 32) continue;
    // A low half of zero is any zero: only the register right behind it makes an address of both.
    if (static_cast<uint32_t>(half.address) == 0 && h.arg0 != half.header.arg0 + 4) continue;
    Warn("B06", half.seq,
         fmt::format("write contains MAP_BAR {} server address{}: {} and {} hold {:#x} (records {} "
                     "and {}, MAP_BAR at record {}); it is no bus address",
                     half.bar, shift_text(half.shift), TargetText(half.header), TargetText(h),
                     half.address, half.seq, seq, half.map_seq));
    halves.clear();
    return;
  }
  std::erase_if(halves, [](const HalfAddress& half) { return half.writes_left <= 0; });
  for (const BarSeen& bar : s.bars) {
    if (bar.address < kLeastAddress) continue;
    for (const int shift : kShifts) {
      const uint64_t address = bar.address >> shift;
      if (static_cast<uint32_t>(address) != word) continue;
      if (address > UINT32_MAX) {
        // A low half of zero says nothing: it is written everywhere.
        if (word != 0 && halves.size() < 16)
          halves.push_back({bar.index, shift, address, seq, bar.seq, h, 4});
      } else if (plain(address)) {
        Warn("B06", seq,
             fmt::format("write contains MAP_BAR {} server address{}: {} holds {:#x} (record {}, "
                         "MAP_BAR at record {}); it is no bus address",
                         bar.index, shift_text(shift), TargetText(h), address, seq, bar.seq));
        return;
      }
    }
  }
}

void SessionModel::Impl::ProbeNotDrained(const wire::RequestHeader& header, uint64_t seq) {
  if (s.transport != Transport::kUnix || header.arg1 == 0) return;
  const uint64_t headers = header.arg1 / wire::kRequestSizeR2;
  Warn("T2", seq,
       fmt::format(
           "TinyGPU.app does not implement PROBE and does not drain its {} payload bytes: it "
           "reads them as {} and {} of a short one; later answers do not belong to their "
           "requests",
           Thousands(header.arg1), Count(headers, "bogus request"),
           Count(header.arg1 % wire::kRequestSizeR2, "byte")));
}

void SessionModel::Impl::UpdateFindings() {
  RevisionFinding& found = s.revision;
  found = {};
  const auto add = [&](std::string text) { found.evidence.push_back(std::move(text)); };
  if (facts.declared_revision != Revision::kUndecided) {
    found.revision = facts.declared_revision;
  } else if (facts.r2_only_seq) {
    found.revision = Revision::kR2;
  } else {
    found.revision = facts.map_bar_revision;
  }
  if (!facts.map_bar_evidence.empty()) {
    add(facts.map_bar_evidence + (facts.map_bar_revision == Revision::kR1
                                      ? " (size word first: R1)"
                                      : " (address word first: R2+)"));
  }
  if (!facts.declared_evidence.empty()) add(facts.declared_evidence);
  if (facts.r2_only_seq)
    add(fmt::format("{} at record {} is not in R1", wire::CommandName(facts.r2_only_command),
                    facts.r2_only_seq));
  if (facts.resize_status && *facts.resize_status == 0)
    add(fmt::format("RESIZE_BAR accepted at record {}: R3 or later", facts.resize_seq));
  if (facts.resize_status && *facts.resize_status != 0 && !facts.resize_had_text)
    add(fmt::format("RESIZE_BAR refused at record {}: TinyGPU.app older than R3 (2026-03-17)",
                    facts.resize_seq));

  if (facts.ping && facts.ping->resp0 == wire::kSimulatorWord) {
    found.server = "rpcreplay: a simulated card or a played trace";
    add(fmt::format("PING echoed rpcreplay's word at record {}", facts.ping_seq));
  } else if (facts.ping && (facts.ping->resp0 | facts.ping->resp1)) {
    found.server = "fork, server version " + VersionWord(facts.ping->resp0);
    add(
        fmt::format("PING answered with server version {} ({:#x}), driver version {} ({:#x}) at "
                    "record {}: a fork",
                    VersionWord(facts.ping->resp0), facts.ping->resp0,
                    VersionWord(facts.ping->resp1), facts.ping->resp1, facts.ping_seq));
  } else if (facts.ping) {
    found.server = "serve.py";
    add(fmt::format("PING answered with zeros at record {}: serve.py", facts.ping_seq));
  } else if (facts.reset_args_seq) {
    found.server = "fork";
    add(fmt::format("RESET with arguments or result words at record {}: a fork",
                    facts.reset_args_seq));
  } else if (facts.sysmem_fd_seq) {
    found.server = "TinyGPU.app";
    add(fmt::format("MAP_SYSMEM_FD granted at record {}: TinyGPU.app", facts.sysmem_fd_seq));
  } else if (facts.sysmem_tcp_seq) {
    found.server = "serve.py";
    add(fmt::format("MAP_SYSMEM granted at record {}: serve.py", facts.sysmem_tcp_seq));
  }
  if (facts.probe_ok_seq && s.transport == Transport::kUnix && found.server == "TinyGPU.app") {
    found.server = "fork";
    add(fmt::format("PROBE answered over a Unix socket at record {}: a fork", facts.probe_ok_seq));
  }
}

void SessionModel::Impl::StateWarnings(std::vector<Warning>& out) const {
  for (const Refusal& refusal : s.refusals) {
    if (Is(refusal.header, Command::kMapSysmemFd) && s.transport != Transport::kTcp) {
      out.push_back({"B01", refusal.seq,
                     RefusalText(refusal) + "; expect the client to fail with IndexError"});
    }
    const bool probe = Is(refusal.header, Command::kMapSysmem) ||
                       Is(refusal.header, Command::kSysmemRead) ||
                       Is(refusal.header, Command::kPing);
    if (probe && s.transport == Transport::kUnix && refusal.text.empty()) {
      out.push_back(
          {"T2", refusal.seq,
           fmt::format("TinyGPU.app does not implement {}: a client that needs it is made "
                       "for another server",
                       wire::CommandName(refusal.header.command))});
    }
  }
  if (s.sysmem_refused_at_cap > 0) out.push_back({"B02", s.last_seq, s.SysmemText()});
  for (const BarSeen& bar : s.bars) {
    const bool vram = bar.index == (s.link.vendor() == Vendor::kNvidia ? 1u : 0u);
    if (vram && bar.resized && bar.size > 0 && bar.size <= kSmallBar) {
      out.push_back({"T8", bar.seq,
                     fmt::format("small BAR: BAR {} is {} although RESIZE_BAR succeeded{}",
                                 bar.index, Bytes(bar.size),
                                 s.transport == Transport::kTcp
                                     ? ""
                                     : " (TinyGPU.app's RESIZE_BAR changes nothing)")});
    }
  }
  for (Warning& warning : s.link.Explain()) out.push_back(std::move(warning));
}

std::vector<Warning> SessionModel::Impl::Warnings() const {
  std::vector<Warning> out = warnings;
  StateWarnings(out);
  for (const Warning& warning : poison) {
    const bool told = std::any_of(out.begin(), out.end(), [&](const Warning& w) {
      return w.call == warning.call || w.call == warning.call + 1;
    });
    if (!told) out.push_back(warning);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Warning& a, const Warning& b) { return a.call < b.call; });
  for (const auto& [rule, count] : warned) {
    if (count > kMaxWarningsPerRule) {
      out.push_back(
          {rule, s.last_seq,
           fmt::format("{} more of rule {}", Thousands(count - kMaxWarningsPerRule), rule)});
    }
  }
  return out;
}

}  // namespace tg::model
