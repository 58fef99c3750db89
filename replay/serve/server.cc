#include "replay/serve/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "replay/proof.h"
#include "replay/script/format.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tg::replay {
namespace {

using std::chrono::milliseconds;

constexpr size_t kPiece = 1u << 20;
// A client that does not read its reply, or stops inside a payload, is not waited for longer.
constexpr milliseconds kTransferTimeout{60'000};

struct HashState {
  HashState() : state(XXH3_createState()) { XXH3_64bits_reset(state); }
  ~HashState() { XXH3_freeState(state); }
  HashState(const HashState&) = delete;
  HashState& operator=(const HashState&) = delete;
  XXH3_state_t* state;
};

class Conversation {
 public:
  Conversation(int fd, bool unix_socket, Responder& responder, const ServerOptions& options,
               const std::function<void(const std::string&)>& note)
      : fd_(fd), unix_(unix_socket), responder_(responder), options_(options), note_(note) {}

  Served Run() {
    while (TakeHeader() && TakePayload() && Respond()) {
    }
    return served_;
  }

 private:
  bool Stop(Served::Kind kind, std::string text) {
    // A divergence that was answered with an error still counts in the end.
    if (kind == Served::Kind::kFinished && served_.divergences > 0) kind = Served::Kind::kDiverged;
    served_.kind = kind;
    if (served_.text.empty() || !text.empty()) served_.text = std::move(text);
    return false;
  }

  bool Stop(const Transfer& transfer, const char* what) {
    switch (transfer.end) {
      case Transfer::End::kInterrupted:
        return Stop(Served::Kind::kInterrupted, "interrupted");
      case Transfer::End::kTimeout:
        return Stop(Served::Kind::kSilent, fmt::format("the client stalled while {}", what));
      case Transfer::End::kEof:
        return Stop(Served::Kind::kLeftEarly, fmt::format("the client went away while {}", what));
      default:
        return Stop(Served::Kind::kFailed, fmt::format("{}: {}", what, transfer.problem));
    }
  }

  bool LeftNow() {
    const Verdict verdict = responder_.Disconnect();
    switch (verdict.kind) {
      case Verdict::Kind::kFinished:
        return Stop(Served::Kind::kFinished, verdict.text);
      case Verdict::Kind::kLeftEarly:
        return Stop(Served::Kind::kLeftEarly, verdict.text);
      case Verdict::Kind::kDiverged:
        return Stop(Served::Kind::kDiverged, verdict.text);
      case Verdict::Kind::kLacking:
        return Stop(Served::Kind::kLacking, verdict.text);
    }
    return false;
  }

  // Waits for the next message, and looks after shared memory meanwhile.
  bool AwaitMessage() {
    const Deadline idle = Deadline::InOrNever(options_.idle_timeout);
    bool helped = true;
    for (;;) {
      const Deadline slice = helped ? Deadline::In(options_.silence) : idle;
      const Transfer wait = WaitReadable(fd_, slice);
      if (wait.ok()) return true;
      if (wait.end != Transfer::End::kTimeout) return Stop(wait, "waiting for a request");
      if (idle.passed())
        return Stop(Served::Kind::kSilent,
                    fmt::format("the client sent nothing for {} s. If it is waiting for something "
                                "in shared memory: the trace holds nothing more to give it",
                                options_.idle_timeout.count() / 1000));
      helped = responder_.OnSilence();
    }
  }

  bool TakeHeader() {
    if (responder_.HangsUp()) {
      (void)responder_.Disconnect();
      return Stop(Served::Kind::kFinished, "closed, as the recorded server did here");
    }
    if (!AwaitMessage()) return false;
    std::array<uint8_t, wire::kRequestSizeR2> bytes;
    const size_t size = wire::RequestSize(options_.revision);
    const std::span<uint8_t> header = std::span(bytes).first(size);
    const Deadline deadline = Deadline::In(kTransferTimeout);
    Transfer got = unix_ ? ReceiveOnce(fd_, header, deadline) : ReceiveAll(fd_, header, deadline);
    if (got.end == Transfer::End::kEof && got.bytes == 0) return LeftNow();
    if (!got.ok()) return Stop(got, "sending a header");
    if (got.bytes < size) {
      std::string text = fmt::format(
          "the client sent {} bytes where a header of {} begins: a real "
          "server hangs up here",
          got.bytes, size);
      if (got.bytes == wire::kRequestSizeR1 && options_.revision == wire::Revision::kR2)
        text += ". 26 bytes are the header of the older protocol (before 2026-03-16)";
      served_.divergences++;
      return Stop(Served::Kind::kDiverged, std::move(text));
    }
    received_ = Received();
    received_.request = wire::DecodeRequest(header, options_.revision);
    served_.requests++;
    return true;
  }

  // Keeps what fits TinyGPU.app's buffer; of more, only what comparing needs.
  bool TakePayload() {
    const uint64_t size = wire::PayloadSize(received_.request, options_.revision);
    received_.payload_size = size;
    if (size == 0) return true;
    const bool keep = size <= wire::kAppBulkLimit;
    payload_.clear();
    HashState hash;
    received_.all_zero = true;
    const size_t piece_size = static_cast<size_t>(std::min<uint64_t>(size, kPiece));
    std::vector<uint8_t> piece(keep ? 0 : piece_size);
    for (uint64_t done = 0; done < size;) {
      const size_t part = static_cast<size_t>(std::min<uint64_t>(size - done, kPiece));
      std::span<uint8_t> into;
      if (keep) {  // grows with what comes, not with what was announced
        payload_.resize(static_cast<size_t>(done) + part);
        into = std::span(payload_).subspan(static_cast<size_t>(done), part);
      } else {
        into = std::span(piece).first(part);
      }
      const Transfer got = ReceiveAll(fd_, into, Deadline::In(kTransferTimeout));
      if (!got.ok()) return Stop(got, "sending a payload");
      if (!keep) {
        XXH3_64bits_update(hash.state, into.data(), into.size());
        received_.all_zero = received_.all_zero && std::all_of(into.begin(), into.end(),
                                                               [](uint8_t b) { return b == 0; });
      }
      done += part;
    }
    if (keep)
      received_.payload = payload_;
    else
      received_.xxh3 = XXH3_64bits_digest(hash.state);
    return true;
  }

  bool SendReply(const wire::ReplyHeader& reply, std::span<const uint8_t> body, uint64_t zeros,
                 int descriptor) {
    const auto head = wire::EncodeReply(reply);
    Transfer sent = Send(fd_, head, body, descriptor, Deadline::In(kTransferTimeout));
    static const std::vector<uint8_t> kZeros(kPiece);
    for (uint64_t done = 0; sent.ok() && done < zeros;) {
      const size_t part = static_cast<size_t>(std::min<uint64_t>(zeros - done, kPiece));
      sent = Send(fd_, std::span(kZeros).first(part), {}, -1, Deadline::In(kTransferTimeout));
      done += part;
    }
    return sent.ok() || Stop(sent, "being sent a reply");
  }

  bool Respond() {
    const wire::CommandInfo* info = wire::FindCommand(received_.request.command, options_.revision);
    if (options_.prove_replay && IsProofRequest(received_.request))
      return SendReply(kProofReply, {}, 0, -1);
    Answer answer = responder_.OnRequest(received_);
    switch (answer.kind) {
      case Answer::Kind::kPosted:
        return true;
      case Answer::Kind::kReply:
        return SendReply(answer.reply, answer.body, answer.zeros, answer.descriptor);
      case Answer::Kind::kSilent:
        note_(answer.problem + ": not answered now either");
        return true;
      case Answer::Kind::kOver:
        if (info && info->reply) (void)SendError(answer.problem);
        return Stop(Served::Kind::kLacking, std::move(answer.problem));
      case Answer::Kind::kDiverged:
        break;
    }
    served_.divergences++;
    if (served_.divergences == 1) served_.text = answer.problem;
    if (!options_.answer_divergence || !info) return Stop(Served::Kind::kDiverged, served_.text);
    note_(answer.problem);
    return !info->reply || SendError(answer.problem);
  }

  bool SendError(const std::string& problem) {
    const std::string text = "rpcreplay: " + problem;
    const std::span body(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    return SendReply({1, text.size(), 0}, body, 0, -1);
  }

  const int fd_;
  const bool unix_;
  Responder& responder_;
  const ServerOptions& options_;
  const std::function<void(const std::string&)>& note_;
  Served served_;
  Received received_;
  std::vector<uint8_t> payload_;
};

}  // namespace

Served ServeClient(int fd, bool unix_socket, Responder& responder, const ServerOptions& options,
                   const std::function<void(const std::string&)>& note) {
  return Conversation(fd, unix_socket, responder, options, note).Run();
}

}  // namespace tg::replay
