// What the two systems do differently below the trace file.
#pragma once

#include <cstdint>

namespace tg::trace {

// Makes bytes [offset, offset + size) of the file exist with disk blocks behind them, reading as
// zero. 0, or an errno. Blocks and not only a length: a store into a mapped hole of a full disk
// would be a SIGBUS.
int AllocateFile(int fd, uint64_t offset, uint64_t size);

// Forces the file's data to the medium, through the drive's own cache. 0, or an errno.
int SyncFile(int fd);

}  // namespace tg::trace
