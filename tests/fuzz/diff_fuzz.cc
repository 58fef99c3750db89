// Two traces against each other, both ways, and one against itself.
//
// Input: options u8 | edits, each packet u16, what u8, byte u8, place u16 | packets (traces.h).
// The first trace is the packets, the second the packets edited. Options: bit 0 strict, bits 1-2
// which events count, bits 3-6 number of edits, bit 7 the second is cut at the first edit instead.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "decoder/diff/diff.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/traces.h"

namespace tg::diff {
namespace {

struct Edit {
  uint16_t packet = 0;
  uint8_t what = 0;
  uint8_t byte = 0;
  uint16_t place = 0;
};

void Apply(const Edit& edit, fuzz::Packets& packets) {
  if (packets.empty()) return;
  const size_t i = edit.packet % packets.size();
  const auto at = packets.begin() + static_cast<std::ptrdiff_t>(i);
  switch (edit.what % 6) {
    case 0:
      packets.erase(at);
      break;
    case 1: {
      const std::vector<uint8_t> twice = *at;
      packets.insert(at, twice);
      break;
    }
    case 2:
      std::swap(packets[i], packets[(i + 1) % packets.size()]);
      break;
    case 3:
      if (!at->empty()) (*at)[edit.place % at->size()] = edit.byte;
      break;
    case 4: {  // a stretch is missing
      const size_t size = std::min<size_t>(edit.byte, packets.size() - i);
      packets.erase(at, at + static_cast<std::ptrdiff_t>(size));
      break;
    }
    default: {  // a stretch comes again somewhere else
      const size_t size = std::min<size_t>(edit.byte, packets.size() - i);
      const fuzz::Packets some(at, at + static_cast<std::ptrdiff_t>(size));
      packets.insert(packets.begin() + static_cast<std::ptrdiff_t>(edit.place % packets.size()),
                     some.begin(), some.end());
    }
  }
}

void CheckResult(const DiffResult& result) {
  FUZZ_CHECK(result.differences.size() == std::min<uint64_t>(result.total, DiffResult::kKept));
  FUZZ_CHECK(result.exit_code() == (result.total > 0 ? 1 : result.cut ? 4 : 0));
  FUZZ_CHECK(nlohmann::json::accept(DiffJson(result)));
  fuzz::CheckPlainText(DiffText(result, {false, false, 100}));
  fuzz::CheckPlainText(DiffText(result, {true, false, 60}));
  uint64_t a = 0, b = 0;
  for (const Difference& d : result.differences) {
    FUZZ_CHECK(d.kind != Difference::Kind::kGap);
    FUZZ_CHECK(d.count_a + d.count_b > 0);
    FUZZ_CHECK(d.at_a >= a && d.at_b >= b);
    a = d.at_a + d.count_a;
    b = d.at_b + d.count_b;
    FUZZ_CHECK(a <= result.a.events && b <= result.b.events);
    FUZZ_CHECK(d.a.size() <= Difference::kKept && d.b.size() <= Difference::kKept);
    FUZZ_CHECK(d.before_a.size() <= kContext && d.before_b.size() <= kContext);
  }
}

void Try(const std::vector<uint8_t>& first, const std::vector<uint8_t>& second,
         const DiffOptions& options) {
  static const fuzz::ScratchFile a("a.pb"), b("b.pb");
  a.Write(first);
  b.Write(second);
  const auto there = Diff(a.path(), b.path(), options);
  const auto back = Diff(b.path(), a.path(), options);
  FUZZ_CHECK(there.has_value() == back.has_value());
  if (!there) {
    FUZZ_CHECK(!there.error().message.empty() && !back.error().message.empty());
    return;
  }
  CheckResult(*there);
  CheckResult(*back);
  FUZZ_CHECK(there->total == back->total);
  FUZZ_CHECK(there->exit_code() == back->exit_code());
  const auto itself = Diff(a.path(), a.path(), options);
  FUZZ_CHECK(itself && itself->equal());
}

}  // namespace
}  // namespace tg::diff

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tg::diff;
  tg::fuzz::Input in(data, size);
  const auto options = in.Take<uint8_t>();
  std::vector<Edit> edits(options >> 3 & 15);
  for (Edit& edit : edits) {
    edit.packet = in.Take<uint16_t>();
    edit.what = in.Take<uint8_t>();
    edit.byte = in.Take<uint8_t>();
    edit.place = in.Take<uint16_t>();
  }
  DiffOptions diff;
  diff.strict = (options & 1) != 0;
  switch (options >> 1 & 3) {
    case 1:
      diff.filter.only = {"*RB_*", "doorbell", "bar0"};
      break;
    case 2:
      diff.filter.ignore = {"SDMA? COPY_*", "CFG_*", "queues"};
      break;
    case 3:
      diff.filter.only = {"MMIO_WRITE"};
      diff.filter.ignore = {"SCRATCH_REG?"};
      break;
    default:
      break;
  }
  const tg::fuzz::Packets packets = tg::fuzz::TakePackets(in);
  tg::fuzz::Packets other = packets;
  if ((options & 128) != 0 && !edits.empty() && !packets.empty())
    other.resize(edits.front().packet % packets.size());
  else
    for (const Edit& edit : edits) Apply(edit, other);
  Try(tg::fuzz::Sealed(packets), tg::fuzz::Sealed(other), diff);
  return 0;
}
