#include "decoder/model/faults.h"

namespace tg::model {
namespace {

constexpr size_t kKeep = 256;
constexpr uint32_t kClear = 1;  // clear_protection_fault_status_addr

}  // namespace

void Faults::OnStatus(const RegisterAccess& access, bool gc_hub) {
  if (access.value == 0xFFFFFFFF) return;
  (gc_hub ? status_gc_ : status_mm_) = access.value;
  if (access.value == 0) return;
  if (!faults_.empty()) {
    Fault& newest = faults_.back();
    if (newest.gc_hub == gc_hub && newest.raw == access.value && !newest.cleared) {
      newest.last = access.last;
      return;
    }
  }
  ++total_;
  if (faults_.size() >= kKeep) return;
  Fault fault;
  fault.first = access.at;
  fault.last = access.last;
  fault.gc_hub = gc_hub;
  fault.raw = access.value;
  fault.status = amd::DecodeFaultStatus(gc_, access.value);
  fault.text = amd::DescribeFault(gc_, gc_hub, fault.status);
  faults_.push_back(std::move(fault));
}

void Faults::OnRegister(const RegisterAccess& access) {
  const auto open = [this](bool gc_hub) -> Fault* {
    if (faults_.empty() || faults_.back().gc_hub != gc_hub || faults_.back().cleared)
      return nullptr;
    return &faults_.back();
  };
  const auto half = [&](bool gc_hub, std::optional<uint32_t> Fault::*member) {
    if (Fault* fault = access.write ? nullptr : open(gc_hub)) fault->*member = access.value;
  };
  const auto control = [&](bool gc_hub) {
    if (!access.write || (access.value & kClear) == 0) return;
    if (Fault* fault = open(gc_hub)) fault->cleared = access.at;
    (gc_hub ? status_gc_ : status_mm_).reset();
  };
  switch (access.reg->role) {
    case Role::kFaultStatusGc:
      if (!access.write) OnStatus(access, true);
      break;
    case Role::kFaultStatusMm:
      if (!access.write) OnStatus(access, false);
      break;
    case Role::kFaultStatusHiGc:
    case Role::kFaultStatusHiMm:
      if (Fault* fault =
              access.write ? nullptr : open(access.reg->role == Role::kFaultStatusHiGc)) {
        fault->raw_high = access.value;
        fault->status = amd::DecodeFaultStatus(gc_, fault->raw, access.value);
      }
      break;
    case Role::kFaultAddrLoGc:
      half(true, &Fault::address_low);
      break;
    case Role::kFaultAddrHiGc:
      half(true, &Fault::address_high);
      break;
    case Role::kFaultAddrLoMm:
      half(false, &Fault::address_low);
      break;
    case Role::kFaultAddrHiMm:
      half(false, &Fault::address_high);
      break;
    case Role::kFaultCntlGc:
      control(true);
      break;
    case Role::kFaultCntlMm:
      control(false);
      break;
    default:
      break;
  }
}

}  // namespace tg::model
