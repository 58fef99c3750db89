#include "decoder/diff/align.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace tg::diff {
namespace {

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash ^= word + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 33);
}

// Hashes of the events [at, at + kGram), or of what is left before the end of an ended stream, for
// all places of the first `size` where a gram begins. Behind an ended stream's last event one does.
std::vector<uint64_t> Grams(const std::deque<Token>& window, bool ended, size_t size) {
  const size_t whole = window.size() >= kGram ? window.size() - kGram + 1 : 0;
  std::vector<uint64_t> grams(std::min(size, ended ? window.size() + 1 : whole));
  for (size_t at = 0; at < grams.size(); at++) {
    uint64_t hash = 1;
    const size_t end = std::min(window.size(), at + kGram);
    for (size_t i = at; i < end; i++) {
      // A gap agrees with nothing, not even with another one.
      if (window[i].gap) hash = Mix(hash, reinterpret_cast<uintptr_t>(&window[i]));
      hash = Mix(Mix(hash, window[i].key), window[i].value);
    }
    grams[at] = end - at < kGram ? Mix(hash, end - at) : hash;
  }
  return grams;
}

Difference::Kind Classify(const std::deque<Token>& a, size_t i, const std::deque<Token>& b,
                          size_t j) {
  using Kind = Difference::Kind;
  const auto gap = [](const Token& t) { return t.gap; };
  if (std::any_of(a.begin(), a.begin() + static_cast<ptrdiff_t>(i), gap) ||
      std::any_of(b.begin(), b.begin() + static_cast<ptrdiff_t>(j), gap))
    return Kind::kGap;
  if (j == 0) return Kind::kMissing;
  if (i == 0) return Kind::kExtra;
  if (i != j) return Kind::kReplaced;
  bool same_keys = true, same = true;
  std::vector<std::pair<uint64_t, uint64_t>> left, right;
  for (size_t k = 0; k < i; k++) {
    same_keys = same_keys && a[k].key == b[k].key;
    same = same && a[k].SameFixed(b[k]);
    left.emplace_back(a[k].key, a[k].value);
    right.emplace_back(b[k].key, b[k].value);
  }
  std::sort(left.begin(), left.end());
  std::sort(right.begin(), right.end());
  if (!same && left == right) return Kind::kOrder;
  return same_keys ? Kind::kValue : Kind::kReplaced;
}

bool Moves(Difference::Kind kind) {
  return kind != Difference::Kind::kValue && kind != Difference::Kind::kOrder;
}

bool Same(const std::vector<Token>& a, const std::vector<Token>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Token& x, const Token& y) { return x.SameFixed(y); });
}

}  // namespace

std::string_view KindName(Difference::Kind kind) {
  switch (kind) {
    case Difference::Kind::kValue:
      return "value";
    case Difference::Kind::kMissing:
      return "missing";
    case Difference::Kind::kExtra:
      return "extra";
    case Difference::Kind::kOrder:
      return "order";
    case Difference::Kind::kReplaced:
      return "replaced";
    case Difference::Kind::kDiverged:
      return "diverged";
    case Difference::Kind::kGap:
      return "gap";
  }
  return "";
}

void Aligner::Side::Fill(size_t n) {
  while (window.size() < n && !ended) {
    Token token;
    if (source(token))
      window.push_back(std::move(token));
    else
      ended = true;
  }
}

void Aligner::Side::TakeEqual() {
  context.push_back(std::move(window.front()));
  if (context.size() > kContext) context.pop_front();
  window.pop_front();
  taken++;
}

