#include "decoder/report/vm_section.h"

#include <cerrno>
#include <cstdlib>
#include <map>
#include <vector>

#include "decoder/report/feed.h"
#include "decoder/report/section_json.h"
#include "schemas/amd/pte.h"
#include "schemas/amd/vram_layout.h"

namespace tg::report {
namespace {

using model::Bytes;
using model::Hex;
using model::VaTarget;

Json TargetJson(const model::Device& device, const VaTarget& target) {
  constexpr const char* kKinds[] = {nullptr, "vram", "sysmem", "foreign"};
  if (target.kind == VaTarget::Kind::kNone) return nullptr;
  Json j;
  j["kind"] = kKinds[static_cast<int>(target.kind)];
  j["address"] = target.address;
  const bool sysmem = target.kind == VaTarget::Kind::kSysmem;
  j["region"] = sysmem ? Json(target.region) : Json(nullptr);
  j["region_offset"] = sysmem ? Json(target.region_offset) : Json(nullptr);
  j["contiguous"] = target.contiguous;
  std::string place;
  if (target.kind == VaTarget::Kind::kVram) {
    const unsigned xccs = device.discovery() ? device.discovery()->LiveInstances(amd::kHwGc) : 1;
    place = amd::VramPlaceName(target.address, xccs);
  }
  j["place"] = TextOrNull(place);
  return j;
}

std::string TargetText(const Json& target) {
  if (target.is_null()) return "nowhere";
  const std::string address = HexText(target["address"]);
  if (target["kind"] == "sysmem") {
    return fmt::format("sysmem {} + {} (DMA {})", target["region"].get<uint32_t>(),
                       HexText(target["region_offset"]), address);
  }
  if (target["kind"] == "foreign") return fmt::format("DMA {} (no region of this trace)", address);
  std::string text = "VRAM " + address;
  if (target.contains("place") && !target["place"].is_null()) {
    text += " (" + SectionText(target["place"]) + ")";
  }
  return text;
}

std::string EntryText(amd::PteFormat format, int level, uint64_t raw) {
  if (raw == ~0ull) return "all ones: no entry, a read that did not reach the card?";
  return raw == 0 ? "empty" : amd::DescribePte(format, amd::DecodePte(format, level, raw));
}

// The tables of other cards look different.
bool Decoded(const model::Device& device) {
  return device.vendor() != model::Vendor::kNvidia && device.vendor() != model::Vendor::kOther;
}
constexpr std::string_view kNotDecoded = "page tables of this card are not decoded (AMD only)";

std::string_view OriginName(model::Origin origin) {
  constexpr std::string_view kNames[] = {"not observed", "written by the client",
                                         "read by the client", "in a snapshot",
                                         "server's address table"};
  return kNames[static_cast<int>(origin)];
}

}  // namespace

Result<uint64_t> ParseAddress(const std::string& text) {
  errno = 0;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text.c_str(), &end, 0);
  if (text.empty() || text[0] == '-' || *end != '\0' || errno != 0) {
    return Fail(Error::Code::kUsage,
                fmt::format("'{}' is no address; write it as 0x200000000000", text));
  }
  return value;
}

Json VmMapJson(const model::Device& device, size_t limit) {
  const model::Gpuvm& vm = device.gpuvm();
  Json out;
  out["decoded"] = Decoded(device);
  out["format"] = Decoded(device) ? Json(amd::PteFormatName(vm.format())) : Json(nullptr);
  out["format_assumed"] = vm.format_assumed();
  out["root"] = vm.root();
  out["root_assumed"] = vm.root_assumed();
  out["va_start"] = vm.va_base();
  out["mc_base"] = OrNull(vm.mc_base());
  out["xgmi_base"] = vm.xgmi_base();
  const auto list = vm.Mappings(limit);
  out["tables"] = list.tables;
  out["unseen_tables"] = list.unseen_tables;
  out["truncated"] = list.truncated;
  out["circular"] = nullptr;
  if (list.circular > 0) {
    const auto cycle = vm.FindCycle();
    out["circular"] = {{"entries", list.circular}};
    out["circular"]["table"] = cycle ? Json(cycle->table) : Json(nullptr);
    out["circular"]["seq"] = cycle && cycle->call != 0 ? Json(cycle->call) : Json(nullptr);
  }
  uint64_t bytes = 0;
  out["mappings"] = Json::array();
  for (const model::Mapping& m : list.mappings) {
    bytes += m.size;
    Json j = TargetJson(device, m.target);
    j.erase("contiguous");
    Json row;
    row["va"] = m.va;
    row["size"] = m.size;
    for (const auto& [key, value] : j.items()) row[key] = value;
    row["page_size"] = amd::LevelCover(m.level);
    row["flags"] = m.flags;
    row["text"] = amd::DescribePte(vm.format(), amd::DecodePte(vm.format(), m.level, m.flags));
    row["entries"] = m.entries;
    row["first_seq"] = m.first_call == 0 ? Json(nullptr) : Json(m.first_call);
    row["last_seq"] = m.last_call == 0 ? Json(nullptr) : Json(m.last_call);
    out["mappings"].push_back(std::move(row));
  }
  out["mapped_bytes"] = bytes;
  return out;
}

