// The subcommands about the file itself: info, check, repair.
#pragma once

#include <string>

#include "decoder/report/output.h"
#include "schemas/result.h"

namespace tg::report {

// Header, size, packets, how it ends, losses. Exit code: 0 whole, 4 incomplete.
Result<int> PrintInfo(const std::string& path, bool json, Output& out);

// Reads every packet with its checksum and lists the byte ranges that hold none.
// Exit code: 0 whole, 4 damaged or not closed.
Result<int> CheckTrace(const std::string& path, bool json, Output& out);

// Writes to `to` the packets of `from` up to the first damage, closed as a clean end would.
// `to` must not exist unless `overwrite`. Exit code: 0 nothing was dropped, 4 something was.
Result<int> RepairTrace(const std::string& from, const std::string& to, bool overwrite,
                        Output& out);

}  // namespace tg::report
