#include "replay/sim/register_file.h"

#include <algorithm>

namespace tg::sim {

struct Register::Slot {
  uint32_t value = 0;
  uint32_t reset = 0;
  bool modelled = false;  // has a reset value someone vouches for, or a behaviour
  bool written = false;
  bool engine_safe = false;
  RegisterFile::ReadHook read;
  RegisterFile::WriteHook write;
};

uint32_t Register::value() const {
  return slot_ ? slot_->value : 0;
}

void Register::Set(uint32_t value) {
  if (slot_) slot_->value = value;
}

void Register::Reset() {
  if (slot_) slot_->value = slot_->reset;
}

uint32_t Register::Field(std::string_view name) const {
  if (!slot_ || !def_) return 0;
  return static_cast<uint32_t>(amd::GetField(*def_, name, slot_->value).value_or(0));
}

void Register::SetField(std::string_view name, uint32_t value) {
  if (slot_ && def_)
    slot_->value = static_cast<uint32_t>(amd::SetField(*def_, name, value, slot_->value));
}

RegisterFile::RegisterFile(std::span<const amd::IpBlock> ips) : map_(ips) {}
RegisterFile::~RegisterFile() = default;

Register::Slot* RegisterFile::Find(uint64_t dword) {
  const auto found = slots_.find(dword);
  return found == slots_.end() ? nullptr : found->second.get();
}

Register::Slot* RegisterFile::Make(uint64_t dword) {
  auto& slot = slots_[dword];
  if (!slot) slot = std::make_unique<Register::Slot>();
  return slot.get();
}

RegisterFile::Unknown* RegisterFile::CountUnknown(uint64_t dword) {
  const auto found = unknown_.find(dword);
  if (found != unknown_.end()) return &found->second;
  if (unknown_.size() >= kMaxGaps) {
    overflow_++;
    return nullptr;
  }
  return &unknown_[dword];
}

uint32_t RegisterFile::Read(uint64_t dword) {
  Register::Slot* slot = Find(dword);
  if (slot && slot->read) return slot->read(slot->value);
  if (slot && (slot->modelled || slot->written)) return slot->value;
  if (Unknown* gap = CountUnknown(dword)) gap->reads++;
  return 0;
}

Register::Slot* RegisterFile::Store(uint64_t dword, uint32_t value) {
  Register::Slot* slot = Find(dword);
  if (!slot) {
    // Only what has a name is kept: the tables bound the number of slots.
    if (!map_.Lookup(dword * 4)) {
      if (Unknown* gap = CountUnknown(dword)) gap->writes++;
      return nullptr;
    }
    slot = Make(dword);
  }
  slot->value = value;
  slot->written = true;
  return slot;
}

void RegisterFile::Write(uint64_t dword, uint32_t value) {
  const Register::Slot* slot = Store(dword, value);
  if (slot && slot->write) slot->write(value);
}

uint32_t RegisterFile::EngineRead(uint64_t dword) {
  const Register::Slot* slot = Find(dword);
  return slot ? slot->value : Read(dword);
}

void RegisterFile::EngineWrite(uint64_t dword, uint32_t value) {
  const Register::Slot* slot = Store(dword, value);
  if (slot && slot->write && slot->engine_safe) slot->write(value);
}

void RegisterFile::SafeForEngines(Register reg) {
  if (reg) reg.slot_->engine_safe = true;
}

Register RegisterFile::DefineAt(uint32_t dword, uint32_t reset) {
  Register reg;
  reg.slot_ = Make(dword);
  reg.dword_ = dword;
  reg.slot_->modelled = true;
  reg.slot_->value = reg.slot_->reset = reset;
  return reg;
}

Register RegisterFile::Define(std::string_view name, uint32_t reset) {
  const auto byte = map_.Find(name);
  if (!byte) {
    missing_.emplace_back(name);
    return {};
  }
  Register reg = DefineAt(static_cast<uint32_t>(*byte / 4), reset);
  reg.def_ = map_.FindDef(name);
  return reg;
}

void RegisterFile::OnRead(Register reg, ReadHook hook) {
  if (reg) reg.slot_->read = std::move(hook);
}

void RegisterFile::OnWrite(Register reg, WriteHook hook) {
  if (reg) reg.slot_->write = std::move(hook);
}

void RegisterFile::Reset() {
  for (auto& [dword, slot] : slots_) {
    slot->value = slot->reset;
    slot->written = false;
  }
}

std::vector<RegisterFile::Gap> RegisterFile::Gaps() const {
  std::vector<Gap> gaps;
  for (const auto& [dword, unknown] : unknown_)
    gaps.push_back({dword, std::string(NameAt(dword)), unknown.reads, unknown.writes});
  std::sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) { return a.dword < b.dword; });
  return gaps;
}

}  // namespace tg::sim
