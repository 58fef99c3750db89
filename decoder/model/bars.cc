#include "decoder/model/bars.h"

#include <algorithm>

namespace tg::model {
namespace {

constexpr size_t kMaxLog = 256;
constexpr uint16_t kPciBusMaster = 1u << 2;
constexpr uint32_t kPciCommand = 4;

}  // namespace

std::string_view AddressKindName(AddressKind kind) {
  switch (kind) {
    case AddressKind::kServerVirtual:
      return "server virtual address";
    case AddressKind::kPhysical:
      return "physical start";
    case AddressKind::kUnknown:
      break;
  }
  return "unknown kind";
}

const Bar* Bars::Find(uint32_t index) const {
  for (const Bar& bar : bars_) {
    if (bar.index == index) return &bar;
  }
  return nullptr;
}

Bar& Bars::Touch(uint32_t index) {
  for (Bar& bar : bars_) {
    if (bar.index == index) return bar;
  }
  Bar bar;
  bar.index = index;
  const auto place = std::upper_bound(bars_.begin(), bars_.end(), index,
                                      [](uint32_t i, const Bar& b) { return i < b.index; });
  return *bars_.insert(place, std::move(bar));
}

std::optional<uint32_t> Bars::Config(uint32_t offset, uint32_t size) const {
  if (config_.empty() || size == 0 || size > 4 || offset > kConfigSize - size) return std::nullopt;
  uint32_t value = 0;
  for (uint32_t i = 0; i < size; ++i) {
    if (!config_known_[offset + i]) return std::nullopt;
    value |= static_cast<uint32_t>(config_[offset + i]) << (8 * i);
  }
  return value;
}

std::optional<uint16_t> Bars::Word16(uint32_t offset) const {
  const auto value = Config(offset, 2);
  if (!value) return std::nullopt;
  return static_cast<uint16_t>(*value);
}

std::optional<Stamp> Bars::config_all_ones() const {
  return config_ones_;
}

Vendor Bars::vendor() const {
  const auto id = vendor_id();
  if (!id || *id == 0xffff) return Vendor::kUnknown;
  if (*id == 0x1002) return Vendor::kAmd;
  if (*id == 0x10de) return Vendor::kNvidia;
  return Vendor::kOther;
}

void Bars::OnConfig(const ConfigAccess& access, uint64_t times) {
  config_accesses_ += times;
  if (config_log_.size() < kMaxLog) config_log_.push_back(access);
  if (access.size == 0 || access.size > 4 || access.offset > kConfigSize - access.size) return;
  const uint32_t ones = access.size == 4 ? ~0u : (1u << (8 * access.size)) - 1;
  if (!access.write) {
    // A word of ones where the identity or the command stands is no device; elsewhere it may be a
    // value.
    if ((access.value & ones) == ones && access.offset < 8) {
      if (!config_ones_) config_ones_ = access.at;
      return;
    }
    config_ok_ = access.at;
    config_ones_.reset();
  }
  const auto before = command();
  if (config_.empty()) {
    config_.assign(kConfigSize, 0);
    config_known_.assign(kConfigSize, false);
  }
  for (uint32_t i = 0; i < access.size; ++i) {
    config_[access.offset + i] = static_cast<uint8_t>(access.value >> (8 * i));
    config_known_[access.offset + i] = true;
  }
  if (access.offset > kPciCommand || access.offset + access.size <= kPciCommand) return;
  const auto after = command();
  if (access.write && after && before && (*before & kPciBusMaster) != (*after & kPciBusMaster) &&
      bus_master_.size() < kMaxLog) {
    bus_master_.push_back({access.at, (*after & kPciBusMaster) != 0});
  }
}

void Bars::OnResize(Resize resize) {
  if (resizes_.size() < kMaxLog) resizes_.push_back(std::move(resize));
}

void Bars::OnReset(ResetCall reset) {
  if (resets_.size() < kMaxLog) resets_.push_back(std::move(reset));
}

}  // namespace tg::model
