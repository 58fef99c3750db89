#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "schemas/trace/storage.h"

namespace tg::trace {

int AllocateFile(int fd, uint64_t offset, uint64_t size) {
  int error = 0;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(size));
  } while (error == EINTR);
  return error;
}

int SyncFile(int fd) {
  while (fdatasync(fd) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace tg::trace