void VmMapText(const Json& map, Output& out) {
  out.Heading("Address space");
  if (!map["decoded"].get<bool>()) {
    SectionRow(out, "format", kNotDecoded);
    return;
  }
  SectionRow(out, "format",
             SectionText(map["format"]) + (map["format_assumed"].get<bool>() ? " (assumed)" : ""));
  SectionRow(out, "root table",
             fmt::format("VRAM {}{}", HexText(map["root"]),
                         map["root_assumed"].get<bool>()
                             ? " (assumed: no CONTEXT0_PAGE_TABLE_BASE write seen)"
                             : ""));
  SectionRow(out, "mapped",
             fmt::format("{} in {} ranges, {} tables", Bytes(map["mapped_bytes"].get<uint64_t>()),
                         map["mappings"].size(), map["tables"].get<uint64_t>()));
  if (const uint64_t unseen = map["unseen_tables"].get<uint64_t>(); unseen > 0) {
    SectionRow(out, "", "entries of " + model::Count(unseen, "table") + " were not observed");
  }
  if (const Json& circular = map["circular"]; !circular.is_null()) {
    SectionRow(out, "circular",
               out.Paint(Style::kWarn,
                         fmt::format("{} point at a table above them, the first since {}: not "
                                     "followed",
                                     model::Thousands(circular["entries"].get<uint64_t>()),
                                     SeqText(circular["seq"]))));
  }
  for (const Json& m : map["mappings"]) {
    out.Line(fmt::format("  {} {:>10}  -> {}  {}  {} pages  #{}..#{}",
                         model::HexPadded(m["va"].get<uint64_t>(), 12),
                         Bytes(m["size"].get<uint64_t>()), TargetText(m), SectionText(m["text"]),
                         Bytes(m["page_size"].get<uint64_t>()),
                         m["first_seq"].is_null() ? 0 : m["first_seq"].get<uint64_t>(),
                         m["last_seq"].is_null() ? 0 : m["last_seq"].get<uint64_t>()));
  }
  if (map["truncated"].get<bool>()) {
    SectionRow(out, "cut", out.Paint(Style::kWarn, "the tables hold more than is listed"));
  }
}

Json VmWalkJson(const model::Device& device, uint64_t va) {
  const model::Gpuvm& vm = device.gpuvm();
  const model::Walk walk = Decoded(device) ? vm.WalkVa(va) : model::Walk();
  Json out;
  out["va"] = va;
  out["end"] = Decoded(device) ? model::WalkEndText(walk.end) : kNotDecoded;
  out["format"] = Decoded(device) ? Json(amd::PteFormatName(vm.format())) : Json(nullptr);
  out["root_assumed"] = vm.root_assumed();
  out["levels"] = Json::array();
  for (int i = 0; i < walk.depth; ++i) {
    const model::WalkStep& step = walk.steps[i];
    Json j;
    j["level"] = amd::LevelName(step.level);
    j["table"] = step.table;
    j["index"] = step.index;
    j["entry"] = step.observed ? Json(step.raw) : Json(nullptr);
    j["text"] = step.observed ? Json(EntryText(vm.format(), step.level, step.raw)) : Json(nullptr);
    j["seq"] = step.by.call == 0 ? Json(nullptr) : Json(step.by.call);
    j["origin"] = OriginName(step.by.origin);
    out["levels"].push_back(std::move(j));
  }
  out["target"] = TargetJson(device, walk.target);
  const auto word = Decoded(device) ? vm.U64(va) : std::nullopt;
  out["u64"] = OrNull(word);
  return out;
}

namespace {

// Notes every write to some 8-byte entries in VRAM.
class EntryWrites : public model::Observer {
 public:
  struct Write {
    model::Stamp at;
    uint64_t offset = 0, size = 0;  // of the whole write
    std::optional<uint64_t> entry;  // nothing: the trace does not have these bytes
  };
  struct History {
    std::vector<Write> writes;
    uint64_t total = 0;
  };
  explicit EntryWrites(const model::Device& device) : device_(device) {}
  void Watch(uint64_t address) { entries_[address]; }
  const History& Of(uint64_t address) const { return entries_.at(address); }

