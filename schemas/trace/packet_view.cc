#include "schemas/trace/packet_view.h"

#include <algorithm>
#include <array>

#include "schemas/trace/crc32c.h"
#include "schemas/trace/encode.h"
#include "schemas/trace/fold.h"
#include "schemas/trace/ops.h"
#include "schemas/trace/wire_format.h"

namespace tg::trace {
namespace {

using pb::Field;
using pb::Key;
using Bytes = std::span<const uint8_t>;

// Calls `use(field)` for each field; false when a field is malformed or `use` refuses it.
template <typename F>
bool EachField(Bytes message, const F& use) {
  const uint8_t* p = message.data();
  const uint8_t* const end = p + message.size();
  Field field;
  while (p != end) {
    p = pb::GetField(p, end, field);
    if (p == nullptr || !use(field)) return false;
  }
  return true;
}

std::string_view Text(Bytes b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

constexpr std::array<uint8_t, kRepeatStateSize> kZero = {};

// A part of a packet that changes after its checksum was made, and what it held then.
struct Hole {
  Bytes bytes;
  const uint8_t* before;
};

// The checksum of `bytes` as they were before the `holes` in them (in order) changed.
uint32_t SumWithHoles(Bytes bytes, std::span<const Hole> holes) {
  uint32_t crc = 0;
  const uint8_t* p = bytes.data();
  for (const Hole& hole : holes) {
    crc = Crc32c({p, hole.bytes.data()}, crc);
    crc = Crc32c({hole.before, hole.bytes.size()}, crc);
    p = hole.bytes.data() + hole.bytes.size();
  }
  return Crc32c({p, bytes.data() + bytes.size()}, crc);
}

bool RepeatSumHolds(Bytes summed, Bytes repeat, uint32_t crc) {
  std::array<Bytes, 2> states;
  const bool sound = EachField(repeat, [&](const Field& f) {
    if (f.key == Key(2, pb::kLen)) states[0] = f.bytes;
    if (f.key == Key(3, pb::kLen)) states[1] = f.bytes;
    return true;
  });
  if (!sound || states[0].size() != kRepeatStateSize || states[1].size() != kRepeatStateSize)
    return false;
  if (states[1].data() < states[0].data()) std::swap(states[0], states[1]);
  const std::array<Hole, 2> holes = {{{states[0], kZero.data()}, {states[1], kZero.data()}}};
  return SumWithHoles(summed, holes) == crc;
}

bool PendingSumHolds(Bytes summed, const PacketView& view, uint32_t crc) {
  const OpShape* shape = FindOp(view.op);
  const Bytes data = shape == nullptr ? Bytes() : shape->size == 4 ? view.data32 : view.data64;
  if (shape == nullptr || !shape->read || data.empty() || view.latency_slot.empty()) return false;
  uint8_t latency[2];
  PutLatencySlot(latency, 0);
  std::array<Hole, 2> holes = {{{data, kZero.data()}, {view.latency_slot, latency}}};
  if (holes[1].bytes.data() < holes[0].bytes.data()) std::swap(holes[0], holes[1]);
  return SumWithHoles(summed, holes) == crc;
}

bool ParseBody(Bytes message, BodyView& body) {
  body = {};
  const bool sound = EachField(message, [&](const Field& f) {
    switch (f.key) {
      case Key(1, pb::kVarint):
        body.size = f.value;
        break;
      case Key(2, pb::kLen):
        body.data = f.bytes;
        break;
      case Key(3, pb::kI64):
        body.xxh3 = f.value;
        break;
      case Key(4, pb::kVarint):
        body.all_zero = f.value != 0;
        break;
      case Key(5, pb::kVarint):
        body.streamed = f.value != 0;
        break;
      default:
        break;
    }
    return true;
  });
  if (body.data.size() > body.size) body.data = body.data.first(body.size);
  return sound;
}

bool ParseCall(Bytes message, RepeatedCall& call) {
  bool request = false;
  const bool sound = EachField(message, [&](const Field& f) {
    if (f.key == Key(1, pb::kLen)) {
      request = true;
      return ParseRequest(f.bytes, call.request);
    }
    if (f.key == Key(2, pb::kLen)) {
      ReplyFields unused;
      return ParseReply(f.bytes, call.reply.emplace(), unused);
    }
    return true;
  });
  return sound && request;
}

}  // namespace

std::string_view VerdictText(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kMalformed:
      return "not a packet";
    case Verdict::kBadChecksum:
      return "checksum does not match";
  }
  return "";
}

Frame ReadFrame(std::span<const uint8_t> bytes) {
  Frame frame;
  if (bytes.empty()) return frame;
  if (bytes[0] != pb::kPacketTag) {
    frame.state = Frame::State::kNoTag;
    return frame;
  }
  uint32_t size = 0;
  for (size_t i = 1; i < kMaxFrameHead; i++) {
    if (i >= bytes.size()) return frame;
    size |= static_cast<uint32_t>(bytes[i] & 0x7f) << (7 * (i - 1));
    if (bytes[i] < 0x80) {
      const bool sane = size > pb::kCrcField && size <= kMaxPacket;
      frame.state = sane ? Frame::State::kWhole : Frame::State::kAbsurd;
      frame.head = i + 1;
      frame.body = size;
      return frame;
    }
  }
  frame.state = Frame::State::kAbsurd;
  return frame;
}

Verdict ReadPacket(std::span<const uint8_t> body, PacketView& view) {
  view = {};
  if (body.size() <= pb::kCrcField || body[body.size() - pb::kCrcField] != pb::kCrcKey)
    return Verdict::kMalformed;
  const Bytes summed = body.first(body.size() - pb::kCrcField);
  const uint32_t crc = LoadLe<uint32_t>(summed.data() + summed.size() + 1);

  const uint8_t* p = summed.data();
  const uint8_t* const end = p + summed.size();
  Field field;
  while (p != end) {
    const uint8_t* const begin = p;
    p = pb::GetField(p, end, field);
    if (p == nullptr) return Verdict::kMalformed;
    switch (field.key) {
      case Key(1, pb::kVarint):
        view.dt = field.value;
        break;
      case Key(2, pb::kVarint):
        view.op = field.value;
        view.kind = PacketView::kOp;
        break;
      case Key(3, pb::kVarint):
        view.arg0 = field.value;
        break;
      case Key(4, pb::kI32):
        view.data32 = {p - 4, 4};
        break;
      case Key(5, pb::kI64):
        view.data64 = {p - 8, 8};
        break;
      case Key(6, pb::kVarint):
        view.latency = field.value;
        if (p - begin == 3) view.latency_slot = {p - 2, 2};
        break;
      case Key(14, pb::kVarint):
        view.handle = field.value;
        break;
      default: {
        const uint32_t number = field.key >> 3;
        const bool known = (number >= 7 && number <= 13) || (number >= 16 && number <= 21);
        if (!known || (field.key & 7) != pb::kLen) break;
        view.kind = number;
        view.message = field.bytes;
      }
    }
  }
  if (view.kind == PacketView::kRepeat)
    return RepeatSumHolds(summed, view.message, crc) ? Verdict::kGood : Verdict::kBadChecksum;
  if (Crc32c(summed) == crc) return Verdict::kGood;
  if (view.kind == PacketView::kOp && PendingSumHolds(summed, view, crc)) {
    view.latency = 0;
    return Verdict::kGood;
  }
  return Verdict::kBadChecksum;
}

bool ParseRequest(std::span<const uint8_t> message, RequestView& view) {
  view = {};
  wire::RequestHeader& h = view.header;
  return EachField(message, [&](const Field& f) {
    switch (f.key) {
      case Key(1, pb::kVarint):
        h.command = static_cast<uint8_t>(f.value);
        return f.value <= UINT8_MAX;
      case Key(2, pb::kVarint):
        h.dev = static_cast<uint32_t>(f.value);
        break;
      case Key(3, pb::kVarint):
        h.bar = static_cast<uint32_t>(f.value);
        break;
      case Key(4, pb::kVarint):
        h.arg0 = f.value;
        break;
      case Key(5, pb::kVarint):
        h.arg1 = f.value;
        break;
      case Key(6, pb::kVarint):
        h.arg2 = f.value;
        break;
      case Key(7, pb::kLen):
        return ParseBody(f.bytes, view.payload);
      case Key(8, pb::kVarint):
        view.truncated = f.value != 0;
        break;
      case Key(9, pb::kVarint):
        view.received = f.value;
        break;
      case Key(10, pb::kLen):
        view.injected = Text(f.bytes);
        break;
      case Key(11, pb::kLen):
        view.refused = Text(f.bytes);
        break;
      default:
        break;
    }
    return true;
  });
}

bool ParseReply(std::span<const uint8_t> message, ReplyView& view, ReplyFields& fields) {
  view = {};
  fields = {};
  return EachField(message, [&](const Field& f) {
    switch (f.key) {
      case Key(1, pb::kVarint):
        fields.calls_back = f.value;
        break;
      case Key(2, pb::kVarint):
        view.reply.status = static_cast<uint8_t>(f.value);
        return f.value <= UINT8_MAX;
      case Key(3, pb::kVarint):
        view.reply.resp0 = f.value;
        break;
      case Key(4, pb::kVarint):
        view.reply.resp1 = f.value;
        break;
      case Key(5, pb::kLen):
        return ParseBody(f.bytes, view.body);
      case Key(6, pb::kVarint):
        view.descriptors = static_cast<uint32_t>(f.value);
        break;
      case Key(7, pb::kVarint):
        view.control_truncated = f.value != 0;
        break;
      case Key(8, pb::kVarint):
        fields.latency = f.value;
        break;
      case Key(10, pb::kLen):
        view.injected = Text(f.bytes);
        break;
      default:
        break;
    }
    return true;
  });
}

bool ParseRepeat(std::span<const uint8_t> message, std::vector<RepeatedCall>& pattern,
                 RepeatState& state) {
  pattern.clear();
  bool have_state = false;
  const bool sound = EachField(message, [&](const Field& f) {
    if (f.key == Key(1, pb::kLen))
      return pattern.size() < kMaxPeriod && ParseCall(f.bytes, pattern.emplace_back());
    RepeatState s;
    if ((f.key == Key(2, pb::kLen) || f.key == Key(3, pb::kLen)) && GetRepeatState(f.bytes, s)) {
      // Equal `issued`: the later one has one answer more.
      if (!have_state || s.issued > state.issued ||
          (s.issued == state.issued && s.answered > state.answered))
        state = s;
      have_state = true;
    }
    return true;
  });
  return sound && have_state && !pattern.empty();
}

bool ParseMarker(std::span<const uint8_t> message, MarkerFields& fields) {
  return EachField(message, [&](const Field& f) {
    switch (f.key) {
      case Key(1, pb::kLen):
        fields.magic = Text(f.bytes);
        break;
      case Key(2, pb::kVarint):
        fields.time = f.value;
        break;
      case Key(3, pb::kVarint):
        fields.calls = f.value;
        break;
      default:
        break;
    }
    return true;
  });
}

}  // namespace tg::trace
