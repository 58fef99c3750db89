// Packets that are no calls: connections, chunks of bodies, raw bytes, losses, the end.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/model/session_impl.h"
#include "decoder/model/words.h"
#include "schemas/trace/trace.pb.h"

namespace tg::model {

namespace pb = tinygpu::trace;
using wire::Command;

namespace {

Transport TransportFromText(std::string_view text) {
  if (text.starts_with("unix")) return Transport::kUnix;
  if (text.starts_with("tcp")) return Transport::kTcp;
  return Transport::kUnknown;
}

std::string EventText(const pb::SessionEvent& event) {
  if (!event.text().empty()) return event.text().substr(0, kMaxTextBytes);
  switch (event.kind()) {
    case pb::SessionEvent::CONNECT:
      return event.client_pid() ? fmt::format("client connected (pid {})", event.client_pid())
                                : "client connected";
    case pb::SessionEvent::UPSTREAM_CONNECTED:
      return "connected to the server";
    case pb::SessionEvent::DISCONNECT:
      return event.closed_first().empty() ? "connection closed"
                                          : event.closed_first().substr(0, 20) + " closed first";
    case pb::SessionEvent::WAITING:
      return "another client waits";
    case pb::SessionEvent::REPLACED:
      return "our socket was replaced by another process";
    case pb::SessionEvent::CHILD_EXIT:
      return fmt::format("child exited with status {}", event.exit_status());
    case pb::SessionEvent::UPSTREAM_REFUSED:
      return "the server refused the connection";
    case pb::SessionEvent::REVISION:
      return event.revision() == 1   ? "protocol R1"
             : event.revision() == 2 ? "protocol R2+"
                                     : "protocol undecided";
    case pb::SessionEvent::RAW:
      return "framing lost: bytes are passed on as they come";
    case pb::SessionEvent::UNANSWERED:
      return "a request waits for its answer";
    case pb::SessionEvent::STALL:
      return "stall";
    case pb::SessionEvent::STALL_OVER:
      return "stall over";
    case pb::SessionEvent::APP_STARTED:
      return "server started";
    case pb::SessionEvent::POISON:
      return "request that can damage the server";
    default:
      return "note";
  }
}

}  // namespace

void SessionModel::Impl::OnPacket(const trace::Record& r) {
  if (!r.packet) return;
  const pb::Packet& p = *r.packet;
  if (p.has_event()) OnEvent(r);
  if (p.has_chunk()) OnChunk(r);
  if (p.has_raw()) OnRaw(r);
  if (p.has_header()) OnHeader(r);
  if (p.has_end()) OnEnd(r);
  if (p.has_region() && !p.region().problem().empty()) {
    Warn("sysmem", r.call,
         fmt::format("region {}: {}", p.region().index(), p.region().problem().substr(0, 200)));
  }
  if (p.has_loss()) {
    const pb::Loss& loss = p.loss();
    const auto same = std::find_if(s.losses.begin(), s.losses.end(), [&](const LossSeen& seen) {
      return seen.cause == loss.cause();
    });
    if (same == s.losses.end()) {
      if (s.losses.size() < 16) {
        s.losses.push_back({loss.cause(), loss.calls(), loss.packets(), loss.bytes(),
                            loss.first_time(), loss.last_time(),
                            loss.detail().substr(0, kMaxTextBytes)});
      }
    } else {
      same->calls = SaturatingAdd(same->calls, loss.calls());
      same->packets = SaturatingAdd(same->packets, loss.packets());
      same->bytes = SaturatingAdd(same->bytes, loss.bytes());
      same->last_ns = std::max(same->last_ns, loss.last_time());
    }
  }
}

void SessionModel::Impl::OnHeader(const trace::Record& r) {
  if (s.transport != Transport::kUnknown) return;
  s.transport = TransportFromText(r.packet->header().listen());
}

void SessionModel::Impl::OnEnd(const trace::Record& r) {
  const pb::End& end = r.packet->end();
  s.end = EndSeen{end.reason().substr(0, kMaxTextBytes), end.calls(), end.errors(), end.to_server(),
                  end.to_client()};
  // Totals by cause: they replace what the Loss packets said, which they include.
  if (end.losses_size() > 0) {
    s.losses.clear();
    for (const pb::Loss& loss : end.losses()) {
      if (s.losses.size() >= 16) break;
      s.losses.push_back({loss.cause(), loss.calls(), loss.packets(), loss.bytes(),
                          loss.first_time(), loss.last_time(),
                          loss.detail().substr(0, kMaxTextBytes)});
    }
  }
}

void SessionModel::Impl::Connect(const trace::Record& r) {
  const pb::SessionEvent& event = r.packet->event();
  const bool placeholder = s.connections_total == 0 && current().calls == 0;
  if (!placeholder) {
    if (!current().closed) CloseConnection("", r.time_ns);
    // Keep the first ones and the newest.
    if (s.connections.size() >= kMaxConnections) s.connections.pop_back();
    s.connections.emplace_back();
  }
  s.connections_total++;
  Connection& c = current();
  c.number = event.connection();
  c.transport = TransportFromText(event.transport());
  c.client_pid = event.client_pid();
  c.server_pid = event.server_pid();
  c.client_name = event.client_name().substr(0, 256);
  c.first_seq = r.call + 1;
  c.start_ns = r.time_ns;
  if (c.transport != Transport::kUnknown) {
    s.transport = c.transport;
    s.transport_inferred = false;
  }
  if (s.connections_total > 1) s.link.NewConnection();
  raw_told = false;
  any_request = false;
  last_was_error = false;
  halves.clear();
  open_bodies.clear();
}

void SessionModel::Impl::OnEvent(const trace::Record& r) {
  const pb::SessionEvent& event = r.packet->event();
  s.events_total++;
  if (s.events.size() < kMaxEvents)
    s.events.push_back({event.kind(), r.call, r.time_ns, event.connection(), EventText(event)});
  switch (event.kind()) {
    case pb::SessionEvent::CONNECT:
      Connect(r);
      break;
    case pb::SessionEvent::UPSTREAM_CONNECTED:
      if (event.server_pid()) current().server_pid = event.server_pid();
      break;
    case pb::SessionEvent::DISCONNECT: {
      Connection& c = current();
      c.unanswered = event.unanswered();
      c.undelivered_to_server = event.undelivered_to_server();
      c.undelivered_to_client = event.undelivered_to_client();
      CloseConnection(event.closed_first().substr(0, 20), r.time_ns);
      break;
    }
    case pb::SessionEvent::STALL:
      s.stalled = true;
      break;
    case pb::SessionEvent::STALL_OVER:
      s.stalled = false;
      break;
    case pb::SessionEvent::POISON:
      if (poison.size() < kMaxWarningsPerRule)
        poison.push_back({"poison", r.call, EventText(event)});
      break;
    default:
      break;
  }
  if (event.revision() == 1 || event.revision() == 2) {
    facts.declared_revision = event.revision() == 1 ? wire::Revision::kR1 : wire::Revision::kR2;
    if (event.kind() == pb::SessionEvent::REVISION)
      facts.declared_evidence = event.text().substr(0, 200);
  }
}

void SessionModel::Impl::CloseConnection(const std::string& closed_first, uint64_t time_ns) {
  Connection& c = current();
  if (c.closed) return;
  c.closed = true;
  c.closed_first = closed_first;
  c.end_ns = time_ns;
  c.last_seq = s.last_seq;
  for (const OpenBody& body : open_bodies) {
    if (body.of_reply && !body.error) ShortBody(body.header, body.seq, body.announced, body.got);
  }
  open_bodies.clear();
  GiveUpPending();
  if (c.undelivered_to_server > 0) {
    std::string text = fmt::format("{} from the client never made a whole request",
                                   Count(c.undelivered_to_server, "byte"));
    if (c.undelivered_to_server == wire::kRequestSizeR1)
      text += ": looks like R1 frame (26 bytes; the server waits for 33)";
    Warn(c.undelivered_to_server == wire::kRequestSizeR1 ? "B15" : "B13", s.last_seq,
         std::move(text));
  }
  if (closed_first != "server") return;
  const uint64_t seq = s.last_seq;
  if (last_was_error && !s.refusals.empty()) {
    const Refusal& refusal = s.refusals.back();
    std::string text = fmt::format("server closed after error reply ({}, record {})",
                                   CallText(refusal.header), refusal.seq);
    if (seq > refusal.seq)
      text += fmt::format("; {} after it", Count(seq - refusal.seq, "request"));
    Warn("B05", refusal.seq, std::move(text));
    return;
  }
  if (!any_request) return;
  const wire::CommandInfo* info = wire::FindCommand(last_request.command);
  if (info && !info->reply && recent.newest()) {
    Warn("T4", seq,
         fmt::format("server closed the connection without a message right after a posted write; "
                     "suspect: {} (record {})",
                     WriteText(*recent.newest()), recent.newest()->last_seq));
  } else {
    Warn(
        "closed", seq,
        fmt::format("server closed the connection first, without an error reply (last request: {})",
                    CallText(last_request)));
  }
}

void SessionModel::Impl::OnChunk(const trace::Record& r) {
  const pb::BodyChunk& chunk = r.packet->chunk();
  if (chunk.calls_back() > r.call) return;
  const uint64_t seq = r.call - chunk.calls_back();
  const auto body = std::find_if(open_bodies.rbegin(), open_bodies.rend(), [&](const OpenBody& b) {
    return b.seq == seq && b.of_reply == chunk.of_reply();
  });
  if (body == open_bodies.rend()) return;
  body->got = std::max(body->got, SaturatingAdd(chunk.offset(), chunk.data().size()));
  if (chunk.last()) body->got = std::max(body->got, chunk.received());
  if (body->error) {
    // The text of an error reply came after its header.
    for (auto refusal = s.refusals.rbegin(); refusal != s.refusals.rend(); ++refusal) {
      if (refusal->seq != seq) continue;
      if (refusal->text.size() == chunk.offset() && refusal->text.size() < kMaxTextBytes)
        refusal->text += chunk.data().substr(0, kMaxTextBytes - refusal->text.size());
      break;
    }
  }
  if (!chunk.last() && body->got < body->announced) return;
  if (body->got < body->announced && !body->error) {
    if (body->of_reply) {
      ShortBody(body->header, seq, body->announced, body->got);
    } else {
      Warn("B13", seq,
           fmt::format("the client went away inside {}: {} of {} payload bytes came",
                       CallText(body->header), Thousands(body->got), Thousands(body->announced)));
    }
  }
  open_bodies.erase(std::next(body).base());
}

void SessionModel::Impl::OnRaw(const trace::Record& r) {
  const pb::Raw& packet = r.packet->raw();
  const uint64_t size = std::max<uint64_t>(packet.size(), packet.data().size());
  uint64_t& total = packet.from_server() ? s.raw_from_server : s.raw_from_client;
  total = SaturatingAdd(total, size);
  // A reason stands at the first raw bytes of a direction; the second direction only follows.
  if (packet.reason().empty() || raw_told) return;
  raw_told = true;
  if (s.unreliable_from == 0) s.unreliable_from = r.call + 1;
  if (packet.from_server() && pending.empty()) {
    std::string last = "no request so far";
    if (any_request) {
      const wire::CommandInfo* info = wire::FindCommand(last_request.command);
      last = fmt::format("last request: {}, {}", CallText(last_request),
                         info && !info->reply ? "posted" : "answered");
    }
    Warn("B04", r.call,
         fmt::format("{} from server, but no request is waiting ({}); pairing of later replies is "
                     "unreliable",
                     Count(size, "byte"), last));
  } else if (packet.from_server()) {
    Warn("B04", r.call,
         fmt::format("{} from server that are no reply: {}; pairing of later replies is unreliable",
                     Count(size, "byte"), packet.reason().substr(0, 200)));
  } else if (packet.reason().find("unknown command") != std::string::npos) {
    const std::string name =
        packet.data().empty()
            ? std::string("a command")
            : std::string(wire::CommandName(static_cast<uint8_t>(packet.data()[0])));
    Warn("B13", r.call,
         fmt::format("{} is not in the protocol, so its length is not known: everything after is "
                     "passed on unread",
                     name));
  } else {
    Warn("B13", r.call,
         fmt::format("{} from client: {}{}", Count(size, "byte"), packet.reason().substr(0, 200),
                     size == wire::kRequestSizeR1 ? " (looks like R1 frame: 26 bytes)" : ""));
  }
}

}  // namespace tg::model
