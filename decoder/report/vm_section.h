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
//   {decoded, format, format_assumed, root, root_assumed, va_start, mc_base, xgmi_base, tables,
//    unseen_tables, truncated, circular {entries, table, seq}, mapped_bytes, mappings[{va, size,
//    kind, address, region, region_offset, page_size, flags, text, entries, first_seq, last_seq}]}
Json VmMapJson(const model::Device& device, size_t limit = 100000);
void VmMapText(const Json& map, Output& out);

// `vm walk VA`:
//   {va, end, format, root_assumed, levels[{level, table, index, entry, text, seq, origin}],
//    target {kind, address, region, region_offset, contiguous, place}, u64}
Json VmWalkJson(const model::Device& device, uint64_t va);
void VmWalkText(const Json& walk, Output& out);

// `vm who VA`: the walk, and for each of its entries every write to it that the trace shows, oldest
// first. Of more than kMaxEntryWrites the oldest and the newest half are kept. Reads the file
// twice: the walk at `at` tells which entries count.
//   as VmWalkJson, with levels[{..., writes[{seq, t_ns, offset, size, entry, text}], writes_total}]
inline constexpr size_t kMaxEntryWrites = 64;
Result<Json> VmWhoJson(const std::string& path, uint64_t va, uint64_t at = UINT64_MAX);
void VmWhoText(const Json& who, Output& out);

// "0x200000000000" or decimal.
Result<uint64_t> ParseAddress(const std::string& text);

}  // namespace tg::report
