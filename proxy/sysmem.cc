#include "proxy/sysmem.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "proxy/xxh3.h"
#include "schemas/wire/bytes.h"

namespace tg::proxy {
namespace {

constexpr size_t kPage = 4096;
// A pipe holds at least this much without blocking on both systems.
constexpr size_t kPipeChunk = 4096;

}  // namespace

SafeCopier::SafeCopier() {
  int fds[2];
  if (::pipe(fds) != 0) return;
  read_.reset(fds[0]);
  write_.reset(fds[1]);
  PrepareDescriptor(fds[0]);
  PrepareDescriptor(fds[1]);
}

size_t SafeCopier::Copy(const uint8_t* from, std::span<uint8_t> to) {
  if (!ok()) return 0;
  size_t done = 0;
  while (done < to.size()) {
    const size_t want = std::min(kPipeChunk, to.size() - done);
    const ssize_t put = ::write(write_.get(), from + done, want);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    for (ssize_t got = 0; got < put;) {
      const ssize_t n = ::read(read_.get(), to.data() + done + got, static_cast<size_t>(put - got));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return done + static_cast<size_t>(got);
      got += n;
    }
    done += static_cast<size_t>(put);
  }
  return done;
}

struct SysmemTable::Mapping {
  SysmemRegion region;
  const uint8_t* base = nullptr;
  size_t size = 0;
  // XXH3 of each page as last stored; small regions only.
  std::vector<std::optional<uint64_t>> stored;

  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (base) ::munmap(const_cast<uint8_t*>(base), size);
  }
};

SysmemTable::SysmemTable() = default;
SysmemTable::~SysmemTable() = default;

SysmemRegion SysmemTable::Add(int fd, uint32_t index, uint64_t asked, uint64_t granted) {
  auto mapping = std::make_shared<Mapping>();
  SysmemRegion& region = mapping->region;
  region.index = index;
  region.asked = asked;
  region.granted = granted;
  if (size() >= kMaxRegions) {
    region.problem = "not mapped: more than " + std::to_string(kMaxRegions) + " regions";
    return region;
  }

  struct stat st {};
  if (::fstat(fd, &st) != 0) {
    region.problem = "fstat: " + ErrnoText(errno);
  } else if (st.st_size <= 0) {
    region.problem = "the object behind the descriptor is empty";
  } else {
    const uint64_t size = std::min<uint64_t>(granted, static_cast<uint64_t>(st.st_size));
    if (size < granted)
      region.problem = "the object is shorter than the server said: " + std::to_string(st.st_size) +
                       " of " + std::to_string(granted) + " bytes";
    void* base = size == 0
                     ? MAP_FAILED
                     : ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
      region.problem = size == 0 ? "the server granted no bytes" : "mmap: " + ErrnoText(errno);
    } else {
      mapping->base = static_cast<const uint8_t*>(base);
      mapping->size = static_cast<size_t>(size);
      region.mapped = size;
    }
  }

  if (mapping->base) {
    std::array<uint8_t, kMaxTableBytes> bytes;
    size_t have = 0;
    {
      const std::lock_guard lock(copy_mutex_);
      have = copier_.Copy(mapping->base,
                          std::span(bytes).first(std::min(bytes.size(), mapping->size)));
    }
    bool ended = false;
    for (size_t at = 0; at + 16 <= have && !ended; at += 16) {
      const auto address = LoadLe<uint64_t>(&bytes[at]);
      const auto length = LoadLe<uint64_t>(&bytes[at + 8]);
      ended = length == 0;
      if (!ended) region.table.emplace_back(address, length);
    }
    if (!ended && region.problem.empty()) {
      region.table.clear();
      region.problem =
          "no end of the address table in its first " + std::to_string(have) + " bytes";
    }
    if (mapping->size <= kSmallRegion) mapping->stored.resize((mapping->size + kPage - 1) / kPage);
  }
  const std::lock_guard lock(mutex_);
  mappings_.push_back(mapping);
  return region;
}

size_t SysmemTable::Copy(uint32_t index, uint64_t offset, std::span<uint8_t> to) {
  std::shared_ptr<Mapping> mapping;
  {
    const std::lock_guard lock(mutex_);
    // Regions usually come numbered from 0; a number given twice means the newer one.
    for (auto it = mappings_.rbegin(); it != mappings_.rend() && !mapping; ++it)
      if ((*it)->region.index == index) mapping = *it;
  }
  if (!mapping || offset >= mapping->size) return 0;
  const size_t size = std::min<uint64_t>(to.size(), mapping->size - offset);
  const std::lock_guard lock(copy_mutex_);
  return copier_.Copy(mapping->base + offset, to.first(size));
}

void SysmemTable::SnapshotSmall(const std::function<void(const SysmemBytes&)>& emit) {
  std::vector<std::shared_ptr<Mapping>> mappings;
  {
    const std::lock_guard lock(mutex_);
    mappings = mappings_;
  }
  std::vector<uint8_t> copy(kSmallRegion);
  for (const auto& mapping : mappings) {
    if (mapping->stored.empty()) continue;
    const std::lock_guard lock(copy_mutex_);
    const size_t have = copier_.Copy(mapping->base, std::span(copy).first(mapping->size));
    SysmemBytes run;
    const auto flush = [&] {
      if (!run.data.empty() || run.zeros > 0) emit(run);
      run = {};
    };
    for (size_t at = 0, page = 0; at < have; at += kPage, page++) {
      const auto bytes = std::span<const uint8_t>(copy).subspan(at, std::min(kPage, have - at));
      const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
      if (mapping->stored[page] == hash) {
        flush();
        continue;
      }
      mapping->stored[page] = hash;
      const bool zero = std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
      if (zero ? !run.data.empty() : run.zeros > 0) flush();
      if (run.data.empty() && run.zeros == 0) {
        run.index = mapping->region.index;
        run.offset = at;
      }
      if (zero)
        run.zeros += bytes.size();
      else
        run.data.insert(run.data.end(), bytes.begin(), bytes.end());
    }
    flush();
  }
}

size_t SysmemTable::size() const {
  const std::lock_guard lock(mutex_);
  return mappings_.size();
}

uint64_t SysmemTable::granted_total() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (const auto& mapping : mappings_) total += mapping->region.granted;
  return total;
}

std::vector<SysmemRegion> SysmemTable::regions() const {
  const std::lock_guard lock(mutex_);
  std::vector<SysmemRegion> out;
  for (const auto& mapping : mappings_) out.push_back(mapping->region);
  return out;
}

}  // namespace tg::proxy
