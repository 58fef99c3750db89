#include "replay/drive/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tg::replay {
namespace {

// A reply that announces more than any server can hold is a stream that lost its step.
constexpr uint64_t kMaxBody = 1ull << 30;
constexpr uint64_t kMaxText = 1ull << 20;
constexpr size_t kPiece = 1u << 20;

LiveReply Ended(const Transfer& transfer, std::string_view what) {
  LiveReply live;
  switch (transfer.end) {
    case Transfer::End::kTimeout:
      live.end = LiveReply::End::kSilent;
      live.problem = fmt::format("the server stopped answering while {}", what);
      break;
    case Transfer::End::kEof:
      live.end = LiveReply::End::kClosed;
      live.problem = fmt::format("the server closed the connection while {}", what);
      break;
    case Transfer::End::kInterrupted:
      live.end = LiveReply::End::kInterrupted;
      live.problem = "interrupted";
      break;
    default:
      live.end = LiveReply::End::kFailed;
      live.problem = fmt::format("{}: {}", what, transfer.problem);
  }
  if (transfer.bytes > 0) live.problem += fmt::format(" (after {} bytes)", transfer.bytes);
  return live;
}

}  // namespace

LiveReply Exchange(int fd, const wire::RequestHeader& request, std::span<const uint8_t> payload,
                   wire::Revision revision, std::chrono::milliseconds timeout, bool wait) {
  const auto start = std::chrono::steady_clock::now();
  const Deadline deadline = Deadline::InOrNever(timeout);
  const auto r2 = wire::EncodeRequest(request);
  const auto r1 = wire::EncodeRequestR1(request);
  const std::span<const uint8_t> header =
      revision == wire::Revision::kR1 ? std::span<const uint8_t>(r1) : std::span<const uint8_t>(r2);
  const Transfer sent = Send(fd, header, payload, -1, deadline);
  if (!sent.ok()) return Ended(sent, "being sent a request");
  LiveReply live;
  const wire::CommandInfo* info = wire::FindCommand(request.command, revision);
  if (!wait || !info || !info->reply) {
    live.end = LiveReply::End::kPosted;
    return live;
  }
  std::array<uint8_t, wire::kReplySize> bytes;
  const Transfer got = ReceiveAll(fd, bytes, live.descriptors, deadline);
  if (!got.ok()) return Ended(got, "its reply was awaited");
  live.reply = wire::DecodeReply(bytes);
  const auto now = std::chrono::steady_clock::now();
  live.latency_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now - start).count());
  const uint64_t size = wire::BodySize(request, live.reply, revision);
  if (size > (live.reply.status != 0 ? kMaxText : kMaxBody)) {
    live.end = LiveReply::End::kFailed;
    live.problem = fmt::format("the server announces {} bytes: this is no reply", size);
    return live;
  }
  for (uint64_t done = 0; done < size;) {  // grows with what comes
    const size_t part = static_cast<size_t>(std::min<uint64_t>(size - done, kPiece));
    live.body.resize(static_cast<size_t>(done) + part);
    const Transfer piece =
        ReceiveAll(fd, std::span(live.body).subspan(static_cast<size_t>(done)), deadline);
    if (!piece.ok()) return Ended(piece, "sending a body");
    done += part;
  }
  return live;
}

}  // namespace tg::replay
