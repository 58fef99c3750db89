#include "decoder/report/annotate.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <unordered_map>

#include "decoder/model/queue_device.h"
#include "decoder/model/words.h"
#include "schemas/amd/discovery.h"
#include "schemas/amd/doorbell.h"
#include "schemas/amd/pte.h"
#include "schemas/amd/smu.h"
#include "schemas/amd/vram_layout.h"
#include "schemas/wire/bytes.h"

namespace tg::report {
namespace {

constexpr size_t kMaxRemembered = 8192;  // calls
constexpr size_t kMaxTables = 1u << 20;
constexpr size_t kMaxParts = 4;  // registers named for one call

struct About {
  std::string name;  // of the first register
  std::string text;
  size_t parts = 0;
};

// Which page table lies where, from the entries that point at it.
struct Table {
  int level = 0;
  uint64_t va = 0;
};

}  // namespace

class Annotator::Impl : public model::Observer {
 public:
  Impl() : queues_(device_) { device_.AddObserver(this); }

  void Feed(const trace::Record& record) {
    device_.Feed(record);
    while (remembered_.size() > kMaxRemembered) remembered_.erase(remembered_.begin());
  }
  void Describe(model::Call& call) const;

  void OnRegister(const model::RegisterAccess& access) override;
  void OnMemory(const model::MemoryAccess& access) override;
  void OnDoorbell(const model::DoorbellWrite& doorbell) override;

 private:
  void Say(uint64_t call, std::string_view name, std::string text);
  std::string Mailbox(const model::RegisterAccess& access) const;
  std::string PageEntry(const model::MemoryAccess& access);
  std::string VramText(const model::MemoryAccess& access);

