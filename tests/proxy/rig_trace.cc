// The trace of a proxy under test, read back; see rig.h.
#include <gtest/gtest.h>

#include "tests/proxy/rig.h"

namespace tg::proxy::test {

namespace pb = tinygpu::trace;

namespace {

TracedCall FromView(const trace::RequestView& view) {
  TracedCall call;
  call.header = view.header;
  call.payload.assign(view.payload.data.begin(), view.payload.data.end());
  call.payload_size = view.payload.size;
  call.truncated = view.truncated;
  return call;
}

void Answer(TracedCall& call, const trace::ReplyView& view) {
  call.answered = true;
  call.reply = view.reply;
  call.body.assign(view.body.data.begin(), view.body.data.end());
  call.body_size = view.body.size;
  call.descriptors = view.descriptors;
  call.control_truncated = view.control_truncated;
}

}  // namespace

Decoded Decode(const std::string& path) {
  Decoded out;
  auto reader = trace::TraceReader::Open(path);
  if (!reader) {
    ADD_FAILURE() << reader.error().message;
    return out;
  }
  const auto skip_to = [&out](uint64_t call) {  // not recorded
    ASSERT_LT(call, out.calls.size() + 1'000'000);
    for (; out.calls.size() < call; out.lost_calls++) out.calls.emplace_back();
  };
  trace::Record record;
  while ((*reader)->Next(record)) {
    switch (record.kind) {
      case trace::Record::Kind::kRequest:
        EXPECT_GT(record.call, out.calls.size());
        skip_to(record.call - 1);
        out.calls.push_back(FromView(record.request));
        break;
      case trace::Record::Kind::kReply:
        // Space may come back between a request and its answer.
        if (record.call == 0) {
          ADD_FAILURE() << "reply to no call";
          break;
        }
        skip_to(record.call);
        Answer(out.calls[record.call - 1], record.reply);
        break;
      case trace::Record::Kind::kRepeat: {
        uint64_t answered = 0;
        for (uint64_t i = 0; i < record.issued; i++) {
          const trace::RepeatedCall& model = record.pattern[i % record.pattern.size()];
          out.calls.push_back(FromView(model.request));
          if (model.reply && answered++ < record.answered) Answer(out.calls.back(), *model.reply);
        }
        break;
      }
      case trace::Record::Kind::kPacket:
        out.packets.push_back(*record.packet);
        // Readers see the newest call; chunks count back from it.
        if (record.packet->has_chunk()) {
          auto* chunk = out.packets.back().mutable_chunk();
          chunk->set_calls_back(out.calls.size() - chunk->calls_back());  // now: call number
        }
        break;
    }
  }
  out.end_state = (*reader)->end_state();
  EXPECT_TRUE((*reader)->skipped().empty());
  return out;
}

std::vector<pb::SessionEvent> Decoded::Events(pb::SessionEvent::Kind kind) const {
  std::vector<pb::SessionEvent> found;
  for (const pb::Packet& packet : packets)
    if (packet.has_event() && packet.event().kind() == kind) found.push_back(packet.event());
  return found;
}

std::vector<pb::SysmemRegion> Decoded::Regions() const {
  std::vector<pb::SysmemRegion> found;
  for (const pb::Packet& packet : packets)
    if (packet.has_region()) found.push_back(packet.region());
  return found;
}

std::vector<pb::Raw> Decoded::Raws() const {
  std::vector<pb::Raw> found;
  for (const pb::Packet& packet : packets)
    if (packet.has_raw()) found.push_back(packet.raw());
  return found;
}

const pb::End* Decoded::End() const {
  return !packets.empty() && packets.back().has_end() ? &packets.back().end() : nullptr;
}

namespace {

Bytes WithChunks(Bytes start, const std::vector<pb::Packet>& packets, size_t call, bool of_reply) {
  for (const pb::Packet& packet : packets) {
    if (!packet.has_chunk() || packet.chunk().calls_back() != call ||
        packet.chunk().of_reply() != of_reply || packet.chunk().data().empty())
      continue;
    EXPECT_EQ(packet.chunk().offset(), start.size());
    start.insert(start.end(), packet.chunk().data().begin(), packet.chunk().data().end());
  }
  return start;
}

}  // namespace

Bytes Decoded::WholePayload(size_t call) const {
  return WithChunks(calls.at(call - 1).payload, packets, call, false);
}

Bytes Decoded::WholeBody(size_t call) const {
  return WithChunks(calls.at(call - 1).body, packets, call, true);
}

}  // namespace tg::proxy::test
