#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "schemas/trace/storage.h"

namespace tg::trace {
namespace {

// For file systems that cannot preallocate.
int WriteZeros(int fd, uint64_t begin, uint64_t end) {
  static constexpr char kZeros[64 * 1024] = {};
  while (begin < end) {
    const uint64_t left = end - begin;
    const ssize_t n =
        pwrite(fd, kZeros, left < sizeof kZeros ? left : sizeof kZeros, static_cast<off_t>(begin));
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) begin += static_cast<uint64_t>(n);
  }
  return 0;
}

}  // namespace

int AllocateFile(int fd, uint64_t offset, uint64_t size) {
  struct stat st;
  if (fstat(fd, &st) != 0) return errno;
  const off_t end = static_cast<off_t>(offset + size);
  if (st.st_size < end) {
    // F_PREALLOCATE reserves blocks behind the physical end of the file; the length is set after.
    fstore_t store = {};
    store.fst_flags = F_ALLOCATECONTIG | F_ALLOCATEALL;
    store.fst_posmode = F_PEOFPOSMODE;
    store.fst_length = end - st.st_size;
    if (fcntl(fd, F_PREALLOCATE, &store) != 0) {
      store.fst_flags = F_ALLOCATEALL;
      if (fcntl(fd, F_PREALLOCATE, &store) != 0) {
        if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO) return errno;
        return WriteZeros(fd, static_cast<uint64_t>(st.st_size), offset + size);
      }
    }
    if (ftruncate(fd, end) != 0) return errno;
  }
  return 0;
}

int SyncFile(int fd) {
  for (;;) {
    // fsync alone leaves the data in the drive's cache. Some file systems cannot do better.
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0;
    if (errno == EINTR) continue;
    if (errno != ENOTSUP && errno != EINVAL && errno != ENOTTY) return errno;
    if (fsync(fd) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

}  // namespace tg::trace
