// Finds where two event streams differ, in one pass and bounded memory.
//
// Problem: a good trace and a hung one agree for tens of thousands of events, then one has a run
// the other has not (a kernel launch more, a longer boot), then they agree again. A line diff needs
// both files in memory; comparing index by index calls everything after the first insertion
// different.
//
// Algorithm. Both streams advance while their events are equal. At the first unequal pair, windows
// of 64, then 256, ... kMaxWindow events are read ahead on both sides. Every run of kGram events in
// the second window is put into a hash table; the runs of the first are looked up in it. Of all
// pairs (i, j) where the streams agree again the one with the smallest i + j is taken, then the
// smallest |i - j|, then the smallest hash of what they agree on: each of these is the same when
// the arguments are swapped, so the result is symmetric. The i events of the first and j of the
// second stream before it are one Difference. Two ends of stream count as agreeing. If even the
// largest window shows no such place, the rest of both streams is one Difference that says so.
//
// Time O(n) hash operations for n events as long as differences are rare; memory: two windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace tg::diff {

struct Event;

// What alignment needs to know of an event. Two events are equal when both hashes are.
struct Token {
  uint64_t key = 0;                    // what was accessed and how
  uint64_t value = 0;                  // what was written or read
  std::shared_ptr<const Event> event;  // the caller's own
  friend bool operator==(const Token& a, const Token& b) {
    return a.key == b.key && a.value == b.value;
  }
};

inline constexpr size_t kGram = 4;
inline constexpr size_t kMaxWindow = 1u << 16;
inline constexpr size_t kContext = 20;  // equal events kept before a difference

struct Difference {
  enum class Kind : uint8_t {
    kValue,     // the same accesses in the same order, with other values
    kMissing,   // events of the first stream that the second has not
    kExtra,     // the other way round
    kOrder,     // the same events in another order
    kReplaced,  // other events
    kDiverged,  // no common place found again
  };
  Kind kind = Kind::kReplaced;
  uint64_t at_a = 0, at_b = 0;  // index in the stream of the first event concerned
  uint64_t count_a = 0, count_b = 0;
  // The events, at most kKept of each side, and the equal ones before them (at most kContext).
  std::vector<Token> a, b, before_a, before_b;
  static constexpr size_t kKept = 64;
};
std::string_view KindName(Difference::Kind kind);

class Aligner {
 public:
  // Each call gives the next event, false at the end.
  using Source = std::function<bool(Token&)>;
  Aligner(Source a, Source b)
      : a_{std::move(a), {}, {}, 0, false}, b_{std::move(b), {}, {}, 0, false} {}

  // The next difference, or false when both streams ended without another one.
  bool Next(Difference& difference);

  uint64_t events_a() const { return a_.taken; }
  uint64_t events_b() const { return b_.taken; }

 private:
  struct Side {
    Source source;
    std::deque<Token> window;   // read ahead, not aligned yet
    std::deque<Token> context;  // the last equal ones
    uint64_t taken = 0;         // events aligned or reported
    bool ended = false;
    // True when the window holds n events or the stream has ended.
    void Fill(size_t n);
    void TakeEqual();
  };
  struct Resync {
    bool found = false;
    size_t i = 0, j = 0;
  };
  Resync FindResync(size_t window);

  Side a_, b_;
};

}  // namespace tg::diff