// The first few places of each gram are enough: a later one costs more, and the bound keeps a
// stream of equal events from making this quadratic. Taken from both sides, so that swapping the
// streams changes nothing.
std::vector<Aligner::Candidate> Aligner::Candidates(size_t size) const {
  constexpr size_t kPlaces = 8;
  const std::vector<uint64_t> a = Grams(a_.window, a_.ended, size);
  const std::vector<uint64_t> b = Grams(b_.window, b_.ended, size);
  std::vector<Candidate> out;
  const auto look = [&out](const std::vector<uint64_t>& from, const std::vector<uint64_t>& in,
                           bool swapped) {
    std::unordered_map<uint64_t, std::vector<uint32_t>> places;
    places.reserve(in.size());
    for (size_t j = 0; j < in.size(); j++) {
      auto& list = places[in[j]];
      if (list.size() < kPlaces) list.push_back(static_cast<uint32_t>(j));
    }
    for (size_t i = 0; i < from.size(); i++) {
      const auto found = places.find(from[i]);
      if (found == places.end()) continue;
      for (const size_t j : found->second) {
        if (i + j == 0) continue;
        out.push_back(swapped ? Candidate{j, i, from[i]} : Candidate{i, j, from[i]});
      }
    }
  };
  look(a, b, false);
  look(b, a, true);
  // Equal events in a row: the same distance at every place.
  for (size_t i = 1; i < std::min(a.size(), b.size()); i++)
    if (a[i] == b[i]) out.push_back({i, i, a[i]});
  const auto rank = [](const Candidate& c) {
    return std::make_tuple(c.i + c.j, c.i > c.j ? c.i - c.j : c.j - c.i, c.gram, c.i);
  };
  std::sort(out.begin(), out.end(),
            [&](const Candidate& x, const Candidate& y) { return rank(x) < rank(y); });
  out.erase(
      std::unique(out.begin(), out.end(),
                  [](const Candidate& x, const Candidate& y) { return x.i == y.i && x.j == y.j; }),
      out.end());
  return out;
}

void Aligner::SkipInto(Matcher& matcher, size_t i, size_t j) const {
  for (size_t k = 0; k < i; k++) matcher.Skip(a_.window[k], false);
  for (size_t k = 0; k < j; k++) matcher.Skip(b_.window[k], true);
  if (Moves(Classify(a_.window, i, b_.window, j))) matcher.GrantAddresses();
}

uint64_t Aligner::Penalty(const Candidate& at, Matcher* trial) const {
  uint64_t penalty = 0;
  size_t i = at.i, j = at.j;
  for (size_t k = 0; k < kTrial; k++, i++, j++) {
    while (i < a_.window.size() && a_.window[i].solo) i++;
    while (j < b_.window.size() && b_.window[j].solo) j++;
    const bool a_ends = i >= a_.window.size(), b_ends = j >= b_.window.size();
    if (a_ends || b_ends) {
      const bool both = a_ends && b_ends && a_.ended == b_.ended;
      return both ? penalty : penalty + 16 * (kTrial - k);
    }
    const Token &a = a_.window[i], &b = b_.window[j];
    const bool same = a.SameFixed(b);
    if (!same && (a.key != b.key || a.gap || b.gap)) return penalty + 16 * (kTrial - k);
    if (!same)
      penalty += 1;
    else if (!trial || trial->Pair(a, b))
      continue;
    else
      penalty += 64;
    if (!trial) continue;
    // What differs here is no help for what comes after.
    trial->Skip(a, false);
    trial->Skip(b, true);
  }
  return penalty;
}

Aligner::Resync Aligner::FindResync(size_t size) {
  a_.Fill(size + kTrial);
  b_.Fill(size + kTrial);
  Resync best;
  uint64_t least = UINT64_MAX;
  // Traces that have little in common must not take for ever.
  size_t trials = std::max<size_t>(8, 512 / (1 + differences_ / 64));
  for (const Candidate& c : Candidates(size)) {
    if (c.i + c.j >= least || trials == 0) break;
    if (c.i + c.j + Penalty(c, nullptr) >= least) continue;
    Matcher trial(&matcher_);
    SkipInto(trial, c.i, c.j);
    trials--;
    const uint64_t cost = c.i + c.j + Penalty(c, &trial);
    if (cost < least) {
      least = cost;
      best = {true, c.i, c.j};
    }
  }
  // A costly place may be beaten by one outside the window; a larger one decides.
  const bool all_seen =
      a_.ended && b_.ended && a_.window.size() <= size && b_.window.size() <= size;
  const size_t largest = differences_ < kPatience ? kMaxWindow : 256;
  if (best.found && least > size && size < largest && !all_seen) return {};
  return best;
}

