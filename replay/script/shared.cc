#include "replay/script/shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "schemas/wire/bytes.h"

namespace tg::replay {
namespace {

// As many pairs as TinyGPU.app's driver can hand out (32, and the closing one).
constexpr size_t kMaxRanges = 33;
constexpr size_t kPair = 16;
// A trace may claim any size; memory is only used where it is touched.
constexpr uint64_t kMaxSize = 64ull << 30;

tl::unexpected<Error> Cannot(const char* what) {
  return Fail(Error::Code::kIo, std::string("shared memory: cannot ") + what + ": " +
                                    std::generic_category().message(errno));
}

// The peer may read at the same moment: a word is stored at once, never byte by byte.
void StoreWord(uint8_t* at, const uint8_t* from, size_t size) {
  if (size == 4 && reinterpret_cast<uintptr_t>(at) % 4 == 0)
    __atomic_store_n(reinterpret_cast<uint32_t*>(at), LoadLe<uint32_t>(from), __ATOMIC_RELEASE);
  else
    std::memcpy(at, from, size);
}

}  // namespace

Result<SharedMemory> SharedMemory::Create(uint64_t size) {
  if (size == 0 || size > kMaxSize)
    return Fail(Error::Code::kBadInput,
                "shared memory of " + std::to_string(size) + " bytes: not between 1 and 64 GiB");
  static std::atomic<unsigned> count{0};
  UniqueFd fd;
  for (int attempt = 0; attempt < 100 && !fd.valid(); attempt++) {
    const std::string name =
        "/rpcreplay." + std::to_string(getpid()) + "." + std::to_string(count++);
    fd.reset(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
    if (fd.valid())
      shm_unlink(name.c_str());
    else if (errno != EEXIST)
      return Cannot("make it");
  }
  if (!fd.valid()) return Cannot("make it");
  fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return Cannot("give it a size");
  return Map(std::move(fd), size);
}

Result<SharedMemory> SharedMemory::Map(UniqueFd fd, uint64_t size) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return Cannot("examine the descriptor");
  if (size == 0 || size > kMaxSize || static_cast<uint64_t>(status.st_size) < size)
    return Fail(Error::Code::kBadInput, "shared memory: the descriptor has " +
                                            std::to_string(status.st_size) +
                                            " bytes, the reply says " + std::to_string(size));
  SharedMemory memory;
  void* data =
      mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return Cannot("map it");
  memory.fd_ = std::move(fd);
  memory.data_ = static_cast<uint8_t*>(data);
  memory.size_ = size;
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept {
  *this = std::move(other);
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(recorded_, other.recorded_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, static_cast<size_t>(size_));
}

// Calls on_word(offset, new bytes, size) for every word that `merge` says to store.
template <typename OnWord>
void SharedMemory::Walk(const Memory& memory, Merge merge, const WordFilter& may_store,
                        OnWord on_word) const {
  if (merge == Merge::kRemember || memory.offset >= size_) return;
  const uint64_t end = memory.offset + std::min(memory.size(), size_ - memory.offset);
  static constexpr uint8_t kZeros[4] = {};
  for (uint64_t at = memory.offset; at < end;) {
    const size_t size = static_cast<size_t>(std::min(end - at, 4 - at % 4));
    const uint8_t* now = memory.zeros != 0 ? kZeros : memory.data.data() + (at - memory.offset);
    const uint8_t* here = data_ + at;
    if (std::memcmp(here, now, size) != 0) {
      uint8_t before[4];
      recorded_.Read(at, std::span(before, size));
      const bool changed = std::memcmp(before, now, size) != 0;
      const bool untouched = std::memcmp(before, here, size) == 0;
      if ((merge == Merge::kAll || (changed && (untouched || merge == Merge::kChanged))) &&
          (!may_store || may_store(at, size)))
        on_word(at, now, size);
    }
    at += size;
  }
}

size_t SharedMemory::Apply(const Memory& memory, Merge merge, const WordFilter& may_store) {
  size_t stored = 0;
  Walk(memory, merge, may_store, [&](uint64_t at, const uint8_t* now, size_t size) {
    StoreWord(data_ + at, now, size);
    stored++;
  });
  if (memory.offset < size_) {
    const uint64_t size = std::min(memory.size(), size_ - memory.offset);
    if (memory.zeros != 0)
      recorded_.Zero(memory.offset, size);
    else
      recorded_.Write(memory.offset, std::span(memory.data).first(static_cast<size_t>(size)));
  }
  return stored;
}

size_t SharedMemory::Count(const Memory& memory, Merge merge, const WordFilter& may_store) const {
  size_t count = 0;
  Walk(memory, merge, may_store, [&](uint64_t, const uint8_t*, size_t) { count++; });
  return count;
}

void SharedMemory::StoreTable(const std::vector<DmaRange>& ranges) {
  Memory table;
  const size_t room = static_cast<size_t>(std::min<uint64_t>(size_ / kPair, kMaxRanges));
  const size_t count = std::min(ranges.size(), room > 0 ? room - 1 : 0);
  table.data.resize((count + 1) * kPair);
  for (size_t i = 0; i < count; i++) {
    StoreLe(table.data.data() + i * kPair, ranges[i].address);
    StoreLe(table.data.data() + i * kPair + 8, ranges[i].length);
  }
  Apply(table, Merge::kAll);
}

std::vector<DmaRange> SharedMemory::LoadTable() const {
  std::vector<DmaRange> ranges;
  for (uint64_t at = 0; at + kPair <= size_ && ranges.size() < kMaxRanges; at += kPair) {
    const DmaRange range{LoadLe<uint64_t>(data_ + at), LoadLe<uint64_t>(data_ + at + 8)};
    if (range.length == 0) break;
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace tg::replay
