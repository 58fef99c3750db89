#include "replay/drive/permission.h"

namespace tg::replay {

using wire::Command;

Harm HarmOf(uint8_t command) {
  const wire::CommandInfo* info = wire::FindCommand(command);
  if (!info) return Harm::kReset;
  switch (info->command) {
    case Command::kProbe:
    case Command::kMapBar:
    case Command::kCfgRead:
    case Command::kMmioRead:
    case Command::kSysmemRead:
    case Command::kPing:
      return Harm::kNone;
    case Command::kMapSysmemFd:
    case Command::kMapSysmem:
    case Command::kMmioWrite:
    case Command::kSysmemWrite:
    case Command::kResizeBar:
      return Harm::kWrite;
    case Command::kReset:
    case Command::kCfgWrite:
      return Harm::kReset;
  }
  return Harm::kReset;
}

Ruling Rule(uint8_t command, const Permission& permission) {
  const Harm harm = HarmOf(command);
  if (harm == Harm::kNone) return Ruling::kSend;
  if (permission.read_only) return Ruling::kLeaveOut;
  if (!permission.writes) return Ruling::kForbidden;
  return harm == Harm::kReset && !permission.reset ? Ruling::kForbidden : Ruling::kSend;
}

std::string_view OptionFor(Harm harm) {
  return harm == Harm::kReset ? "--allow-reset" : harm == Harm::kWrite ? "--allow-writes" : "";
}

}  // namespace tg::replay
