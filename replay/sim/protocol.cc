#include "replay/sim/protocol.h"

#include <chrono>
#include <thread>

namespace tg::sim {

Protocol::Verdict Protocol::Admit(const wire::RequestHeader& request) {
  if (request.command < wire::kCommandCount) {
    stats_.requests[request.command]++;
  } else {
    stats_.unknown++;
  }
  HangPlan& hangs = gpu_.hangs();
  Verdict verdict;
  if (hangs.empty()) return verdict;
  if (const HangRule* slow = hangs.Strike(HangKind::kSlow))
    std::this_thread::sleep_for(std::chrono::microseconds(slow->delay_us));
  gpu_.SetGone(hangs.Strike(HangKind::kAllOnes) != nullptr);
  verdict.exit = hangs.Strike(HangKind::kExit) != nullptr;
  verdict.refuse = hangs.Strike(HangKind::kRefuse, [&request](const HangRule& rule) {
    return rule.command == request.command;
  });
  return verdict;
}

bool Protocol::Reply(Link& link, const wire::ReplyHeader& reply) {
  if (reply.status != 0) stats_.refused++;
  return link.Send(wire::EncodeReply(reply));
}

bool Protocol::Refuse(Link& link, std::string_view text) {
  return Reply(link, {1, text.size(), 0}) &&
         link.Send({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace tg::sim
