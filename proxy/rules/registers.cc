#include "proxy/rules/registers.h"

#include <algorithm>
#include <cstdio>

#include "decoder/model/device.h"
#include "proxy/rules/rule.h"
#include "schemas/wire/bytes.h"

namespace tg::proxy {
namespace {

using wire::Command;

constexpr uint32_t kRegisterBar = 5;
// One access to registers is 4 or 8 bytes. A longer one is looked at so far.
constexpr uint64_t kMaxWalk = 64 * 1024;
constexpr size_t kMaxBody = 16 * 1024;  // the discovery table has 10 KiB
constexpr uint64_t kLearnerShadow = 1u << 20;
constexpr uint64_t kMaxLearn = 1u << 20;  // answers without the table turning up

struct KnownAsic {
  std::string_view name;
  uint16_t pci_device;
};
// tinygrad's AM driver accepts these; PCI ids as in schemas/amd/registers.cc.
constexpr KnownAsic kAsics[] = {
    {"navi31", 0x744c}, {"navi33", 0x7480}, {"navi44", 0x7590},
    {"navi48", 0x7550}, {"mi300x", 0x74a1}, {"mi350x", 0x75a0},
};

bool IsMmio(const wire::RequestHeader& header) {
  return header.command == static_cast<uint8_t>(Command::kMmioRead) ||
         header.command == static_cast<uint8_t>(Command::kMmioWrite);
}

bool IsData(model::Role role) {
  return role == model::Role::kMmData || role == model::Role::kRsmuData ||
         role == model::Role::kPcieData2;
}
bool IsIndex(model::Role role) {
  return role == model::Role::kMmIndex || role == model::Role::kMmIndexHi ||
         role == model::Role::kRsmuIndex || role == model::Role::kRsmuIndexHi ||
         role == model::Role::kPcieIndex2 || role == model::Role::kPcieIndex2Hi;
}

const model::RoleMap& FixedRoles() {
  static const model::RoleMap roles{amd::RegisterMap(std::span<const amd::IpBlock>())};
  return roles;
}
const amd::RegisterMap& FixedMap() {
  static const amd::RegisterMap map{std::span<const amd::IpBlock>()};
  return map;
}

}  // namespace

Result<amd::RegisterMap> MapOfAsic(std::string_view name) {
  for (const KnownAsic& asic : kAsics) {
    char id[16];
    std::snprintf(id, sizeof id, "0x%04x", asic.pci_device);
    if (name == asic.name || name == id) return amd::RegisterMap::Assumed(asic.pci_device);
  }
  return Fail(Error::Code::kUsage, "--asic " + std::string(name) + " is not known; there are " +
                                       KnownAsics() + " (or their PCI device ids, 0x744c)");
}

std::string KnownAsics() {
  std::string names;
  for (const KnownAsic& asic : kAsics) names += (names.empty() ? "" : " ") + std::string(asic.name);
  return names;
}

std::vector<uint64_t> AddressesOf(const amd::RegisterMap& map, std::string_view pattern) {
  std::vector<uint64_t> found;
  map.ForEach([&](uint64_t address, const amd::RegisterHit& hit) {
    if ((found.empty() || found.back() != address) && NameMatches(pattern, hit.name()))
      found.push_back(address);
  });
  return found;
}

RegisterScope::RegisterScope(std::shared_ptr<const amd::RegisterMap> asic) {
  if (asic) {
    Know(std::move(asic));
  } else {
    learner_ = std::make_unique<model::Device>(
        model::DeviceOptions{.dev = std::nullopt, .max_shadow_bytes = kLearnerShadow});
  }
}

RegisterScope::~RegisterScope() = default;

void RegisterScope::Know(std::shared_ptr<const amd::RegisterMap> map) {
  map_ = std::move(map);
  roles_ = std::make_unique<model::RoleMap>(*map_);
  learner_.reset();
  body_ = {};
}

model::Role RegisterScope::RoleOf(uint64_t address) const {
  return (roles_ ? *roles_ : FixedRoles()).Of(address);
}

Touched RegisterScope::Walk(const wire::RequestHeader& header, std::span<const uint8_t> payload,
                            model::Windows& windows) const {
  Touched touched;
  const uint64_t begin = header.arg0 & ~3ull;
  // Bytes from `begin` on that the access reaches into.
  const uint64_t into = header.arg0 - begin;
  const bool wraps = header.arg1 > UINT64_MAX - header.arg0;
  const uint64_t size = std::min<uint64_t>(wraps ? kMaxWalk : header.arg1, kMaxWalk) + into;
  if (wraps || header.arg1 > kMaxWalk) touched.unknown = true;
  const bool write = header.command == static_cast<uint8_t>(Command::kMmioWrite);
  std::vector<uint64_t> targets;
  for (uint64_t at = 0; at < size && begin + at >= begin; at += 4) {
    const uint64_t address = begin + at;
    touched.addresses.push_back(address);
    const model::Role role = RoleOf(address);
    if (role == model::Role::kNone) {
      // Without a map it may be anything, an index or data register too.
      if (!map_ && !FixedMap().Lookup(address)) touched.unknown = true;
      continue;
    }
    const bool whole = into == 0 && at + 4 <= header.arg1;
    const bool have = !write || (at + 4 <= payload.size());
    bool blind = false;
    const uint32_t value = write && whole && have ? LoadLe<uint32_t>(payload.data() + at) : ~0u;
    if (write && (!whole || !have)) {
      windows.Forget();  // part of an index was written: where it points is not known
      touched.unknown = touched.unknown || IsData(role);
      continue;
    }
    const auto target = windows.OnAccess(role, value, write, &blind);
    if (target && !target->vram) {
      const uint64_t behind = target->address & ~3ull;
      targets.push_back(behind);
      // A window seen through another one.
      if (IsData(RoleOf(behind))) touched.unknown = true;
      if (write && IsIndex(RoleOf(behind))) windows.Forget();
    }
    if (blind) touched.unknown = true;
  }
  // What lies behind the part that was walked may have been an index.
  if (touched.unknown && write && (wraps || header.arg1 > kMaxWalk)) windows.Forget();
  touched.addresses.insert(touched.addresses.end(), targets.begin(), targets.end());
  return touched;
}

Touched RegisterScope::Look(const wire::RequestHeader& header,
                            std::span<const uint8_t> payload) const {
  if (!IsMmio(header) || header.bar != kRegisterBar || header.arg1 == 0) return {};
  model::Windows windows = windows_;
  return Walk(header, payload, windows);
}

void RegisterScope::OnForwarded(const wire::RequestEvent& event, uint64_t call) {
  if (event.kind != wire::RequestEvent::Kind::kRequest) return;
  if (IsMmio(event.header) && event.header.bar == kRegisterBar &&
      event.header.command == static_cast<uint8_t>(Command::kMmioWrite))
    Walk(event.header, event.payload, windows_);
  if (!learner_) return;
  trace::Record record;
  record.kind = trace::Record::Kind::kRequest;
  record.call = call;
  record.request.header = event.header;
  record.request.payload = {
      .size = event.payload_size, .data = event.payload, .xxh3 = std::nullopt};
  learner_->Feed(record);
}

bool RegisterScope::OnReply(const wire::ReplyEvent& event) {
  if (!learner_) return false;
  std::span<const uint8_t> body = event.body;
  if (!event.complete() || event.body_offset > 0) {
    if (event.body_offset == 0) body_.clear();
    if (body_.size() == event.body_offset && body_.size() < kMaxBody)
      body_.insert(body_.end(), body.begin(), body.end());
    if (!event.complete()) return false;
    body = body_;
  }
  trace::Record record;
  record.kind = trace::Record::Kind::kReply;
  record.call = event.request.call;
  record.reply.reply = event.reply;
  record.reply.body = {.size = event.body_size,
                       .data = body.first(std::min<size_t>(body.size(), event.body_size)),
                       .xxh3 = std::nullopt};
  learner_->Feed(record);
  if (++fed_ > kMaxLearn) learner_.reset();  // not a card whose driver reads such a table
  if (!learner_) return false;
  // A table of which only a part was seen leaves registers without their right place.
  if (!learner_->discovery() || learner_->registers().map().assumed()) return false;
  Know(std::make_shared<const amd::RegisterMap>(learner_->registers().map()));
  return true;
}

}  // namespace tg::proxy
