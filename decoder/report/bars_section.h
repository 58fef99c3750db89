// PCI and BARs: what was mapped where, who uses it, bus-master toggles, whether the card answers.
#pragma once

#include "decoder/model/device.h"
#include "decoder/model/link_watch.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"

namespace tg::report {

//   {vendor, vendor_id, device_id, transport,
//    command {value, memory, bus_master, text}, bus_master[{seq, t_ns, on}],
//    bars[{index, size, address, address_kind, use, seq, refused, reads, writes, bytes_read,
//          bytes_written, highest}],
//    vram_size, large_bar, resizes[{seq, bar, ok, text}], resets[{seq, ok, text}],
//    link {verdict, text, all_ones_reads, transitions[{bar, address, register, count, text,
//          last_good {seq, t_ns, value}, first_bad {seq, t_ns}, good_again, good_latency_ns,
//          bad_latency_ns, writes_between[{seq, bar, offset, size, value}],
//          writes_between_total}]}}
Json BarsSectionJson(const model::Device& device, const model::LinkWatch& link);
void BarsSectionText(const Json& bars, Output& out);

}  // namespace tg::report
