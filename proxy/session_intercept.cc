// What a session does beyond relaying, because options told it to: requests that are not passed on,
// answers that are altered or made here, questions of the proxy's own. See proxy/intercept.h.
//
// The streams stay framed: what is not passed on is taken out whole, an answer made here goes out
// in its request's turn, and the answer to a question of our own never reaches the client.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proxy/capture/capture.h"
#include "proxy/intercept.h"
#include "proxy/session_handles.h"
#include "schemas/wire/bytes.h"

namespace tg::proxy {
namespace {

using wire::Command;

constexpr size_t kValueShown = 8;

// Errors are left as they are, and so are bodies that end by themselves.
bool Applies(const ReplyChange& change, const wire::ReplyEvent& event) {
  if (event.reply.status != 0) return false;
  return change.kind == ActionKind::kValue || change.bytes < event.body_size;
}

bool IsCfgRead(const wire::ReplyEvent& event) {
  return event.request.header.command == static_cast<uint8_t>(Command::kCfgRead);
}

std::string Said(const wire::ReplyEvent& event) {
  if (IsCfgRead(event)) return fmt::format("{:#x}", event.reply.resp0);
  if (event.body_size > kValueShown || !event.complete())
    return fmt::format("{} bytes", event.body_size);
  uint64_t value = 0;
  for (size_t i = event.body.size(); i-- > 0;) value = value << 8 | event.body[i];
  return fmt::format("{:#x}", value);
}

// `value` over and over, in words of 4 bytes, or of 8 where it needs them.
void Fill(std::span<uint8_t> body, uint64_t offset, uint64_t value) {
  const uint64_t width = value > UINT32_MAX ? 8 : 4;
  for (size_t i = 0; i < body.size(); i++)
    body[i] = static_cast<uint8_t>(value >> (8 * ((offset + i) % width)));
}

uint64_t CutTo(uint64_t value, uint64_t bytes) {
  return bytes >= 8 ? value : value & ((1ull << (8 * bytes)) - 1);
}

}  // namespace

bool Session::BlocksRequests() const {
  return intercept_->BlocksRequests();
}

bool Session::OwnQuestionIsNext() const {
  return intercept_->autopsy && !pairing_.empty() &&
         intercept_->autopsy->Owns(pairing_.front().call);
}

void Session::Hold(uint64_t ms) {
  FlushToServer();  // what came before is not late
  intercept_->holding = true;
  uv_update_time(handles_->hold.loop);  // else it counts from when this round of the loop began
  uv_timer_start(&handles_->hold, OnHold, ms, 0);
}

void Session::OnHold(uv_timer_t* handle) {
  auto* self = static_cast<Session*>(handle->data);
  if (self->finishing_) return;
  self->intercept_->holding = false;
  if (self->FlushToServer()) self->ForwardRequests();
  self->ForwardReplies();
  self->Settle();
}

// ---- requests --------------------------------------------------------------------------------

// Records the request and says whether it is to be passed on.
bool Session::InterceptRequest(const wire::RequestEvent& event, uint64_t now, uint64_t& call) {
  Intercept& own = *intercept_;
  const wire::Revision revision = request_framer_.revision();
  Decision decision;
  if (own.policy) {
    decision = own.policy->OnRequest(event, revision);
    for (const std::string& note : own.policy->TakeNotes()) log_(LogLevel::kWarn, note);
  }
  const bool kept = decision.kind != Decision::Kind::kForward;
  Tap::Marks marks;
  if (kept) marks.refused = decision.by;
  if (!decision.guard && (kept || decision.delay_ms > 0)) marks.injected = decision.by;
  call = tap_.Request(event, now, marks);
  if (kept || decision.delay_ms > 0)
    own.lines.Add(LogLevel::kWarn, decision.by, wire::CommandName(event.header.command),
                  fmt::format("{} {}: {}", DescribeRequest(event.header),
                              decision.kind == Decision::Kind::kForward  ? "delayed"
                              : decision.kind == Decision::Kind::kDrop   ? "dropped"
                              : decision.kind == Decision::Kind::kAnswer ? "refused"
                                                                         : "ends the connection",
                              Printable(decision.by)));
  if (decision.delay_ms > 0) Hold(decision.delay_ms);
  if (!kept) {
    if (own.policy) own.policy->OnForwarded(event, call);
    if (own.autopsy) own.autopsy->OnForwarded(event, call);
    if (decision.change.kind != ActionKind::kNone) own.changes.emplace_back(call, decision.change);
    return true;
  }
  counters_.by_command[event.header.command]++;
  own.skipping_payload = !event.complete();
  if (decision.kind == Decision::Kind::kClose) own.close_reason = decision.by;
  if (decision.kind == Decision::Kind::kAnswer) {
    if (reply_framer_.raw()) {
      own.close_reason = decision.by + "; replies lost their framing, so a refusal has no place";
    } else {
      const auto header = wire::EncodeReply({1, decision.text.size(), 0});
      Intercept::Made made{call, {header.begin(), header.end()}, decision.by};
      made.bytes.insert(made.bytes.end(), decision.text.begin(), decision.text.end());
      own.made.push_back(std::move(made));
      pairing_.Sent(event.header, call, revision);
    }
  }
  requests_.Drop(event.bytes.size());
  return false;
}

// The rest of a message that is not passed on, or bytes without framing. True if that was all.
bool Session::InterceptRest(const wire::RequestEvent& event, uint32_t descriptors, uint64_t now) {
  Intercept& own = *intercept_;
  if (event.kind == wire::RequestEvent::Kind::kPayloadChunk) {
    if (!own.skipping_payload) return false;
    tap_.Request(event, now);
    own.skipping_payload = !event.complete();
    requests_.Drop(event.bytes.size());
    return true;
  }
  std::string why;
  if (!own.policy || !own.policy->StopsAtRaw(why)) return false;
  tap_.Raw(false, event.bytes, descriptors, "not passed on, " + why, now);
  requests_.Drop(event.bytes.size());
  own.close_reason = why;
  log_(LogLevel::kError, "client sent " + std::string(wire::CommandName(event.header.command)) +
                             "; the connection is ended. " + why);
  return true;
}

// ---- replies ---------------------------------------------------------------------------------

// Sends the answers that were made here and whose turn it is. False when one must wait.
bool Session::AnswerMade() {
  Intercept& own = *intercept_;
  while (!own.made.empty() && !pairing_.empty() && pairing_.front().call == own.made.front().call) {
    if (own.holding) return false;
    if (replies_.queue_full() && !FlushToClient()) return false;
    const Intercept::Made& made = own.made.front();
    if (!replies_.Insert(made.bytes)) {
      FlushToClient();
      if (!replies_.Insert(made.bytes)) return false;
    }
    trace::ReplyRecord record;
    record.call = made.call;
    record.reply = wire::DecodeReply(made.bytes);
    record.body.data = std::span(made.bytes).subspan(wire::kReplySize);
    record.body.size = record.body.data.size();
    record.injected = made.by;
    tap_.writer().Reply(record, uv_hrtime());
    counters_.errors++;
    pairing_.Pop();
    own.made.pop_front();
  }
  return true;
}

// True when the reply has been dealt with: it was not the client's, or it was altered.
bool Session::InterceptReply(const wire::ReplyEvent& event, uint32_t descriptors, bool truncated,
                             uint64_t now) {
  Intercept& own = *intercept_;
  const uint64_t call = event.request.call;
  if (own.autopsy && own.autopsy->Owns(call)) {
    tap_.Reply(event, descriptors, truncated, now, own.autopsy->MarkOf(call));
    replies_.Drop(event.bytes.size());
    if (event.complete()) own.autopsy->Answered(call, event.reply.status == 0);
    return true;  // the next question is asked when the replies at hand are through
  }
  if (own.policy) {
    own.policy->OnReply(event);
    for (const std::string& note : own.policy->TakeNotes()) log_(LogLevel::kInfo, note);
  }
  if (own.autopsy) own.autopsy->OnReply(event);
  const ReplyChange* change = own.ChangeFor(call);
  if (!change) return false;
  const bool applies = Applies(*change, event);
  if (applies) QueueChanged(event, descriptors, truncated, now);
  if (event.complete()) own.changes.pop_front();
  return applies;
}

void Session::QueueChanged(const wire::ReplyEvent& event, uint32_t descriptors, bool truncated,
                           uint64_t now) {
  Intercept& own = *intercept_;
  const ReplyChange change = own.changes.front().second;
  const bool header = event.kind == wire::ReplyEvent::Kind::kReply;
  // The device model follows the device.
  if (options_.capture) options_.capture->OnReply(event, now);
  const std::string mark = change.by + "; the server said " + Said(event);
  if (header)
    own.lines.Add(LogLevel::kWarn, change.by, wire::CommandName(event.request.header.command),
                  fmt::format("{} answered otherwise: {}", DescribeRequest(event.request.header),
                              Printable(mark)));
  wire::ReplyEvent changed = event;
  const size_t head = event.bytes.size() - event.body.size();
  const std::span<uint8_t> bytes = replies_.Alter(event.bytes.size());
  if (change.kind == ActionKind::kValue) {
    if (IsCfgRead(event)) {
      changed.reply.resp0 = CutTo(change.value, event.request.header.arg1);
      StoreLe<uint64_t>(bytes.data() + 1, changed.reply.resp0);
    } else {
      Fill(bytes.subspan(head), event.body_offset, change.value);
    }
    tap_.Reply(changed, descriptors, truncated, now, mark);
    replies_.Queue(event.bytes.size());
    return;
  }
  // kShort: the header says what it said, the body ends early.
  const uint64_t left = change.bytes - std::min(change.bytes, event.body_offset);
  const auto keep = static_cast<size_t>(std::min<uint64_t>(left, event.body.size()));
  const bool ends = keep == left && (header || left > 0);
  changed.body = event.body.first(keep);
  changed.bytes = event.bytes.first(head + keep);
  if (header || keep > 0) tap_.Reply(changed, descriptors, truncated, now, mark);
  if (ends) tap_.TruncatedReply(now);
  if (head + keep > 0) replies_.Queue(head + keep);
  if (event.body.size() > keep) replies_.Drop(event.body.size() - keep);
}

// ---- autopsy ---------------------------------------------------------------------------------

bool Session::AutopsyBegins(std::string reason, uint64_t stalled_since) {
  Autopsy* autopsy = intercept_->autopsy.get();
  if (!autopsy || server_eof_ || server_closed_) return false;
  const std::string why_not = autopsy->Begin(reason, stalled_since, uv_hrtime());
  if (!why_not.empty()) {
    log_(LogLevel::kInfo, fmt::format("no autopsy {}: {}", reason, why_not));
    return false;
  }
  log_(LogLevel::kWarn, fmt::format("autopsy {}: the proxy reads registers itself", reason));
  AutopsyGoesOn();
  return autopsy->active();
}

// Asks the next question, if the client has none waiting.
void Session::AutopsyGoesOn() {
  Autopsy* autopsy = intercept_->autopsy.get();
  if (!autopsy || !autopsy->active() || autopsy->waiting()) return;
  const bool never = server_eof_ || server_closed_ || request_framer_.raw() || reply_framer_.raw();
  if (!never && (!pairing_.empty() || request_framer_.payload_missing() > 0 ||
                 !requests_.queue_empty() || intercept_->holding))
    return;  // later
  const uint64_t now = uv_hrtime();
  if (const auto read = never ? std::nullopt : autopsy->Next()) {
    trace::RequestRecord record;
    record.header = read->header;
    record.injected = read->mark;
    const uint64_t call = tap_.writer().Request(record, now);
    const wire::Revision revision = request_framer_.revision();
    const auto r2 = wire::EncodeRequest(read->header);
    const auto r1 = wire::EncodeRequestR1(read->header);
    const bool old = revision == wire::Revision::kR1;
    if (requests_.Insert(old ? std::span<const uint8_t>(r1) : std::span<const uint8_t>(r2))) {
      pairing_.Sent(read->header, call, revision);
      autopsy->Sent(call, now);
      FlushToServer();
      return;
    }
  }
  autopsy->Stop();
  log_(LogLevel::kInfo, "autopsy: " + autopsy->Summary());
  if (end_waits_)
    PassOnEndOfRequests();
  else
    ForwardRequests();
}

void Session::AutopsyTick(uint64_t now) {
  intercept_->lines.Tick(now, false);
  Autopsy* autopsy = intercept_->autopsy.get();
  if (!autopsy) return;
  if (autopsy->Expire(now)) {
    log_(LogLevel::kWarn, "autopsy: " + autopsy->Summary());
    if (end_waits_)
      PassOnEndOfRequests();
    else
      ForwardRequests();
  }
  const uint64_t since = options_.capture ? options_.capture->counters().stalled_since : 0;
  if (autopsy->Due(since, now) && !client_eof_)
    AutopsyBegins(fmt::format("after a stall of {:.1f} s", static_cast<double>(now - since) / 1e9),
                  since);
  AutopsyGoesOn();
}

}  // namespace tg::proxy
