// Takes what matters in the shared memory into the trace, and watches for stalls.
//
// On the Unix path a ring, its pointers and its fences never cross the socket: only the doorbell
// does. The relay hands every message over to a thread of its own, which follows the device with
// the decoder's model and, at each doorbell, copies from the read-only mappings:
//
//   * the ring bytes between the last and the new write pointer, and the indirect buffers they
//   reach
//   * the words those packets wait for or signal, and the queue's two pointer words
//
// Bytes that are in the trace already are not stored again. A queue page's write pointer is stored
// after the ring bytes it announces: a reader that sees it knows the ring is complete up to there.
// Where a doorbell's queue is not known (other chips, NVIDIA), changed pages of the regions are
// stored instead, within a budget.
//
// It never delays forwarding: handing over takes neither a lock nor a system call nor memory; when
// the thread lags so far that the hand-over buffer is full, messages are dropped from it (not from
// the trace) and a Loss of cause LAG says how many.
//
// TCP: the same bytes come as SYSMEM_WRITE requests, which the trace has anyway; only the stall
// watch runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "schemas/result.h"
#include "schemas/wire/framer.h"

namespace tg::trace {
class TraceWriter;
}

namespace tg::proxy {

class SysmemTable;    // proxy/sysmem.h
struct SysmemRegion;  // proxy/sysmem.h

// --sysmem: nothing; what queues need (default); every changed page of every region.
enum class SysmemPolicy : uint8_t { kNone, kRings, kFull };
Result<SysmemPolicy> ParseSysmemPolicy(std::string_view text);
std::string_view SysmemPolicyName(SysmemPolicy policy);

struct CaptureOptions {
  SysmemPolicy policy = SysmemPolicy::kRings;
  // A line for the person watching: stalls (warning = true) and that they are over.
  std::function<void(bool warning, const std::string& text)> say;
  // The clock that the `now` of the calls below is read from.
  std::function<uint64_t()> clock_ns;
  size_t handover_bytes = 16u << 20;
};

struct CaptureCounters {
  uint64_t doorbells = 0;
  uint64_t bytes_stored = 0;
  uint64_t torn = 0;           // copies that changed under the reader for good
  uint64_t dropped_calls = 0;  // not seen because the thread lagged
  uint64_t stalls = 0;
  uint64_t stalled_since = 0;  // ns on the clock of the calls' `now`; 0: no stall now
};

class Capture {
 public:
  Capture(trace::TraceWriter& writer, CaptureOptions options);
  ~Capture();  // as Stop(0)
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // ---- from the relay's thread only; none of these waits ----

  // A client was connected; `sysmem` holds the mappings of this connection and is let go of when
  // the last snapshot after OnDisconnect is done. May be null (TCP).
  void OnConnect(std::shared_ptr<SysmemTable> sysmem, uint64_t now);
  // kRequest and kPayloadChunk events, with the number the trace gave the call.
  void OnRequest(const wire::RequestEvent& event, uint64_t call, uint64_t now);
  // kReply and kBodyChunk events. `event.request.call` is the call's number.
  void OnReply(const wire::ReplyEvent& event, uint64_t now);
  // A region was added to the table, before its reply goes on.
  void OnRegion(const SysmemRegion& region, uint64_t call, uint64_t now);
  // The client is gone: a last snapshot is taken.
  void OnDisconnect(uint64_t now);
  // SIGUSR1.
  void OnSnapshotRequest(uint64_t now);

  // ---- from any thread ----

  // Works off what was handed over, for at most `patience_ms`, and ends the thread.
  void Stop(uint64_t patience_ms);
  CaptureCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::proxy
