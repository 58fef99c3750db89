// What a trace says without knowing the device: connections, protocol revision, BARs, calls,
// refusals, unanswered requests, and the warnings that follow from the RPC alone.
//
// Pure: records in (in file order), state out, at any moment; no I/O. Memory is bounded whatever
// the trace holds: every list below has a limit, and what did not fit is counted. Text from the
// trace (error texts, event texts) is kept as it came: print it through Printable().
//
// Sequence numbers are call numbers (trace.proto). Times are ns since the trace's start.
//
// Facts: tinygrad a9069c17 (runtime/support/system.py, extra/usbgpu/tbgpu/installer/Shared/
// server.c, extra/remote/serve.py).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/link_watch.h"
#include "decoder/model/types.h"
#include "schemas/trace/reader.h"
#include "schemas/wire/commands.h"

namespace tg::model {

enum class Transport : uint8_t { kUnknown, kUnix, kTcp };
std::string_view TransportText(Transport transport);

inline constexpr size_t kMaxConnections = 200;  // the first ones; the current one always
inline constexpr size_t kMaxBars = 64;          // (device, BAR) pairs
inline constexpr size_t kMaxRegions = 4096;
inline constexpr size_t kMaxUnanswered = 1000;
inline constexpr size_t kMaxRefusals = 200;
inline constexpr size_t kMaxEvents = 500;
inline constexpr size_t kMaxWarningsPerRule = 20;
inline constexpr size_t kMaxTextBytes = 4096;  // of an error text

struct Connection {
  uint32_t number = 0;  // from 1; 0: the trace has no CONNECT
  Transport transport = Transport::kUnknown;
  uint32_t client_pid = 0;  // 0: not known
  uint32_t server_pid = 0;
  std::string client_name;
  uint64_t first_seq = 0;  // newest call when it began, plus 1
  uint64_t last_seq = 0;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  bool closed = false;
  std::string closed_first;  // "client", "server", "proxy", or empty
  uint64_t unanswered = 0;   // by the proxy's own count
  uint64_t undelivered_to_server = 0;
  uint64_t undelivered_to_client = 0;
  uint64_t regions = 0;  // MAP_SYSMEM_FD or MAP_SYSMEM granted
  uint64_t calls = 0;
};

struct BarSeen {
  uint32_t dev = 0;
  uint32_t index = 0;
  uint64_t size = 0;
  uint64_t address = 0;  // meaning: Session::AddressKind
  uint64_t seq = 0;      // newest MAP_BAR answer
  uint64_t mapped = 0;   // times
  bool resized = false;  // RESIZE_BAR answered with status 0 before
};

struct RegionSeen {
  uint32_t index = 0;  // or handle
  uint64_t asked = 0;
  uint64_t granted = 0;
  uint64_t seq = 0;
};

// Log-linear histogram: 8 steps per octave, so a quantile is right to 12 %.
struct LatencyHistogram {
  static constexpr size_t kBuckets = 8 * 61 + 8;
  std::array<uint32_t, kBuckets> count{};
  void Add(uint64_t ns);
  uint64_t Quantile(double q, uint64_t total) const;
};

struct CallCount {
  uint64_t calls = 0;
  uint64_t answered = 0;
  uint64_t errors = 0;
  uint64_t bytes = 0;  // payload and body announced
  uint64_t min_latency_ns = UINT64_MAX;
  uint64_t max_latency_ns = 0;
  uint64_t measured = 0;  // answers in `histogram`: those recorded one by one
  std::unique_ptr<LatencyHistogram> histogram;
};

struct Unanswered {
  uint64_t seq = 0;
  uint64_t time_ns = 0;
  uint32_t connection = 0;
  wire::RequestHeader header;
};

struct Refusal {
  uint64_t seq = 0;
  uint64_t time_ns = 0;
  uint64_t count = 1;  // equal ones in a row
  uint32_t connection = 0;
  wire::RequestHeader header;
  uint8_t status = 0;
  std::string text;        // the server's own
  uint64_t text_size = 0;  // as announced
  bool harmless = false;   // the client does not mind this one
};

struct Event {
  int kind = 0;  // SessionEvent::Kind
  uint64_t seq = 0;
  uint64_t time_ns = 0;
  uint32_t connection = 0;
  std::string text;
};

struct LossSeen {
  int cause = 0;  // Loss::Cause
  uint64_t calls = 0;
  uint64_t packets = 0;
  uint64_t bytes = 0;
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;
  std::string detail;
};

struct EndSeen {
  std::string reason;
  uint64_t calls = 0;
  uint64_t errors = 0;
  uint64_t to_server = 0;
  uint64_t to_client = 0;
};

// What is known of the frame format and of who answers.
struct RevisionFinding {
  wire::Revision revision = wire::Revision::kUndecided;
  std::vector<std::string> evidence;  // most telling first
  std::string server;                 // "TinyGPU.app", "serve.py", "fork 1.2.0", or empty
};

// Everything a trace says at RPC level. Filled by SessionModel.
struct Session {
  std::deque<Connection> connections;  // the newest is always the last
  uint64_t connections_total = 0;
  Transport transport = Transport::kUnknown;  // declared, else inferred
  bool transport_inferred = false;
  RevisionFinding revision;

