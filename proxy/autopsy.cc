#include "proxy/autopsy.h"

#include <utility>

namespace tg::proxy {
namespace {

using wire::Command;

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kRegisterBar = 5;

// Read-only state; a card lacks some of them. HQD registers show whichever queue is selected.
constexpr const char* kRegisters[] = {
    // Notes between sessions
    "regSCRATCH_REG6", "regSCRATCH_REG7",
    // Page faults, by hub; gfx12 has the status in halves
    "regGCVM_L2_PROTECTION_FAULT_STATUS", "regGCVM_L2_PROTECTION_FAULT_STATUS_LO32",
    "regGCVM_L2_PROTECTION_FAULT_STATUS_HI32", "regGCVM_L2_PROTECTION_FAULT_ADDR_LO32",
    "regGCVM_L2_PROTECTION_FAULT_ADDR_HI32", "regMMVM_L2_PROTECTION_FAULT_STATUS",
    "regMMVM_L2_PROTECTION_FAULT_STATUS_LO32", "regMMVM_L2_PROTECTION_FAULT_STATUS_HI32",
    "regMMVM_L2_PROTECTION_FAULT_ADDR_LO32", "regMMVM_L2_PROTECTION_FAULT_ADDR_HI32",
    // Copy engines
    "regRLC_SDMA0_STATUS", "regSDMA0_QUEUE0_CONTEXT_STATUS", "regSDMA0_QUEUE0_RB_RPTR",
    "regSDMA0_QUEUE0_RB_RPTR_HI", "regSDMA0_QUEUE0_RB_WPTR", "regSDMA0_QUEUE0_RB_WPTR_HI",
    "regRLC_SDMA1_STATUS", "regSDMA1_QUEUE0_CONTEXT_STATUS", "regSDMA1_QUEUE0_RB_RPTR",
    "regSDMA1_QUEUE0_RB_RPTR_HI", "regSDMA1_QUEUE0_RB_WPTR", "regSDMA1_QUEUE0_RB_WPTR_HI",
    "regSDMA_GFX_CONTEXT_STATUS", "regSDMA_GFX_RB_RPTR", "regSDMA_GFX_RB_RPTR_HI",
    "regSDMA_GFX_RB_WPTR", "regSDMA_GFX_RB_WPTR_HI",
    // Command processor
    "regGRBM_STATUS", "regGRBM_STATUS2", "regCP_STAT", "regCP_HQD_ACTIVE", "regCP_HQD_PQ_RPTR",
    "regCP_HQD_PQ_WPTR_LO", "regCP_HQD_PQ_WPTR_HI",
    // Interrupt ring
    "regIH_RB_RPTR", "regIH_RB_WPTR"};

const std::string kNoMark = "autopsy";

}  // namespace

Autopsy::Autopsy(const AutopsyOptions& options) : options_(options), scope_(options.asic) {}

void Autopsy::OnForwarded(const wire::RequestEvent& event, uint64_t call) {
  scope_.OnForwarded(event, call);
}

void Autopsy::OnReply(const wire::ReplyEvent& event) {
  scope_.OnReply(event);
  const wire::RequestHeader& header = event.request.header;
  if (event.kind == wire::ReplyEvent::Kind::kReply && event.reply.status == 0 &&
      header.command == static_cast<uint8_t>(Command::kMapBar) && header.bar == kRegisterBar) {
    mapped_ = true;
    dev_ = header.dev;
    bar_size_ = event.reply.resp1;
  }
}

bool Autopsy::Due(uint64_t stalled_since, uint64_t now) const {
  return !active_ && stalled_since != 0 && stalled_since != done_for_ && now > stalled_since &&
         now - stalled_since >= options_.after_stall_ms * kMs;
}

std::string Autopsy::Begin(std::string reason, uint64_t stalled_since, uint64_t now) {
  if (stalled_since != 0) done_for_ = stalled_since;
  if (active_) return "one is under way";
  if (!calls_.empty()) return "the server has not answered the one before";
  if (begun_ >= kMaxPerConnection) return "there were enough of this connection";
  if (!mapped_) return "the client has not mapped BAR 5";
  if (!scope_.map())
    return "the card's registers are not known: its discovery table was not read through this "
           "connection, and --asic was not given";
  list_.clear();
  for (const char* name : kRegisters)
    if (const auto address = scope_.map()->Find(name); address && *address + 4 <= bar_size_)
      list_.emplace_back(name, *address);
  if (list_.empty()) return "none of the registers is within reach";
  begun_++;
  active_ = true;
  reason_ = std::move(reason);
  next_ = 0;
  answered_ = refused_ = 0;
  deadline_ = now + options_.read_timeout_ms * kMs;
  return "";
}

std::optional<Autopsy::Read> Autopsy::Next() {
  if (!active_ || waiting_ != 0) return std::nullopt;
  if (next_ == list_.size()) {
    active_ = false;
    return std::nullopt;
  }
  const auto& [name, address] = list_[next_++];
  mark_ = "autopsy: " + reason_ + ": " + name;
  return Read{{static_cast<uint8_t>(Command::kMmioRead), dev_, kRegisterBar, address, 4, 0}, mark_};
}

void Autopsy::Sent(uint64_t call, uint64_t now) {
  waiting_ = call;
  calls_.insert(call);
  deadline_ = now + options_.read_timeout_ms * kMs;
}

const std::string& Autopsy::MarkOf(uint64_t call) const {
  return call == waiting_ ? mark_ : kNoMark;
}

void Autopsy::Answered(uint64_t call, bool ok) {
  calls_.erase(call);
  if (call != waiting_) return;  // late
  waiting_ = 0;
  ++(ok ? answered_ : refused_);
}

bool Autopsy::Expire(uint64_t now) {
  if (!active_ || now < deadline_) return false;
  waiting_ = 0;
  active_ = false;
  return true;
}

std::string Autopsy::Summary() const {
  std::string text = std::to_string(answered_) + " of " + std::to_string(list_.size()) +
                     " registers read " + reason_;
  if (refused_ > 0) text += ", " + std::to_string(refused_) + " refused by the server";
  if (!calls_.empty()) text += "; the server did not answer in time, so it was given up";
  return text;
}

}  // namespace tg::proxy
