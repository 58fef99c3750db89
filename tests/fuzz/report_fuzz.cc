// Everything that rpcdecode says of one trace: report with its verdict, sections, log, export.
//
// Input: options u8 | packets (traces.h), or with bit 0 of the options a file as it is. Bits 1-2:
// report, sections, log, log and export unfolded.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "decoder/export/chrome.h"
#include "decoder/report/analysis.h"
#include "decoder/report/bars_section.h"
#include "decoder/report/boot_section.h"
#include "decoder/report/copies_section.h"
#include "decoder/report/discovery_section.h"
#include "decoder/report/feed.h"
#include "decoder/report/log.h"
#include "decoder/report/regs_section.h"
#include "decoder/report/report.h"
#include "decoder/report/rings_section.h"
#include "decoder/report/vm_section.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/traces.h"

namespace tg::report {
namespace {

using Bytes = std::vector<uint8_t>;

std::unique_ptr<trace::TraceReader> Open(const Bytes& file) {
  auto reader = trace::TraceReader::FromBytes(file);
  if (reader) return std::move(*reader);
  FUZZ_CHECK(!reader.error().message.empty());
  return nullptr;
}

template <typename Print>
std::string TextOf(const Print& print) {
  Output out(nullptr);
  print(out);
  fuzz::CheckPlainText(out.text());
  return out.text();
}

void WholeReport(const Bytes& file) {
  const auto reader = Open(file);
  if (!reader) return;
  const auto analysis = Analyse(*reader, "a.pb");
  if (!AnythingRead(analysis->file)) return;
  const Report report(*analysis);
  FUZZ_CHECK(nlohmann::json::accept(report.ToJson()));
  const std::string text = TextOf([&](Output& out) { report.ToText(out); });
  FUZZ_CHECK(!text.empty());
  const Json& verdict = report.document()["verdict"];
  FUZZ_CHECK(!verdict["kind"].get_ref<const std::string&>().empty());
  FUZZ_CHECK(!verdict["summary"].get_ref<const std::string&>().empty());
  const int code = report.exit_code();
  FUZZ_CHECK(code == 0 || code == 1 || code == 4);
  FUZZ_CHECK(code != 0 || analysis->file.whole());
  // The evidence names records that there are.
  for (const Json& one : verdict["evidence"])
    FUZZ_CHECK(one["seq"].is_null() ||
               one["seq"].get<uint64_t>() <= analysis->session().session().last_seq);
}

void Sections(const Bytes& file) {
  const auto reader = Open(file);
  if (!reader) return;
  model::Device device;
  model::SessionModel session;
  FeedUpTo(*reader, UINT64_MAX, [&](const trace::Record& record) {
    session.Add(record);
    device.Feed(record);
  });
  const auto print = [](const Json& json, auto text) {
    FUZZ_CHECK(nlohmann::json::accept(Dump(json, false)));
    TextOf([&](Output& out) { text(json, out); });
  };
  print(BarsSectionJson(device, session.session().link), BarsSectionText);
  RegsOptions regs;
  regs.history = true;
  print(RegsJson(device, regs), RegsText);
  print(DiscoverySectionJson(device),
        [](const Json& json, Output& out) { DiscoverySectionText(json, out, true); });
  print(BootSectionJson(device),
        [](const Json& json, Output& out) { BootSectionText(json, out, true); });
  const Json map = VmMapJson(device, 1000);
  print(map, VmMapText);
  for (const Json& mapping : map["mappings"])
    print(VmWalkJson(device, mapping["va"].get<uint64_t>()), VmWalkText);
  for (const bool json : {false, true}) {
    RingsOptions rings;
    rings.json = json;
    rings.before = 4;
    const auto again = Open(file), once_more = Open(file);
    TextOf([&](Output& out) { FUZZ_CHECK(PrintRings(*again, rings, out)); });
    TextOf([&](Output& out) { FUZZ_CHECK(PrintCopies(*once_more, json, out)); });
  }
}

void Log(const Bytes& file, bool raw) {
  for (const bool json : {false, true}) {
    const auto reader = Open(file);
    if (!reader) return;
    LogOptions options;
    options.raw = raw;
    options.json = json;
    const std::string text = TextOf([&](Output& out) { PrintLog(*reader, options, out); });
    if (!json) continue;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      FUZZ_CHECK(end != std::string::npos);
      FUZZ_CHECK(nlohmann::json::accept(text.substr(at, end - at)));
      at = end + 1;
    }
  }
}

void Export(const Bytes& file, bool raw) {
  const auto reader = Open(file);
  if (!reader) return;
  FUZZ_CHECK(nlohmann::json::accept(TextOf([&](Output& out) { ExportChrome(*reader, raw, out); })));
}

}  // namespace
}  // namespace tg::report

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tg::report;
  tg::fuzz::Input in(data, size);
  const auto options = in.Take<uint8_t>();
  Bytes file;
  if (options & 1) {
    const auto rest = in.Rest();
    file.assign(rest.begin(), rest.end());
  } else {
    file = tg::fuzz::Sealed(tg::fuzz::TakePackets(in));
  }
  switch (options >> 1 & 3) {
    case 0:
      WholeReport(file);
      break;
    case 1:
      Sections(file);
      break;
    case 2:
      Log(file, false);
      break;
    default:
      Log(file, true);
      Export(file, (options & 8) != 0);
  }
  return 0;
}
