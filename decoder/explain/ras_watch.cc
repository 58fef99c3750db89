#include "decoder/explain/ras_watch.h"

#include "schemas/amd/registers.h"

namespace tg::explain {

void RasWatch::OnRegister(const model::RegisterAccess& access) {
  if (access.reg->role != model::Role::kDoorbellInt || access.write || error_.at) return;
  if (!access.reg->hit || access.value == UINT32_MAX) return;
  const auto set = [&access](std::string_view field) {
    return amd::GetField(*access.reg->hit.reg, field, access.value) == 1u;
  };
  const bool athub = set("ras_athub_err_event_interrupt_status");
  if (!athub && !set("ras_cntlr_interrupt_status")) return;
  error_ = {access.at, athub, access.value, std::string(access.reg->name())};
}

}  // namespace tg::explain
