// Finds where two event streams differ, in one pass and bounded memory.
//
// Problem: a good trace and a hung one agree for tens of thousands of events, then one has a run
// the other has not (a kernel launch more, a longer boot), then they agree again. A line diff needs
// both files in memory; comparing index by index calls everything after the first insertion
// different.
//
// Algorithm. Both streams advance while their events are equal: fixed parts by hash, numbers that
// may be renamed by what is learnt of the renaming so far (renaming.h). At the first unequal pair
// windows of 64, then 256, ... kMaxWindow events are read ahead on both sides. Every place (i, j)
// of them where kGram fixed parts in a row agree is a candidate: the streams may agree again after
// i events of the first and j of the second. Each is tried: from there on the streams are walked in
// step, with a copy of the renaming that has seen what was skipped, for kTrial events. The
// candidate that costs least is taken:
//
//     i + j  +  16 per event of the trial after the streams part again
//            +  64 per event whose fixed parts agree and whose numbers do not
//            +   1 per event of the same kind with another value
//
// so that repeated phrases (a TLB flush, "flush, doorbell") do not pass for the place, while a
// second difference nearby stays one of its own. Ties go to the smaller |i - j|, then to the
// smaller hash of what agrees: all of this is the same when the arguments are swapped. Two ends of
// stream agree. If even the largest window shows no such place, the rest of both streams is one
// Difference that says so. Two differences that are each other's mirror (an event here that is
// missing there) are one: events in another order.
//
// Gaps, where records were lost, match nothing; a difference that holds one is no difference of the
// device and has the kind kGap.
//
// Time O(n) for n events as long as differences are rare; memory: two windows.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/diff/renaming.h"
#include "decoder/diff/token.h"

namespace tg::diff {

inline constexpr size_t kGram = 4;
inline constexpr size_t kTrial = 64;
inline constexpr size_t kMaxWindow = 1u << 16;
inline constexpr uint64_t kPatience = 4096;  // differences after which the effort is bounded
inline constexpr size_t kContext = 20;       // equal events kept before a difference

struct Difference {
  enum class Kind : uint8_t {
    kValue,     // the same accesses in the same order, with other values
    kMissing,   // events of the first stream that the second has not
    kExtra,     // the other way round
    kOrder,     // the same events in another order
    kReplaced,  // other events
    kDiverged,  // no common place found again
    kGap,       // records were lost in one of the traces: says nothing
  };
  Kind kind = Kind::kReplaced;
  uint64_t at_a = 0, at_b = 0;  // index in the stream of the first event concerned
  uint64_t count_a = 0, count_b = 0;
  // The events, at most kKept of each side, and the equal ones before them (at most kContext).
  std::vector<Token> a, b, before_a, before_b;
  static constexpr size_t kKept = 64;
  // A doorbell's packets differ: the first of them.
  std::optional<size_t> part;
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
    // The window holds n events, or the stream has ended.
    void Fill(size_t n);
    void TakeEqual();
  };
  struct Resync {
    bool found = false;
    size_t i = 0, j = 0;
  };
  struct Candidate {
    size_t i = 0, j = 0;
    uint64_t gram = 0;
  };
  bool Find(Difference& difference);
  Resync FindResync(size_t window);
  std::vector<Candidate> Candidates(size_t window) const;
  // Without `trial` by fixed parts alone: never more than with it.
  uint64_t Penalty(const Candidate& at, Matcher* trial) const;
  void SkipInto(Matcher& matcher, size_t i, size_t j) const;

  Side a_, b_;
  Matcher matcher_;
  uint64_t differences_ = 0;
  std::optional<Difference> held_;  // found already, behind the one given out
};

}  // namespace tg::diff
