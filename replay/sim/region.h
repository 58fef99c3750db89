// Memory that a client asked for: shared through a descriptor (TinyGPU.app) or the server's own
// (TCP).
#pragma once

#include <cstdint>

#include "schemas/result.h"
#include "schemas/unique_fd.h"

namespace tg::sim {

class Region {
 public:
  // Named shared memory whose name is gone again at once; an unlinked file in the temporary folder
  // where the system's shared memory is too small for it. Zeros.
  static Result<Region> CreateShared(uint64_t size);
  // Private to this process. Zeros.
  static Result<Region> CreatePrivate(uint64_t size);
  Region(Region&& other) noexcept;
  Region& operator=(Region&&) = delete;
  ~Region();

  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  int descriptor() const { return fd_.get(); }

 private:
  Region(UniqueFd fd, uint8_t* data, uint64_t size)
      : fd_(std::move(fd)), data_(data), size_(size) {}
  UniqueFd fd_;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace tg::sim
