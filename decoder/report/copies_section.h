// What the SDMA engines moved.
#pragma once

#include "decoder/model/queue_device.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"
#include "schemas/result.h"
#include "schemas/trace/reader.h"

namespace tg::report {

// {copies, bytes, by_direction{sysmem_to_vram: {copies, bytes, smallest, largest, first_seq,
//  last_seq, bytes_per_s}}, not_done {copies, bytes}, sizes[{size, count}], throughput
//  {interval_ns, points[{t_ns, ...}]}, staging {slots, slot_bytes, uses, last_slot, next_slot,
//  uses_by_slot[], left_out[{slot, seq, uses_since, leaked}], copies_out, disk_path,
//  disk_path_pieces, first_chunk_offset}}; null when no copy was seen.
Json CopiesJson(const model::DeviceQueues& queues);
void CopiesText(const Json& copies, Output& out);

// `rpcdecode copies`.
Result<int> PrintCopies(trace::TraceReader& reader, bool json, Output& out,
                        uint64_t at = UINT64_MAX);

}  // namespace tg::report
