#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "schemas/trace/storage.h"
#include "schemas/trace/writer.h"

namespace tg::trace {
namespace {

Error FromErrno(const std::string& what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return {full ? Error::Code::kNoSpace : Error::Code::kIo, what + ": " + std::strerror(error)};
}

class FileSink : public Sink {
 public:
  FileSink(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~FileSink() override { close(fd_); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  Result<std::span<uint8_t>> Map(uint64_t offset, size_t size) override {
    if (const int error = AllocateFile(fd_, offset, size); error != 0) {
      // What was allocated of it goes back, so that a full disk is not fuller for our trying.
      if (ftruncate(fd_, static_cast<off_t>(offset)) != 0) { /* it stays, and reads as zero */
      }
      return tl::unexpected(FromErrno("cannot extend " + path_, error));
    }
    void* at =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(offset));
    if (at == MAP_FAILED) return tl::unexpected(FromErrno("cannot map " + path_, errno));
    return std::span(static_cast<uint8_t*>(at), size);
  }

  void Unmap(std::span<uint8_t> segment) override {
    // Where Sync() is in use, later calls of it must not have to find these pages again.
    if (syncing_) msync(segment.data(), segment.size(), MS_SYNC);
    munmap(segment.data(), segment.size());
  }

  Result<void> Sync(std::span<uint8_t> dirty) override {
    syncing_ = true;
    if (!dirty.empty()) {
      const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
      const size_t before = reinterpret_cast<uintptr_t>(dirty.data()) % page;
      if (msync(dirty.data() - before, before + dirty.size(), MS_SYNC) != 0)
        return tl::unexpected(FromErrno("cannot write " + path_ + " to the disk", errno));
    }
    if (const int error = SyncFile(fd_); error != 0)
      return tl::unexpected(FromErrno("cannot write " + path_ + " to the disk", error));
    return {};
  }

  Result<void> Truncate(uint64_t size) override {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0)
      return tl::unexpected(FromErrno("cannot cut " + path_ + " to its size", errno));
    if (syncing_) {
      if (const int error = SyncFile(fd_); error != 0)
        return tl::unexpected(FromErrno("cannot write " + path_ + " to the disk", error));
    }
    return {};
  }

 private:
  int fd_;
  std::string path_;
  std::atomic<bool> syncing_ = false;
};

}  // namespace

Result<std::unique_ptr<Sink>> OpenFileSink(const std::string& path, bool overwrite) {
  std::string create = path;
  struct stat st;
  if (lstat(path.c_str(), &st) == 0) {
    if (!S_ISREG(st.st_mode))
      return Fail(Error::Code::kUsage, path + " is not a regular file: a trace cannot go there");
    if (!overwrite)
      return Fail(Error::Code::kUsage,
                  path + " exists already: choose another name, or ask to overwrite it");
    // A new file under the old name. Cutting the old one short instead would kill (SIGBUS) a
    // proxy that is still writing it.
    create += ".new." + std::to_string(getpid());
  }
  const int fd = open(create.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return tl::unexpected(FromErrno("cannot create " + create, errno));
  if (create != path && rename(create.c_str(), path.c_str()) != 0) {
    const int error = errno;
    close(fd);
    unlink(create.c_str());
    return tl::unexpected(FromErrno("cannot replace " + path, error));
  }
  return std::make_unique<FileSink>(fd, path);
}

}  // namespace tg::trace
