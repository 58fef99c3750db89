#include "schemas/trace/window.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tg::trace {
namespace {

// Twice the largest packet: looking for packets in damage moves on by one packet per refill.
constexpr size_t kLarge = 2 * Window::kMaxWant;

}  // namespace

Result<std::unique_ptr<Window>> Window::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const auto code = errno == ENOENT ? Error::Code::kNotFound : Error::Code::kIo;
    return Fail(code, "cannot open " + path + ": " + std::strerror(errno));
  }
  std::unique_ptr<Window> window(new Window(fd));
  struct stat st;
  if (fstat(fd, &st) != 0)
    return Fail(Error::Code::kIo, "cannot read " + path + ": " + std::strerror(errno));
  if (S_ISDIR(st.st_mode)) return Fail(Error::Code::kUsage, path + " is a directory");
  if (!S_ISREG(st.st_mode))
    return Fail(Error::Code::kUsage,
                path + " is not a regular file: save the trace to a file and read that");
  return window;
}

Window::~Window() {
  if (fd_ >= 0) close(fd_);
}

void Window::Forget() {
  if (fd_ < 0) return;
  end_ = base_;
  at_end_ = false;
}

uint64_t Window::FileSize() {
  struct stat st;
  if (fd_ < 0) return end_;
  return fstat(fd_, &st) == 0 ? static_cast<uint64_t>(st.st_size) : end_;
}

std::span<const uint8_t> Window::Refill(uint64_t offset, size_t want) {
  const bool inside = offset >= base_ && offset <= end_;
  if (fd_ < 0 || (inside && at_end_)) {
    if (!inside) return {};
    return Buffered(offset);
  }
  const size_t tail = inside ? static_cast<size_t>(end_ - offset) : 0;
  const size_t capacity = want > chunk_ || tail > chunk_ ? kLarge : chunk_;
  if (buffer_.size() < capacity) buffer_.resize(capacity);
  if (inside) {
    std::memmove(buffer_.data(), buffer_.data() + (offset - base_), tail);
  } else {
    end_ = offset;
  }
  base_ = offset;
  at_end_ = false;
  while (end_ - base_ < capacity) {
    const size_t have = end_ - base_;
    const ssize_t n = pread(fd_, buffer_.data() + have, capacity - have, static_cast<off_t>(end_));
    if (n < 0 && errno == EINTR) continue;
    // An unreadable sector ends the file as its end would: what stood before it is delivered.
    if (n <= 0) {
      at_end_ = true;
      break;
    }
    end_ += static_cast<uint64_t>(n);
  }
  return Buffered(offset);
}

}  // namespace tg::trace