  std::vector<BarSeen> bars;
  std::array<CallCount, 256> counts;  // by command byte
  uint64_t calls = 0;                 // counted, not numbered: damage and losses leave gaps
  uint64_t last_seq = 0;
  uint64_t last_time_ns = 0;
  uint64_t doorbells = 0;  // writes to BAR 2 of an AMD card
  uint64_t injected = 0;   // requests or replies made or altered by the proxy (--inject)
  uint64_t autopsy = 0;    // requests of the proxy's own (--autopsy); in no other count here
  uint64_t guarded = 0;    // requests that the proxy's guard kept from the server

  std::vector<Unanswered> unanswered;
  uint64_t unanswered_total = 0;
  std::vector<WriteSeen> recent_writes;  // the last ones of the trace, oldest first; at Finish()
  // Last writes before the newest unanswered request was given up, oldest first.
  std::vector<WriteSeen> suspects;
  std::vector<Refusal> refusals;
  uint64_t refusals_total = 0;
  uint64_t refusals_harmful = 0;

  std::vector<RegionSeen> regions;
  uint64_t regions_total = 0;
  uint64_t sysmem_asked = 0;
  uint64_t sysmem_granted = 0;
  uint64_t sysmem_refused = 0;
  uint64_t sysmem_refused_at_cap = 0;

  std::vector<Event> events;
  uint64_t events_total = 0;
  std::vector<LossSeen> losses;
  std::optional<EndSeen> end;
  uint64_t raw_from_client = 0;  // bytes that passed without framing
  uint64_t raw_from_server = 0;
  uint64_t unreliable_from = 0;           // call from which pairing is not sure; 0: all is
  std::optional<uint64_t> damaged_after;  // newest call before the first unreadable packet
  uint64_t short_replies = 0;             // bodies that ended before their announced length
  bool stalled = false;                   // the proxy saw a stall that did not clear
  LinkWatch link;

  // "server virtual address", "physical start", or empty when the transport is not known.
  std::string_view AddressKind() const;
  // "sysmem: 128 regions, 2.0 MiB granted (0.5 MiB asked), 1 refused at cap"; empty if none.
  std::string SysmemText() const;
};

// "MAP_BAR 1 refused, no reason given"; "MAP_SYSMEM_FD refused by server: <text>".
std::string RefusalText(const Refusal& refusal);

class SessionModel {
 public:
  SessionModel();
  ~SessionModel();
  SessionModel(SessionModel&&) noexcept;
  SessionModel& operator=(SessionModel&&) noexcept;

  void Add(const trace::Record& record);
  // No more records will come: what still waits is unanswered.
  void Finish();

  const Session& session() const;
  // In order of sequence numbers. A rule with many hits ends with how many more there were.
  std::vector<Warning> Warnings() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::model
