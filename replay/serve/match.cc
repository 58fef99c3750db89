#include "replay/serve/match.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "schemas/wire/bytes.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tg::replay {
namespace {

// Flags of a page-table entry live below bit 12 and above bit 47 and are compared as they are.
constexpr uint64_t kAddressMask = 0x0000'ffff'ffff'f000;
constexpr uint64_t kLowest = 1u << 20;  // smaller numbers are counts and flags, not addresses

bool Zero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

uint64_t Hash(std::span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

bool AddressMap::Match(uint64_t recorded, uint64_t now, bool commit) {
  const uint64_t from = recorded & kAddressMask, to = now & kAddressMask;
  if (recorded == now) {
    const auto there = forward_.find(from);
    return there == forward_.end() || there->second == to;
  }
  if ((recorded & ~kAddressMask) != (now & ~kAddressMask)) return false;
  if (from < kLowest || to < kLowest) return false;
  const auto there = forward_.find(from);
  const auto back = backward_.find(to);
  if (there != forward_.end() || back != backward_.end())
    return there != forward_.end() && back != backward_.end() && there->second == to &&
           back->second == from;
  if (!commit) return true;
  if (forward_.size() == kMaxPairs) return false;
  forward_[from] = to;
  backward_[to] = from;
  return true;
}

bool SamePayload(const Bytes& recorded, const Received& received) {
  if (recorded.size != received.payload_size) return false;
  if (recorded.size == 0) return true;
  const bool have = received.payload.size() == received.payload_size;
  if (recorded.all_zero) return have ? Zero(received.payload) : received.all_zero;
  if (recorded.data.size() == recorded.size)
    return have ? std::memcmp(recorded.data.data(), received.payload.data(),
                              recorded.data.size()) == 0
                : received.xxh3 == Hash(recorded.data);
  if (have && !std::equal(recorded.data.begin(), recorded.data.end(), received.payload.begin()))
    return false;
  if (!recorded.xxh3) return true;  // no more is known of it
  return (have ? Hash(received.payload) : received.xxh3.value_or(0)) == *recorded.xxh3;
}

bool SamePayload(const Bytes& recorded, const Received& received, AddressMap& addresses) {
  if (recorded.size != received.payload_size || recorded.data.size() != recorded.size ||
      received.payload.size() != recorded.size || recorded.size % 8 != 0)
    return SamePayload(recorded, received);
  // Words of one payload must also agree among themselves, so try before keeping.
  AddressMap local;
  for (const bool commit : {false, true}) {
    for (size_t i = 0; i < recorded.data.size(); i += 8) {
      const uint64_t was = LoadLe<uint64_t>(recorded.data.data() + i);
      const uint64_t is = LoadLe<uint64_t>(received.payload.data() + i);
      if (!addresses.Match(was, is, commit)) return false;
      if (!commit && !local.Match(was, is, true)) return false;
    }
  }
  return true;
}

std::string DescribeDifference(const Call& recorded, const Received& received) {
  const wire::RequestHeader& was = recorded.request;
  const wire::RequestHeader& is = received.request;
  if (was.command != is.command)
    return fmt::format("the command is {}, recorded {}", wire::CommandName(is.command),
                       wire::CommandName(was.command));
  const wire::CommandInfo* info = wire::FindCommand(was.command);
  std::string text;
  const auto differ = [&](const char* name, uint64_t is_word, uint64_t was_word) {
    if (is_word == was_word) return;
    if (!text.empty()) text += "; ";
    text += fmt::format("{} is {:#x}, recorded {:#x}", name, is_word, was_word);
  };
  const bool access = info && (info->payload || info->body == wire::BodyRule::kArg1);
  differ("device", is.dev, was.dev);
  differ(info && info->bar_is_handle ? "region" : "BAR", is.bar, was.bar);
  differ(access ? "offset" : "arg0", is.arg0, was.arg0);
  differ(access ? "size" : "arg1", is.arg1, was.arg1);
  differ("arg2", is.arg2, was.arg2);
  if (!text.empty() || SamePayload(recorded.payload, received)) return text;
  const size_t common = std::min(recorded.payload.data.size(), received.payload.size());
  size_t at = 0;
  while (at < common && recorded.payload.data[at] == received.payload[at]) at++;
  if (at == common) return "the data differs from the recorded hash";
  at &= ~size_t{3};
  const auto word = [&](std::span<const uint8_t> bytes) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, std::min<size_t>(4, bytes.size() - at));
    return value;
  };
  return fmt::format("the data differs from byte {:#x} on: {:#010x}, recorded {:#010x}", at,
                     word(received.payload), word(recorded.payload.data));
}

}  // namespace tg::replay