  void OnMemory(const model::MemoryAccess& access) override {
    if (!access.write || access.space != model::Space::kVram || access.size == 0) return;
    const uint64_t last = model::SaturatingAdd(access.offset, access.size - 1);
    // An entry that begins up to 7 bytes before the write is touched by it, too.
    const uint64_t from = access.offset < 7 ? 0 : access.offset - 7;
    for (auto it = entries_.lower_bound(from); it != entries_.end() && it->first <= last; ++it) {
      Write write{access.at, access.offset, access.size, device_.vram().U64(it->first)};
      History& history = it->second;
      ++history.total;
      if (history.writes.size() == kMaxEntryWrites)
        history.writes.erase(history.writes.begin() + kMaxEntryWrites / 2);
      history.writes.push_back(write);
    }
  }

 private:
  const model::Device& device_;
  std::map<uint64_t, History> entries_;
};

Json WritesJson(const EntryWrites::History& history, amd::PteFormat format, int level) {
  Json out = Json::array();
  for (const EntryWrites::Write& write : history.writes) {
    Json j;
    j["seq"] = write.at.call;
    j["t_ns"] = write.at.time_ns;
    j["offset"] = write.offset;
    j["size"] = write.size;
    j["entry"] = OrNull(write.entry);
    j["text"] = write.entry ? Json(EntryText(format, level, *write.entry)) : Json(nullptr);
    out.push_back(std::move(j));
  }
  return out;
}

void WalkLevels(const Json& walk, Output& out) {
  for (const Json& level : walk["levels"]) {
    std::string line = fmt::format("  {}  table {} [{}]  ", SectionText(level["level"]),
                                   model::HexPadded(level["table"].get<uint64_t>(), 8),
                                   level["index"].get<uint32_t>());
    if (level["entry"].is_null()) {
      line += "not observed";
    } else {
      line += fmt::format("{}  {}  {} {}", HexText(level["entry"], 16), SectionText(level["text"]),
                          SectionText(level["origin"]), SeqText(level["seq"]));
    }
    out.Line(line);
    if (!level.contains("writes")) continue;
    const uint64_t total = level["writes_total"].get<uint64_t>();
    if (total == 0) out.Line("        no write to it in this trace");
    size_t index = 0;
    for (const Json& write : level["writes"]) {
      if (total > level["writes"].size() && index == kMaxEntryWrites / 2)
        out.Line(fmt::format("        ... {} more", total - level["writes"].size()));
      ++index;
      out.Line(fmt::format(
          "        {:<8} t={} s  {}  {}  by {} to VRAM {}", SeqText(write["seq"]),
          model::Seconds(write["t_ns"].get<uint64_t>()), HexText(write["entry"], 16),
          write["text"].is_null() ? std::string("not in the trace") : SectionText(write["text"]),
          "a write of " + Bytes(write["size"].get<uint64_t>()), HexText(write["offset"])));
    }
  }
}

void WalkEnd(const Json& walk, Output& out) {
  SectionRow(out, "result", SectionText(walk["end"]));
  if (walk["target"].is_null()) return;
  SectionRow(out, "leads to", TargetText(walk["target"]));
  SectionRow(out, "contiguous", Bytes(walk["target"]["contiguous"].get<uint64_t>()));
  SectionRow(
      out, "holds",
      walk["u64"].is_null() ? std::string("content not observed") : HexText(walk["u64"], 16));
}

}  // namespace

void VmWalkText(const Json& walk, Output& out) {
  out.Heading("Walk of " + HexText(walk["va"]));
  WalkLevels(walk, out);
  WalkEnd(walk, out);
}

Result<Json> VmWhoJson(const std::string& path, uint64_t va, uint64_t at) {
  Json out;
  {
    auto reader = trace::TraceReader::Open(path);
    if (!reader) return tl::unexpected(reader.error());
    model::Device device;
    FeedUpTo(**reader, device, at);
    out = VmWalkJson(device, va);
  }
  auto reader = trace::TraceReader::Open(path);
  if (!reader) return tl::unexpected(reader.error());
  model::Device device;
  EntryWrites writes(device);
  for (const Json& level : out["levels"])
    writes.Watch(level["table"].get<uint64_t>() + level["index"].get<uint64_t>() * 8);
  device.AddObserver(&writes);
  FeedUpTo(**reader, device, at);
  int number = 0;
  for (Json& level : out["levels"]) {
    const EntryWrites::History& history =
        writes.Of(level["table"].get<uint64_t>() + level["index"].get<uint64_t>() * 8);
    level["writes"] = WritesJson(history, device.gpuvm().format(), number++);
    level["writes_total"] = history.total;
  }
  return out;
}

void VmWhoText(const Json& who, Output& out) {
  out.Heading("Who mapped " + HexText(who["va"]));
  WalkLevels(who, out);
  WalkEnd(who, out);
}

}  // namespace tg::report
