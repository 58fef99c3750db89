// What every fuzz target shares.
//
// A target is one file NAME_fuzz.cc with
//   extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
// a line in CMakeLists.txt and a seed folder corpus/NAME. Under preset `fuzz` libFuzzer drives it;
// in every other build driver.cc does, as a ctest test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

// An invariant of the code under test; aborts, so that the driver and libFuzzer keep the input.
#define FUZZ_CHECK(condition)                                                                \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)

namespace tg::fuzz {

// Takes decisions from the front of an input; zeros when it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(data, size) {}

  template <typename T>
  T Take() {
    T value{};
    const size_t n = left_.size() < sizeof value ? left_.size() : sizeof value;
    if (n != 0) std::memcpy(&value, left_.data(), n);
    left_ = left_.subspan(n);
    return value;
  }
  std::span<const uint8_t> Bytes(size_t size) {
    const auto bytes = left_.first(size < left_.size() ? size : left_.size());
    left_ = left_.subspan(bytes.size());
    return bytes;
  }
  std::span<const uint8_t> Rest() { return Bytes(left_.size()); }
  bool empty() const { return left_.empty(); }

 private:
  std::span<const uint8_t> left_;
};

}  // namespace tg::fuzz
