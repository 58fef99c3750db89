// The queues of a trace: state, outstanding packets with "you are here", submission history.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"
#include "schemas/result.h"
#include "schemas/trace/reader.h"

namespace tg::report {

struct RingsOptions {
  std::string queue;           // --queue: a name, any case; empty: all
  std::optional<uint64_t> at;  // --at: state after this call
  // --window '[.-4:.+8]': packets before and behind the read pointer; none: what is outstanding.
  std::optional<uint32_t> before, after;
  size_t submissions = 8;  // newest ones listed
  bool json = false;
};

// "[.-4:.+8]", "[.:.+8]", "[.-4:]", with or without brackets.
Result<void> ParseWindow(const std::string& text, RingsOptions& options);

// The `queues` part of the document:
//   [{name, kind, ring_va, ring_size, rptr, wptr, pointer_unit, outstanding_bytes,
//     outstanding_packets, packets[{offset, op, fields{}, text, here, memory, depth}],
//     stuck {op, wants, has, text, producer, satisfied}, missing_fence {address, value, has,
//     submission, forced}, before_setup {seq, headline, stuck, missing_fence, packets, ...},
//     state, headline, notes[], doorbell_offset, doorbells, last_doorbell {value, seq, t_ns},
//     setup_seq, warm_start, submissions{total, listed[...]}}]
// Pointers are in the queue's own unit (pointer_unit bytes each), as registers and doorbells show
// them. What was not observed is null.
Json QueuesJson(const model::DeviceQueues& queues, const RingsOptions& options = {});
// `full`: with packets and submissions; else one block of headlines.
void QueuesText(const Json& queues, Output& out, bool full);

// `rpcdecode rings`: reads the trace up to options.at and prints. Exit code as the report's: 1 when
// work is outstanding that does not get on, else 0.
Result<int> PrintRings(trace::TraceReader& reader, const RingsOptions& options, Output& out);

}  // namespace tg::report
