#include "schemas/trace/text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "schemas/trace/wire_format.h"

namespace tg::trace {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxDepth = 50;  // protobuf itself gives up at 100

// Calls `bad(i)` for each byte that belongs to no character.
template <typename F>
void EachBadByte(std::span<const uint8_t> text, const F& bad) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = Utf8Length(text.subspan(i));
    if (n == 0) bad(i);
    i += n == 0 ? 1 : n;
  }
}

void Repair(std::string& text) {
  EachBadByte({reinterpret_cast<const uint8_t*>(text.data()), text.size()},
              [&](size_t i) { text[i] = '?'; });
}

// Calls `bad(offset)` for each bad byte of each string in a serialised message. False: malformed
// (groups too: there are none in trace.proto).
template <typename F>
bool EachBadByte(std::span<const uint8_t> message, size_t offset, const Descriptor& type, int depth,
                 const F& bad) {
  if (depth > kMaxDepth) return false;
  const uint8_t* p = message.data();
  const uint8_t* const end = p + message.size();
  pb::Field f;
  while (p != end) {
    p = pb::GetField(p, end, f);
    if (p == nullptr) return false;
    if ((f.key & 7) != pb::kLen) continue;
    const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(f.key >> 3));
    if (field == nullptr) continue;
    const size_t at = offset + static_cast<size_t>(f.bytes.data() - message.data());
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      EachBadByte(f.bytes, [&](size_t i) { bad(at + i); });
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE &&
               !EachBadByte(f.bytes, at, *field->message_type(), depth + 1, bad)) {
      return false;
    }
  }
  return true;
}

}  // namespace

// Source: the Unicode standard's table of well-formed UTF-8 byte sequences (3-7).
size_t Utf8Length(std::span<const uint8_t> b) {
  const uint8_t lead = b[0];
  if (lead < 0x80) return 1;
  const size_t n = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (n == 0 || b.size() < n) return 0;
  for (size_t i = 1; i < n; i++) {
    if ((b[i] & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && b[1] < 0xa0) || (lead == 0xf0 && b[1] < 0x90);
  const bool surrogate = lead == 0xed && b[1] > 0x9f;
  const bool beyond = lead == 0xf4 && b[1] > 0x8f;
  return overlong || surrogate || beyond ? 0 : n;
}

void MakeUtf8(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool text = field->type() == FieldDescriptor::TYPE_STRING;
    if (!text && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field->is_map()) continue;  // the format's only map has numbers on both sides
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; i++) {
      if (!text) {
        MakeUtf8(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, i)
                                      : *reflection.MutableMessage(&message, field));
        continue;
      }
      std::string value = field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                               : reflection.GetString(message, field);
      Repair(value);
      if (field->is_repeated())
        reflection.SetRepeatedString(&message, field, i, std::move(value));
      else
        reflection.SetString(&message, field, std::move(value));
    }
  }
}

bool ParseUntrusted(std::span<const uint8_t> bytes, Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  bool any = false;
  if (!EachBadByte(bytes, 0, type, 0, [&](size_t) { any = true; })) return false;
  std::string repaired;
  if (any) {
    repaired.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    EachBadByte(bytes, 0, type, 0, [&](size_t at) { repaired[at] = '?'; });
    bytes = {reinterpret_cast<const uint8_t*>(repaired.data()), repaired.size()};
  }
  // Partial: a missing required field (descriptor.proto has some) is no reason to complain.
  return message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace tg::trace
