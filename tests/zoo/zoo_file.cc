#include "tests/zoo/zoo_file.h"

#include <zstd.h>

#include <fstream>
#include <iterator>
#include <memory>

#include "schemas/trace/crc32c.h"
#include "schemas/trace/wire_format.h"
#include "schemas/wire/bytes.h"

namespace tg::zoo {
namespace {

namespace pb = trace::pb;

constexpr int kLevel = 19;
constexpr int kWindowLog = 24;  // the base, and the trace behind it
constexpr uint64_t kMaxTrace = 64u << 20;

// What of a packet is in columns.
enum Bit : uint8_t { kTime = 1, kLatency = 2, kChecksum = 4, kNoPacket = 8 };
// Columns: first byte of a packet's dt, its further bytes, the two bytes of its latency.
enum Column : size_t { kTimeLow, kTimeHigh, kLatencyLow, kLatencyHigh, kColumns };
constexpr uint8_t kTimeKey = pb::Key(1, pb::kVarint), kLatencyKey = pb::Key(6, pb::kVarint);

void PutVarint(Bytes& out, uint64_t value) {
  uint8_t bytes[10];
  out.insert(out.end(), bytes, pb::PutVarint(bytes, value));
}

// Where in `packet` the two-byte slot of its latency stands; 0: none.
size_t LatencyAt(std::span<const uint8_t> packet) {
  const uint8_t *p = packet.data(), *const end = p + packet.size();
  while (p < end) {
    uint64_t key = 0, value = 0;
    if (!(p = pb::GetVarint(p, end, key))) return 0;
    const uint8_t* const at = p;
    switch (key & 7) {
      case pb::kVarint:
        if (!(p = pb::GetVarint(p, end, value))) return 0;
        if (key == kLatencyKey && p == at + 2) return static_cast<size_t>(at - packet.data());
        break;
      case pb::kI64:
        p += 8;
        break;
      case pb::kI32:
        p += 4;
        break;
      case pb::kLen:
        if (!(p = pb::GetVarint(p, end, value)) || value > static_cast<uint64_t>(end - p)) return 0;
        p += value;
        break;
      default:
        return 0;
    }
  }
  return 0;
}

struct Columns {
  std::array<Bytes, kColumns> bytes;
  std::array<size_t, kColumns> at{};
  uint8_t Take(Column column) {
    const size_t i = at[column]++;
    return i < bytes[column].size() ? bytes[column][i] : 0;
  }
};

tl::unexpected<Error> Bad(const std::string& what) {
  return Fail(Error::Code::kBadInput, what);
}

}  // namespace

Bytes TakeApart(const Bytes& trace) {
  Bytes skeleton;
  Columns columns;
  const uint8_t *p = trace.data(), *const end = p + trace.size();
  while (p < end && *p == pb::kPacketTag) {
    uint64_t size = 0;
    const uint8_t* const begin = pb::GetVarint(p + 1, end, size);
    if (!begin || size > static_cast<uint64_t>(end - begin)) break;
    p = begin + size;
    Bytes packet(begin, p);
    uint8_t bits = 0;
    if (size >= pb::kCrcField && packet[size - pb::kCrcField] == pb::kCrcKey) {
      const auto summed = std::span(packet).first(size - pb::kCrcField);
      if (trace::Crc32c(summed) == LoadLe<uint32_t>(&packet[size - 4])) {
        bits |= kChecksum;
        packet.resize(size - pb::kCrcField);
      }
    }
    if (const size_t at = LatencyAt(packet)) {
      bits |= kLatency;
      columns.bytes[kLatencyLow].push_back(packet[at]);
      columns.bytes[kLatencyHigh].push_back(packet[at + 1]);
      packet[at] = 0x80;  // a slot of two bytes that holds zero
      packet[at + 1] = 0;
    }
    if (packet.size() > 1 && packet[0] == kTimeKey) {
      bits |= kTime;
      columns.bytes[kTimeLow].push_back(packet[1]);
      size_t i = 1;
      while (packet[i] >= 0x80 && i + 1 < packet.size())
        columns.bytes[kTimeHigh].push_back(packet[++i]);
      packet.erase(packet.begin(), packet.begin() + static_cast<ptrdiff_t>(i) + 1);
    }
    skeleton.push_back(bits);
    PutVarint(skeleton, packet.size());
    skeleton.insert(skeleton.end(), packet.begin(), packet.end());
  }
  const uint8_t* rest = end;
  while (rest > p && rest[-1] == 0) rest--;
  if (rest > p) {
    skeleton.push_back(kNoPacket);
    PutVarint(skeleton, static_cast<uint64_t>(rest - p));
    skeleton.insert(skeleton.end(), p, rest);
  }
  Bytes out(8);
  StoreLe(out.data(), uint64_t{skeleton.size()});
  out.insert(out.end(), skeleton.begin(), skeleton.end());
  for (const Bytes& column : columns.bytes) {
    PutVarint(out, column.size());
    out.insert(out.end(), column.begin(), column.end());
  }
  return out;
}

Result<Bytes> PutTogether(std::span<const uint8_t> parts) {
  if (parts.size() < 8 || LoadLe<uint64_t>(parts.data()) > parts.size() - 8)
    return Bad("no skeleton");
  const auto skeleton = parts.subspan(8, LoadLe<uint64_t>(parts.data()));
  const uint8_t *p = skeleton.data() + skeleton.size(), *end = parts.data() + parts.size();
  uint64_t size = 0;
  Columns columns;
  for (Bytes& column : columns.bytes) {
    if (!(p = pb::GetVarint(p, end, size)) || size > static_cast<uint64_t>(end - p))
      return Bad("a column is cut off");
    column.assign(p, p + size);
    p += size;
  }
  Bytes out;
  p = skeleton.data();
  end = p + skeleton.size();
  while (p < end) {
    const uint8_t bits = *p++;
    if (!(p = pb::GetVarint(p, end, size)) || size > static_cast<uint64_t>(end - p))
      return Bad("the skeleton is cut off");
    Bytes packet;
    if (bits & kTime) {
      packet.push_back(kTimeKey);
      packet.push_back(columns.Take(kTimeLow));
      while (packet.back() >= 0x80) packet.push_back(columns.Take(kTimeHigh));
    }
    const size_t head = packet.size();
    packet.insert(packet.end(), p, p + size);
    p += size;
    if (bits & kNoPacket) {
      out.insert(out.end(), packet.begin(), packet.end());
      continue;
    }
    if (bits & kLatency) {
      const size_t at = LatencyAt(std::span(packet).subspan(head));
      if (at == 0) return Bad("a latency has no place");
      packet[head + at] = columns.Take(kLatencyLow);
      packet[head + at + 1] = columns.Take(kLatencyHigh);
    }
    if (bits & kChecksum) {
      const uint32_t sum = trace::Crc32c(packet);
      packet.resize(packet.size() + pb::kCrcField, pb::kCrcKey);
      StoreLe(&packet[packet.size() - 4], sum);
    }
    out.push_back(pb::kPacketTag);
    PutVarint(out, packet.size());
    out.insert(out.end(), packet.begin(), packet.end());
  }
  return out;
}

Result<Bytes> Compress(const Bytes& parts, const Bytes& base) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, kWindowLog);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_enableLongDistanceMatching, 1);
  ZSTD_CCtx_refPrefix(context.get(), base.data(), base.size());
  Bytes out(ZSTD_compressBound(parts.size()));
  const size_t size =
      ZSTD_compress2(context.get(), out.data(), out.size(), parts.data(), parts.size());
  if (ZSTD_isError(size)) return Bad(std::string("compress: ") + ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

Result<Bytes> Decompress(std::span<const uint8_t> packed, const Bytes& base) {
  const uint64_t size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kMaxTrace)
    return Bad("not a packed trace");
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     ZSTD_freeDCtx);
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLog);
  ZSTD_DCtx_refPrefix(context.get(), base.data(), base.size());
  Bytes out(size);
  const size_t got =
      ZSTD_decompressDCtx(context.get(), out.data(), out.size(), packed.data(), packed.size());
  if (ZSTD_isError(got)) return Bad(std::string("decompress: ") + ZSTD_getErrorName(got));
  out.resize(got);
  return out;
}

Result<Bytes> LoadTrace(const std::string& folder, const std::string& name,
                        const std::string& base_name) {
  Bytes base;
  for (const std::string& one : {base_name, name}) {
    auto packed = ReadFile(folder + "/" + one + ".zst");
    if (!packed) return packed;
    auto parts = Decompress(*packed, base);
    if (!parts || one == name) return parts ? PutTogether(*parts) : parts;
    base = std::move(*parts);
  }
  return base;
}

Result<void> StoreTrace(const std::string& folder, const std::string& name, const Bytes& trace,
                        const std::string& base_name) {
  Bytes base;
  if (name != base_name) {
    const auto boot = LoadTrace(folder, base_name, base_name);
    if (!boot) return tl::unexpected<Error>(boot.error());
    base = TakeApart(*boot);
  }
  const auto packed = Compress(TakeApart(trace), base);
  if (!packed) return tl::unexpected<Error>(packed.error());
  return WriteFile(folder + "/" + name + ".zst", *packed);
}

Result<Bytes> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(Error::Code::kIo, "cannot read " + path);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

Result<void> WriteFile(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.good()) return Fail(Error::Code::kIo, "cannot write " + path);
  return {};
}

}  // namespace tg::zoo
