// What the card says of itself: IP blocks with versions and register bases, harvested ones,
// gc_info, and the device properties that tinygrad computes from them.
#pragma once

#include "decoder/model/device.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"

namespace tg::report {

// The contract's parts: {asic, gfx, props{}} (null: no discovery table seen) and
// [{name, hw_id, version, instance, die, harvested, bases[], registers}]; `registers` names the
// table that gives the names, null where none does.
Json DeviceJson(const model::Device& device);
Json IpsJson(const model::Device& device);

//   {source, seq, t_ns, assumed, checksum_ok, version, ip_table_version, dies, device, ips,
//   harvested[],
//    gc_info{}, problems[]}
Json DiscoverySectionJson(const model::Device& device);
// `full`: every block; else the properties and the blocks that matter.
void DiscoverySectionText(const Json& discovery, Output& out, bool full);

}  // namespace tg::report
