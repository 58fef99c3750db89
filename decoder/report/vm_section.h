// The GPU's address space: mappings, a walk of one address, who wrote its entries.
#pragma once

#include <cstdint>
#include <string>

#include "decoder/model/device.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"
#include "schemas/result.h"

namespace tg::report {

// `vm map`:
//   {format, format_assumed, root, root_assumed, va_start, mc_base, xgmi_base, tables,
//    unseen_tables, truncated, mapped_bytes, mappings[{va, size, kind, address, region,
//    region_offset, page_size, flags, text, entries, first_seq, last_seq}]}
Json VmMapJson(const model::Device& device, size_t limit = 100000);
void VmMapText(const Json& map, Output& out);

// `vm walk VA` and `vm who VA`:
//   {va, end, text, levels[{level, table, index, entry, flags, seq, origin}],
//    target {kind, address, region, region_offset, contiguous, place}, bytes}
Json VmWalkJson(const model::Device& device, uint64_t va);
void VmWalkText(const Json& walk, Output& out);

// "0x200000000000", "200000000000h" or decimal.
Result<uint64_t> ParseAddress(const std::string& text);

}  // namespace tg::report
