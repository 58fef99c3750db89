#include "replay/sim/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace tg::sim {
namespace {

tl::unexpected<Error> SystemError(const char* what) {
  return Fail(Error::Code::kIo, std::string(what) + ": " + std::strerror(errno));
}

// A container often has only 64 MiB of shared memory. Writing past what is there would end this
// process with a SIGBUS, so ask first.
bool HasRoom(int fd, uint64_t size) {
  struct statvfs where = {};
  if (fstatvfs(fd, &where) != 0 || where.f_blocks == 0) return true;  // macOS: no answer
  return static_cast<uint64_t>(where.f_bavail) * where.f_frsize >= size + (size >> 1);
}

UniqueFd OpenSharedMemory() {
  static std::atomic<unsigned> next{0};
  for (int i = 0; i < 100; i++) {
    // macOS allows 31 bytes.
    const std::string name = "/rrsim." + std::to_string(getpid()) + "." + std::to_string(next++);
    const int fd = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd >= 0) {
      shm_unlink(name.c_str());
      return UniqueFd(fd);
    }
    if (errno != EEXIST) break;
  }
  return UniqueFd();
}

UniqueFd OpenTemporaryFile() {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder && *folder ? folder : "/tmp") + "/rrsim.XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd >= 0) {
    unlink(path.c_str());
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  return UniqueFd(fd);
}

}  // namespace

Result<Region> Region::CreateShared(uint64_t size) {
  UniqueFd fd = OpenSharedMemory();
  if (!fd.valid() || !HasRoom(fd.get(), size)) fd = OpenTemporaryFile();
  if (!fd.valid()) return SystemError("shared memory");
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return SystemError("ftruncate");
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return SystemError("mmap");
  return Region(std::move(fd), static_cast<uint8_t*>(data), size);
}

Result<Region> Region::CreatePrivate(uint64_t size) {
  void* data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return SystemError("mmap");
  return Region(UniqueFd(), static_cast<uint8_t*>(data), size);
}

Region::Region(Region&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Region::~Region() {
  if (data_) munmap(data_, size_);
}

}  // namespace tg::sim