  model::Device device_;
  model::DeviceQueues queues_;  // an observer, too: told before this one
  std::map<uint64_t, About> remembered_;
  std::unordered_map<uint64_t, Table> tables_;
};

void Annotator::Impl::Say(uint64_t call, std::string_view name, std::string text) {
  About& about = remembered_[call];
  // Behind a window: the call's register is the data register, its target what counts.
  if (about.name.empty() || text.starts_with("-> ")) about.name = name;
  if (++about.parts > kMaxParts) return;
  if (!about.text.empty()) about.text += about.parts > kMaxParts - 1 ? ", ..." : ", ";
  if (about.parts < kMaxParts) about.text += text;
}

// What a mailbox register's value asks for or answers.
std::string Annotator::Impl::Mailbox(const model::RegisterAccess& access) const {
  using model::Role;
  const auto same = [&](model::Stamp sent) { return sent.call == access.at.call; };
  switch (access.reg->role) {
    case Role::kSmuMessage:
    case Role::kSmuDebugMessage: {
      const model::SmuExchange* e = device_.smu().exchanges().newest();
      if (!access.write || !e || !same(e->sent)) return {};
      return fmt::format("SMU {}({})", e->name,
                         e->argument_text.empty() ? model::Hex(e->argument) : e->argument_text);
    }
    case Role::kSmuResponse:
    case Role::kSmuDebugResponse:
      return access.write || access.value == amd::kSmuNoAnswer
                 ? std::string()
                 : "SMU " + amd::SmuResponseText(access.value);
    case Role::kPspBootloader:
    case Role::kPspRingControl:
    case Role::kPspWptr: {
      const model::PspExchange* e = device_.psp().exchanges().newest();
      return access.write && e && same(e->sent) ? "PSP " + e->text : std::string();
    }
    default:
      return {};
  }
}

void Annotator::Impl::OnRegister(const model::RegisterAccess& access) {
  const model::RegisterState& reg = *access.reg;
  if (!reg.named()) return;
  std::string text = access.via == model::Via::kDirect ? std::string() : std::string("-> ");
  text += reg.name();
  if (reg.hit && reg.hit.instance != 0) text += fmt::format("[{}]", reg.hit.instance);
  if (reg.die != 0) text += fmt::format(" die {}", reg.die);
  std::string meaning = Mailbox(access);
  if (meaning.empty() && reg.hit) meaning = amd::DescribeFields(*reg.hit.reg, access.value);
  if (!meaning.empty()) text += ": " + meaning;
  Say(access.at.call, reg.name(), std::move(text));
}

// An 8-byte write to a place that an entry seen before points at as a table.
std::string Annotator::Impl::PageEntry(const model::MemoryAccess& access) {
  const model::Gpuvm& vm = device_.gpuvm();
  const uint64_t table = access.offset & ~(amd::kPageTableSize - 1);
  if (tables_.empty() || table == vm.root()) tables_[vm.root()] = {0, vm.va_base()};
  const auto found = tables_.find(table);
  if (found == tables_.end()) return {};
  const Table here = found->second;
  const auto index = static_cast<uint32_t>((access.offset - table) / 8);
  const uint64_t va = here.va + index * amd::LevelCover(here.level);
  const amd::Pte pte =
      amd::DecodePte(vm.format(), here.level, LoadLe<uint64_t>(access.data.data()));
  const std::string entry =
      fmt::format("{}[{}] VA {}", amd::LevelName(here.level), index, model::Hex(va));
  if (!pte.valid) return entry + (access.write ? " -> nothing" : " not mapped");
  if (!pte.leaf) {
    const uint64_t next = pte.address - vm.xgmi_base();
    if (!pte.system && here.level + 1 < amd::kPageLevels && tables_.size() < kMaxTables)
      tables_[next] = {here.level + 1, va};
    return fmt::format("{} -> {} at VRAM {}", entry, amd::LevelName(here.level + 1),
                       model::Hex(next));
  }
  return fmt::format("{} -> {}, {}", entry, vm.Describe(va), amd::DescribePte(vm.format(), pte));
}

std::string Annotator::Impl::VramText(const model::MemoryAccess& access) {
  if (access.size == 8 && access.data.size() == 8 && access.offset % 8 == 0) {
    if (std::string entry = PageEntry(access); !entry.empty()) return entry;
  }
  const auto vram = device_.vram_size();
  if (vram && *vram > amd::kDiscoveryFromEnd && access.offset >= *vram - amd::kDiscoveryFromEnd)
    return "IP discovery table";
  const amd::Discovery* discovery = device_.discovery();
  return amd::VramPlaceName(access.offset, discovery ? discovery->LiveInstances(amd::kHwGc) : 1);
}

void Annotator::Impl::OnMemory(const model::MemoryAccess& access) {
  if (access.snapshot || access.space != model::Space::kVram) return;
  if (device_.vendor() != model::Vendor::kAmd) return;
  std::string text = VramText(access);
  if (access.via != model::Via::kDirect)
    text = fmt::format("-> VRAM {}{}{}", model::Hex(access.offset), text.empty() ? "" : " ", text);
  if (!text.empty()) Say(access.at.call, {}, std::move(text));
}

void Annotator::Impl::OnDoorbell(const model::DoorbellWrite& doorbell) {
  const auto index = queues_.queues().FindByDoorbell(doorbell.offset);
  const bool amd = device_.vendor() == model::Vendor::kAmd;
  std::string text;
  if (index) {
    const model::Queue& queue = queues_.queues().queues()[*index];
    text = queue.name + " doorbell";
    const bool packets = queue.format.format == amd::RingFormat::kAql;
    const auto at = queue.RingOffset(queue.ToBytes(doorbell.value + (packets ? 1 : 0)));
    if (at) text += fmt::format(", ring up to {}", model::Hex(*at));
    if (!queue.submissions.empty() && queue.submissions.back().doorbell_call == doorbell.at.call) {
      const model::Submission& s = queue.submissions.back();
      if (s.begin && s.end >= *s.begin)
        text += fmt::format(", {} more", model::Bytes(s.end - *s.begin));
    }
  } else if (amd && doorbell.offset % 8 == 0 && doorbell.offset / 8 <= UINT32_MAX) {
    text = "doorbell of " + amd::DoorbellName(static_cast<uint32_t>(doorbell.offset / 8));
  }
  if (!text.empty()) Say(doorbell.at.call, {}, std::move(text));
}

void Annotator::Impl::Describe(model::Call& call) const {
  if (call.late) return;
  const auto set = [&call](const About& about) {
    if (!call.extra) call.extra = std::make_unique<model::Call::Extra>();
    call.extra->name = about.name;
    call.extra->about = about.text;
  };
  if (const auto found = remembered_.find(call.seq); found != remembered_.end()) {
    set(found->second);
    return;
  }
  const auto command = static_cast<wire::Command>(call.header.command);
  if (command == wire::Command::kCfgRead || command == wire::Command::kCfgWrite) {
    if (call.header.arg0 == 4 && call.header.arg1 == 2) {
      const uint64_t value =
          command == wire::Command::kCfgWrite ? call.header.arg2 : call.reply.resp0;
      std::string text = "PCI COMMAND";
      if (command == wire::Command::kCfgWrite || call.answered)
        text += fmt::format(": memory {}, bus master {}", value & 2 ? "on" : "off",
                            value & 4 ? "on" : "off");
      set({"PCI COMMAND", text, 1});
    }
    return;
  }
  // No answer came (or long ago): the name alone.
  if (command != wire::Command::kMmioRead && command != wire::Command::kMmioWrite) return;
  if (call.header.bar != 5 || device_.vendor() != model::Vendor::kAmd) return;
  const amd::RegisterHit hit = device_.registers().map().Lookup(call.header.arg0);
  if (hit) set({std::string(hit.name()), std::string(hit.name()), 1});
}

Annotator::Annotator() : impl_(std::make_unique<Impl>()) {}
Annotator::~Annotator() = default;
void Annotator::Feed(const trace::Record& record) {
  impl_->Feed(record);
}
void Annotator::Describe(model::Call& call) const {
  impl_->Describe(call);
}

}  // namespace tg::report
