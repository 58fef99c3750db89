// rpcdecode's commands about a file itself: info, check, repair. What repair writes is whole, and
// has what the original has up to the first damage.
//
// Input: options u8 | packets (traces.h), or with bit 0 of the options a file as it is. Bits 4-7:
// places that are damaged, each u8, of the last 256 bytes.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "decoder/report/files.h"
#include "schemas/trace/reader.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/traces.h"

namespace tg::report {
namespace {

// Records of a file before an offset, by place and number.
std::vector<uint64_t> Before(std::vector<uint8_t> file, uint64_t end) {
  auto reader = trace::TraceReader::FromBytes(std::move(file));
  FUZZ_CHECK(reader);
  std::vector<uint64_t> records;
  trace::Record record;
  while ((*reader)->Next(record) && record.offset < end) {
    records.push_back(record.offset);
    records.push_back(record.call);
    records.push_back(record.time_ns);
  }
  return records;
}

void Try(const std::vector<uint8_t>& bytes) {
  static const fuzz::ScratchFile from("from.pb"), to("to.pb");
  from.Write(bytes);
  int code = -1;
  for (const bool json : {false, true}) {
    Output info(nullptr), check(nullptr);
    const auto told = PrintInfo(from.path(), json, info);
    const auto checked = CheckTrace(from.path(), json, check);
    FUZZ_CHECK(told.has_value() == checked.has_value());
    if (!told) {
      FUZZ_CHECK(!told.error().message.empty());
      continue;
    }
    FUZZ_CHECK(*told == *checked && (*told == 0 || *told == 4));
    FUZZ_CHECK(code == -1 || code == *told);
    code = *told;
    fuzz::CheckPlainText(info.text());
    fuzz::CheckPlainText(check.text());
    if (json)
      FUZZ_CHECK(nlohmann::json::accept(info.text()) && nlohmann::json::accept(check.text()));
  }
  Output out(nullptr);
  const auto repaired = RepairTrace(from.path(), to.path(), true, out);
  if (!repaired) {
    FUZZ_CHECK(!repaired.error().message.empty());
    return;
  }
  fuzz::CheckPlainText(out.text());
  FUZZ_CHECK(code == 0 || code == 4);
  FUZZ_CHECK(*repaired == 0 || code == 4);
  Output check(nullptr);
  const auto whole = CheckTrace(to.path(), false, check);
  FUZZ_CHECK(whole && *whole == 0);
  auto original = trace::TraceReader::FromBytes(bytes);
  FUZZ_CHECK(original);
  trace::Record record;
  while ((*original)->Next(record)) continue;
  const uint64_t end = (*original)->good_end();
  FUZZ_CHECK(Before(bytes, end) == Before(to.Read(), end));
  FUZZ_CHECK(from.Read() == bytes);
}

}  // namespace
}  // namespace tg::report

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tg::fuzz::Input in(data, size);
  const auto options = in.Take<uint8_t>();
  std::vector<uint8_t> places;
  for (int i = options >> 4; i > 0; i--) places.push_back(in.Take<uint8_t>());
  std::vector<uint8_t> file;
  if (options & 1) {
    const auto rest = in.Rest();
    file.assign(rest.begin(), rest.end());
  } else {
    file = tg::fuzz::Sealed(tg::fuzz::TakePackets(in));
  }
  for (const uint8_t place : places)
    if (place < file.size()) file[file.size() - 1 - place] ^= static_cast<uint8_t>(place | 1);
  tg::report::Try(file);
  return 0;
}
