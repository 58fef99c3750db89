// Registers by name: value, fields, who touched them when.
#pragma once

#include <string>

#include "decoder/model/device.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"

namespace tg::report {

struct RegsOptions {
  std::string glob;   // of names, any case, with or without "reg"/"mm" in front; empty: all
  std::string block;  // "GC", "MMHUB", "MP1", ...; empty: all
  bool unknown_only = false;
  bool history = false;  // all kept samples of each
};

//   {accesses, unnamed_accesses, names, registers[{name, address, bar, block, module, instance,
//   die,
//    via, value, fields, reads, writes, first_seq, last_read {seq, t_ns, value},
//    last_write {...}, history[{seq, t_ns, write, value, fields}], history_total}],
//    pairs[{name, value, low, high}]}
// Registers without a name come first.
Json RegsJson(const model::Device& device, const RegsOptions& options = {});
void RegsText(const Json& regs, Output& out);

// Does `name` match the pattern ('*', '?', any case, "reg" or "mm" in front may be left out)?
bool MatchesGlob(std::string_view pattern, std::string_view name);

}  // namespace tg::report
