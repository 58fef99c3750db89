// The trace reader over arbitrary files.
//
//   first byte even: the rest is a file
//   first byte odd:  the rest is packets, u16 size then message, which get checksums that hold, so
//                    that the parsers behind the checksum are reached
#include <string_view>
#include <vector>

#include "schemas/trace/reader.h"
#include "schemas/trace/trace.pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/traces.h"

namespace {

using namespace tg;
using namespace tg::trace;
using Bytes = std::vector<uint8_t>;

// Reads every byte that a view shows: a sanitizer sees those that are not there.
uint64_t Touch(std::span<const uint8_t> bytes) {
  uint64_t sum = 0;
  for (const uint8_t b : bytes) sum += b;
  return sum;
}
uint64_t Touch(std::string_view text) {
  return Touch({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}
uint64_t Touch(const BodyView& body) {
  FUZZ_CHECK(body.data.size() <= body.size);
  return Touch(body.data);
}
uint64_t Touch(const RequestView& r) {
  return Touch(r.payload) + Touch(r.injected) + Touch(r.refused);
}
uint64_t Touch(const ReplyView& r) {
  return Touch(r.body) + Touch(r.injected);
}

uint64_t Touch(const Record& r) {
  switch (r.kind) {
    case Record::Kind::kRequest:
      return Touch(r.request);
    case Record::Kind::kReply:
      return Touch(r.reply);
    case Record::Kind::kRepeat: {
      FUZZ_CHECK(!r.pattern.empty() && r.pattern.size() <= 8);
      uint64_t sum = 0;
      for (const RepeatedCall& c : r.pattern) {
        sum += Touch(c.request);
        if (c.reply) sum += Touch(*c.reply);
      }
      return sum;
    }
    case Record::Kind::kPacket:
      FUZZ_CHECK(r.packet != nullptr);
      return r.packet->ByteSizeLong();
  }
  FUZZ_CHECK(false);
  return 0;
}

Bytes File(fuzz::Input& input) {
  if (input.Take<uint8_t>() % 2 == 0) {
    const auto rest = input.Rest();
    return {rest.begin(), rest.end()};
  }
  return fuzz::Sealed(fuzz::TakePackets(input));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const Bytes file = File(input);
  uint64_t sums[2] = {};
  for (uint64_t& sum : sums) {
    auto reader = TraceReader::FromBytes(file);
    if (!reader) {
      FUZZ_CHECK(!reader.error().message.empty());
      return 0;
    }
    Record record;
    uint64_t at = 0, records = 0;
    while ((*reader)->Next(record)) {
      FUZZ_CHECK(record.offset >= at && record.offset < file.size());
      at = record.offset;
      sum = sum * 31 + Touch(record) + record.call + record.time_ns;
      records++;
    }
    FUZZ_CHECK((*reader)->end_state() != EndState::kOpen);
    FUZZ_CHECK((*reader)->good_end() <= file.size());
    FUZZ_CHECK((*reader)->offset() <= file.size());
    FUZZ_CHECK((*reader)->packets() <= records && records <= 2 * (*reader)->packets());
    uint64_t end = 0;
    for (const SkippedRange& range : (*reader)->skipped()) {
      FUZZ_CHECK(range.offset >= end && range.size > 0 && range.offset + range.size <= file.size());
      FUZZ_CHECK(range.offset >= (*reader)->good_end());
      end = range.offset + range.size;
    }
    FUZZ_CHECK(!(*reader)->Next(record));
  }
  FUZZ_CHECK(sums[0] == sums[1]);
  return 0;
}
