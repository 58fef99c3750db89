// How the driver started and ended: phases, full or partial boot and why, scratch registers,
// dialogues with PSP and SMU, interrupts, page faults.
#pragma once

#include "decoder/model/device.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"

namespace tg::report {

// The contract's parts, for the newest start of the driver in the trace:
//   boot {kind, reason, phases[{name, first, last, calls, t0_ns, t1_ns}], connection, booted_seq,
//         mode1_reset_seq, recoveries, sdma_soft_resets, end, end_seq, next_start}
//   scratch {reg6, reg7, am_version, meaning, reg6_seq, reg7_seq, reg6_meaning}
// null: no start of the driver was seen, or never read.
Json BootJson(const model::Device& device);
Json ScratchJson(const model::Device& device);

//   {sessions[as BootJson], scratch, psp[{seq, kind, text, image_size, polls, done, status,
//    duration_ns}], psp_total, smu[{seq, message, argument, name, text, response, response_text,
//    result, polls, duration_ns}], smu_total,
//    interrupts {read, errors, discarded, overflows, waits, drains, wptr, rptr,
//    entries[{seq, text, client, source, vmid, effect}]},
//    faults[{seq, hub, raw, text, va, va_text, cleared_seq}], fault_status {gc, mm}}
Json BootSectionJson(const model::Device& device);
// `full`: with every message; else the phases and what went wrong.
void BootSectionText(const Json& boot, Output& out, bool full);

}  // namespace tg::report