bool Aligner::Find(Difference& difference) {
  for (;;) {
    a_.Fill(1);
    b_.Fill(1);
    if (a_.window.empty() && b_.window.empty()) return false;
    if (a_.window.empty() || b_.window.empty()) break;
    const Token &a = a_.window.front(), &b = b_.window.front();
    if (!a.SameFixed(b) || !matcher_.Pair(a, b)) break;
    a_.TakeEqual();
    b_.TakeEqual();
  }

  difference = {};
  differences_++;
  difference.at_a = a_.taken;
  difference.at_b = b_.taken;
  difference.before_a.assign(a_.context.begin(), a_.context.end());
  difference.before_b.assign(b_.context.begin(), b_.context.end());

  const auto take = [](Side& side, size_t n, std::vector<Token>& kept, uint64_t& count) {
    for (size_t k = 0; k < n; k++) {
      if (kept.size() < Difference::kKept) kept.push_back(std::move(side.window.front()));
      side.window.pop_front();
    }
    count += n;
    side.taken += n;
  };

  const size_t solo_a = !a_.window.empty() && a_.window.front().solo;
  const size_t solo_b = !b_.window.empty() && b_.window.front().solo;
  for (size_t window = 64; window <= kMaxWindow; window *= 4) {
    const Resync resync = solo_a + solo_b > 0 ? Resync{true, solo_a, solo_b} : FindResync(window);
    if (!resync.found) continue;
    difference.kind = Classify(a_.window, resync.i, b_.window, resync.j);
    if (resync.i > 0 && resync.j > 0 && a_.window.front().parts && b_.window.front().parts)
      difference.part =
          matcher_.FirstDifferentPart(*a_.window.front().parts, *b_.window.front().parts);
    SkipInto(matcher_, resync.i, resync.j);
    take(a_, resync.i, difference.a, difference.count_a);
    take(b_, resync.j, difference.b, difference.count_b);
    return true;
  }

  difference.kind = Difference::Kind::kDiverged;
  bool gap = false;
  for (auto [side, kept, count] : {std::make_tuple(&a_, &difference.a, &difference.count_a),
                                   std::make_tuple(&b_, &difference.b, &difference.count_b)}) {
    do {
      for (const Token& t : side->window) gap = gap || t.gap;
      take(*side, side->window.size(), *kept, *count);
      side->Fill(kMaxWindow);
    } while (!side->window.empty());
  }
  if (difference.count_b == 0) difference.kind = Difference::Kind::kMissing;
  if (difference.count_a == 0) difference.kind = Difference::Kind::kExtra;
  if (gap) difference.kind = Difference::Kind::kGap;
  return true;
}

bool Aligner::Next(Difference& difference) {
  if (held_) {
    difference = std::move(*held_);
    held_.reset();
  } else if (!Find(difference)) {
    return false;
  }
  using Kind = Difference::Kind;
  // Only what can have a mirror waits for the next one.
  const bool short_one = difference.count_a <= Difference::kKept &&
                         difference.count_b <= Difference::kKept &&
                         difference.kind != Kind::kOrder && difference.kind != Kind::kGap &&
                         difference.kind != Kind::kDiverged;
  if (!short_one) return true;
  Difference next;
  if (!Find(next)) return true;
  const bool near = next.at_a - difference.at_a <= 4 * kTrial;
  if (near && next.kind != Kind::kGap && next.count_a == difference.count_b &&
      next.count_b == difference.count_a && Same(difference.a, next.b) &&
      Same(difference.b, next.a)) {
    difference.kind = Kind::kOrder;
    // Shown: the events that changed places.
    difference.a.insert(difference.a.end(), next.a.begin(), next.a.end());
    difference.b.insert(difference.b.end(), next.b.begin(), next.b.end());
    difference.count_a += next.count_a;
    difference.count_b += next.count_b;
  } else {
    held_ = std::move(next);
  }
  return true;
}

}  // namespace tg::diff
