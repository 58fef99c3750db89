// Strings of protobuf messages that are not UTF-8: paths, process names, and whatever a damaged or
// crafted file holds. libprotobuf refuses such a message when it parses it and prints to stderr;
// here every byte that belongs to no character becomes '?', and the message is kept.
#pragma once

#include <cstdint>
#include <span>

namespace google::protobuf {
class Message;
}

namespace tg::trace {

// Length of the UTF-8 character at the front, 0 when there is none. `bytes` must not be empty.
size_t Utf8Length(std::span<const uint8_t> bytes);

// Repairs the strings of a message that is about to be written.
void MakeUtf8(google::protobuf::Message& message);

// Parses bytes from anywhere, its strings repaired, without a word on stderr. False: malformed.
bool ParseUntrusted(std::span<const uint8_t> bytes, google::protobuf::Message& message);

}  // namespace tg::trace
