#include "replay/sim/vram.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tg::sim {
namespace {

// Linux counts a private mapping of this size against its commit limit unless told not to; macOS
// has the flag and ignores it.
constexpr int kFlags = MAP_PRIVATE | MAP_ANON | MAP_NORESERVE;

tl::unexpected<Error> MapError(uint64_t size) {
  return Fail(Error::Code::kIo, "cannot reserve " + std::to_string(size >> 20) +
                                    " MiB of address space for VRAM: " + std::strerror(errno));
}

}  // namespace

Result<Vram> Vram::Create(uint64_t size) {
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (base == MAP_FAILED) return MapError(size);
  return Vram(static_cast<uint8_t*>(base), size);
}

Vram::Vram(Vram&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Vram::~Vram() {
  if (base_) munmap(base_, size_);
}

Result<void> Vram::Clear() {
  void* base = mmap(base_, size_, PROT_READ | PROT_WRITE, kFlags | MAP_FIXED, -1, 0);
  if (base == MAP_FAILED) return MapError(size_);
  return {};
}

}  // namespace tg::sim
