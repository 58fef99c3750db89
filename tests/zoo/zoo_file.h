// The zoo's traces as they are committed: traces/NAME.zst.
//
// A trace of the driver's boot has 27,000 small packets. Half of what they compress to are
// checksums, which no compressor can foretell, and the rest are times, which break up what is equal
// in all traces. So a stored trace is taken apart, without loss: checksums that hold are left out
// and made anew, times go into columns of their own, and what is left is compressed against the
// first trace (zstd prefix). 1 MB becomes about 20 KB.
//
//   unpacked: size of the skeleton (u64) | skeleton | size and bytes of each column
//   skeleton: for each packet: bits (Bit) | varint size | the packet's bytes without what is in
//   columns; then the rest of the file, if it did not end with a packet
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schemas/result.h"

namespace tg::zoo {

inline constexpr const char* kBase = "boot";

using Bytes = std::vector<uint8_t>;

// Takes a trace apart and puts it together again. The empty tail of a file that was not closed is
// lost.
Bytes TakeApart(const Bytes& trace);
Result<Bytes> PutTogether(std::span<const uint8_t> parts);

// zstd; `base`: what it is compressed against, empty for none.
Result<Bytes> Compress(const Bytes& parts, const Bytes& base);
Result<Bytes> Decompress(std::span<const uint8_t> packed, const Bytes& base);

// `folder`/NAME.zst, as the proxy wrote it. `base`: the trace in `folder` that the others are
// compressed against.
Result<Bytes> LoadTrace(const std::string& folder, const std::string& name,
                        const std::string& base = kBase);
Result<void> StoreTrace(const std::string& folder, const std::string& name, const Bytes& trace,
                        const std::string& base = kBase);

Result<Bytes> ReadFile(const std::string& path);
Result<void> WriteFile(const std::string& path, const Bytes& bytes);

}  // namespace tg::zoo
