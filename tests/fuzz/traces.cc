#include "tests/fuzz/traces.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "schemas/trace/crc32c.h"
#include "schemas/trace/wire_format.h"

namespace tg::fuzz {
namespace {

namespace pb = trace::pb;

// What a Repeat's checksum reads as zero: the contents of its two states.
void ZeroStates(std::span<uint8_t> repeat) {
  const uint8_t* p = repeat.data();
  const uint8_t* const end = p + repeat.size();
  pb::Field f;
  while (p != end && (p = pb::GetField(p, end, f)) != nullptr) {
    if (f.key != pb::Key(2, pb::kLen) && f.key != pb::Key(3, pb::kLen)) continue;
    std::fill_n(repeat.data() + (f.bytes.data() - repeat.data()), f.bytes.size(), uint8_t{0});
  }
}

}  // namespace

Packets TakePackets(Input& input) {
  Packets packets;
  while (!input.empty()) {
    const auto message = input.Bytes(input.Take<uint16_t>());
    packets.emplace_back(message.begin(), message.end());
  }
  return packets;
}

void AppendSealed(std::vector<uint8_t>& file, std::span<const uint8_t> message) {
  std::vector<uint8_t> summed(message.begin(), message.end());
  const uint8_t* p = summed.data();
  const uint8_t* const end = p + summed.size();
  pb::Field f;
  while (p != end && (p = pb::GetField(p, end, f)) != nullptr) {
    if (f.key == pb::Key(10, pb::kLen))
      ZeroStates({summed.data() + (f.bytes.data() - summed.data()), f.bytes.size()});
  }
  uint8_t head[11] = {pb::kPacketTag};
  file.insert(file.end(), head, pb::PutVarint(head + 1, message.size() + pb::kCrcField));
  file.insert(file.end(), message.begin(), message.end());
  file.push_back(pb::kCrcKey);
  uint8_t crc[4];
  StoreLe(crc, trace::Crc32c(summed));
  file.insert(file.end(), crc, crc + 4);
}

std::vector<uint8_t> Sealed(const Packets& packets) {
  std::vector<uint8_t> file;
  for (const auto& packet : packets) AppendSealed(file, packet);
  return file;
}

ScratchFile::ScratchFile(const char* name)
    : path_((std::filesystem::temp_directory_path() /
             ("tinygpu-fuzz-" + std::to_string(getpid()) + "-" + name))
                .string()) {}

ScratchFile::~ScratchFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void ScratchFile::Write(std::span<const uint8_t> bytes) const {
  std::ofstream out(path_, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  out.close();
  FUZZ_CHECK(out.good());
}

std::vector<uint8_t> ScratchFile::Read() const {
  std::ifstream in(path_, std::ios::binary);
  FUZZ_CHECK(in.good());
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(in), {});
}

void CheckPlainText(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    FUZZ_CHECK((byte >= 0x20 || byte == '\n') && byte != 0x7f);
  }
}

}  // namespace tg::fuzz
