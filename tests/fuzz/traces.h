// Trace files for the targets that read whole ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace tg::fuzz {

using Packets = std::vector<std::vector<uint8_t>>;

// Messages as a seed has them: u16 size, then that many bytes, until the input is used up.
Packets TakePackets(Input& input);

// A message without its checksum, as a packet whose checksums hold: so the parsers behind them are
// reached.
void AppendSealed(std::vector<uint8_t>& file, std::span<const uint8_t> message);
std::vector<uint8_t> Sealed(const Packets& packets);

// A file of this process alone for code that takes a path; gone when the process ends by itself.
class ScratchFile {
 public:
  explicit ScratchFile(const char* name);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  void Write(std::span<const uint8_t> bytes) const;
  std::vector<uint8_t> Read() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What is printed for people: nothing of a trace may steer their terminal.
void CheckPlainText(std::string_view text);

}  // namespace tg::fuzz
