// Runs a fuzz target without libFuzzer, so that targets are exercised by every build and compiler:
// each seed whole, each seed cut short, seeds with bytes changed, and random inputs. Deterministic.
//
//   NAME_fuzz CORPUS_DIR [RUNS]     RUNS: mutated and random inputs, 20000
//   NAME_fuzz FILE...               just these inputs, e.g. one that libFuzzer saved
//
// The input that is being tried is in crash-input of the working directory's $FUZZ_SAVE (if set),
// so that a crash can be repeated.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMaxRandomSize = 512;
constexpr size_t kMaxPrefixes = 2048;  // of one seed, evenly spread when it is longer
// A slow machine or sanitizer tries fewer inputs instead of failing by a timeout.
constexpr auto kTimeLimit = std::chrono::seconds(15);

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

void Try(const Bytes& input) {
  static const char* const save = std::getenv("FUZZ_SAVE");
  if (save != nullptr) {
    std::ofstream(save, std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
  }
  // An exact heap block, so that AddressSanitizer sees a read past the end.
  const Bytes exact(input);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

// Values that sit on edges of sizes, offsets and commands.
constexpr uint64_t kEdges[] = {0,
                               1,
                               3,
                               4,
                               7,
                               8,
                               0x7f,
                               0x80,
                               0xff,
                               0x100,
                               0xfff,
                               0x1000,
                               0xffff,
                               0x10000,
                               0xfffff,
                               0x100000,
                               0x100001,
                               0x7fffffff,
                               0x80000000,
                               0xffffffff,
                               0x100000000,
                               0x7fffffffffffffff,
                               0xffffffffffffffff};

template <typename Rng>
void Mutate(Bytes& bytes, const std::vector<Bytes>& seeds, Rng& rng) {
  const auto below = [&rng](size_t n) { return static_cast<size_t>(rng() % (n == 0 ? 1 : n)); };
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(bytes.size() + 1);
    switch (below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<uint8_t>(bytes[at] ^ (1u << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<uint8_t>(rng());
        break;
      case 2: {
        const uint64_t edge = kEdges[below(std::size(kEdges))];
        const size_t width = std::min(size_t{1} << below(4), bytes.size() - at);
        if (width > 0) std::memcpy(bytes.data() + at, &edge, width);
        break;
      }
      case 3:
        bytes.resize(at);
        break;
      case 4: {  // the tail of another seed
        const Bytes& other = seeds[below(seeds.size())];
        const size_t from = below(other.size() + 1);
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        break;
      }
      default: {  // a piece once more
        const size_t size = below(std::min<size_t>(bytes.size() - at, 64) + 1);
        const Bytes piece(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                          bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIR [RUNS] | FILE...\n", argv[0]);
    return 2;
  }
  if (!std::filesystem::is_directory(argv[1])) {
    for (int i = 1; i < argc; ++i) {
      if (!std::filesystem::is_regular_file(argv[i])) {
        std::fprintf(stderr, "%s: no such file\n", argv[i]);
        return 2;
      }
      Try(ReadFile(argv[i]));
    }
    return 0;
  }

  const auto start = std::chrono::steady_clock::now();
  const auto stop = start + kTimeLimit;
  // The prefixes of slow targets must not take all of the time.
  const auto half_time = start + kTimeLimit / 2;
  const auto late = [stop] { return std::chrono::steady_clock::now() >= stop; };
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry);
  std::sort(files.begin(), files.end());
  std::vector<Bytes> seeds;
  for (const auto& file : files) seeds.push_back(ReadFile(file));
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no seeds\n", argv[1]);
    return 1;
  }

  Try({});
  for (const Bytes& seed : seeds) Try(seed);
  size_t prefixes = 0;
  for (const Bytes& seed : seeds) {
    const size_t step = 1 + seed.size() / kMaxPrefixes;
    for (size_t size = 0; size < seed.size() && std::chrono::steady_clock::now() < half_time;
         size += step, ++prefixes) {
      Try(Bytes(seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(size)));
    }
  }

  const long runs = argc > 2 ? std::atol(argv[2]) : 20000;
  std::mt19937_64 rng(20260316);
  long done = 0;
  for (; done < runs && !late(); ++done) {
    Bytes input;
    if (done % 4 == 0) {
      input.resize(rng() % kMaxRandomSize);
      for (uint8_t& byte : input) byte = static_cast<uint8_t>(rng());
    } else {
      input = seeds[rng() % seeds.size()];
      Mutate(input, seeds, rng);
    }
    Try(input);
  }
  std::printf("%zu seeds, %zu prefixes, %ld of %ld mutated and random inputs\n", seeds.size(),
              prefixes, done, runs);
  // Nothing tried beyond the seeds would be a green test of nothing.
  return done > 0 || runs == 0 ? 0 : 1;
}
