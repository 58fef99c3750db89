#include "decoder/diff/align.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace tg::diff {
namespace {

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash ^= word + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 33);
}

// Hash of the events [at, at + kGram), or of what is left before the end of an ended stream.
uint64_t GramHash(const std::deque<Token>& window, size_t at, bool ended) {
  uint64_t hash = 1;
  const size_t end = std::min(window.size(), at + kGram);
  for (size_t i = at; i < end; i++) hash = Mix(Mix(hash, window[i].key), window[i].value);
  return ended && end - at < kGram ? Mix(hash, end - at) : hash;
}

// Number of places where a whole gram begins; behind an ended stream's last event one may begin
// too.
size_t GramCount(size_t window_size, bool ended) {
  if (ended) return window_size + 1;
  return window_size >= kGram ? window_size - kGram + 1 : 0;
}

Difference::Kind Classify(const std::deque<Token>& a, size_t i, const std::deque<Token>& b,
                          size_t j) {
  if (j == 0) return Difference::Kind::kMissing;
  if (i == 0) return Difference::Kind::kExtra;
  if (i != j) return Difference::Kind::kReplaced;
  bool same_keys = true;
  for (size_t k = 0; k < i; k++) same_keys = same_keys && a[k].key == b[k].key;
  if (same_keys) return Difference::Kind::kValue;
  std::vector<std::pair<uint64_t, uint64_t>> left, right;
  for (size_t k = 0; k < i; k++) {
    left.emplace_back(a[k].key, a[k].value);
    right.emplace_back(b[k].key, b[k].value);
  }
  std::sort(left.begin(), left.end());
  std::sort(right.begin(), right.end());
  return left == right ? Difference::Kind::kOrder : Difference::Kind::kReplaced;
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
  }
  return "";
}

void Aligner::Side::Fill(size_t n) {
  Token token;
  while (window.size() < n && !ended) {
    if (source(token))
      window.push_back(token);
    else
      ended = true;
  }
}

void Aligner::Side::TakeEqual() {
  context.push_back(window.front());
  if (context.size() > kContext) context.pop_front();
  window.pop_front();
  taken++;
}

Aligner::Resync Aligner::FindResync(size_t size) {
  a_.Fill(size + kGram);
  b_.Fill(size + kGram);
  const size_t grams_a = std::min(size, GramCount(a_.window.size(), a_.ended));
  const size_t grams_b = std::min(size, GramCount(b_.window.size(), b_.ended));
  // The first few places of each gram are enough: a later one has a larger i + j, and the bound
  // keeps a stream of equal events from making this quadratic.
  constexpr size_t kPlaces = 4;
  std::unordered_map<uint64_t, std::vector<uint32_t>> places;
  places.reserve(grams_b);
  for (size_t j = 0; j < grams_b; j++) {
    auto& list = places[GramHash(b_.window, j, b_.ended)];
    if (list.size() < kPlaces) list.push_back(static_cast<uint32_t>(j));
  }
  Resync best;
  auto rank = std::make_tuple(SIZE_MAX, SIZE_MAX, UINT64_MAX);
  for (size_t i = 0; i < grams_a && i <= std::get<0>(rank); i++) {
    const uint64_t gram = GramHash(a_.window, i, a_.ended);
    const auto found = places.find(gram);
    if (found == places.end()) continue;
    for (const size_t j : found->second) {
      if (i + j == 0) continue;
      const auto candidate = std::make_tuple(i + j, i > j ? i - j : j - i, gram);
      if (candidate < rank) {
        rank = candidate;
        best = {true, i, j};
      }
    }
  }
  // A place found near the rim may be beaten by one just outside; a larger window decides.
  if (best.found && best.i + best.j > size && size < kMaxWindow &&
      !(a_.ended && b_.ended && a_.window.size() <= size && b_.window.size() <= size))
    return {};
  return best;
}

bool Aligner::Next(Difference& difference) {
  for (;;) {
    a_.Fill(1);
    b_.Fill(1);
    if (a_.window.empty() && b_.window.empty()) return false;
    if (a_.window.empty() || b_.window.empty() || !(a_.window.front() == b_.window.front())) break;
    a_.TakeEqual();
    b_.TakeEqual();
  }

  difference = {};
  difference.at_a = a_.taken;
  difference.at_b = b_.taken;
  difference.before_a.assign(a_.context.begin(), a_.context.end());
  difference.before_b.assign(b_.context.begin(), b_.context.end());

  const auto take = [](Side& side, size_t n, std::vector<Token>& kept, uint64_t& count) {
    for (size_t k = 0; k < n; k++) {
      if (kept.size() < Difference::kKept) kept.push_back(side.window.front());
      side.window.pop_front();
    }
    count += n;
    side.taken += n;
  };

  for (size_t window = 64; window <= kMaxWindow; window *= 4) {
    const Resync resync = FindResync(window);
    if (!resync.found) continue;
    difference.kind = Classify(a_.window, resync.i, b_.window, resync.j);
    take(a_, resync.i, difference.a, difference.count_a);
    take(b_, resync.j, difference.b, difference.count_b);
    return true;
  }

  difference.kind = Difference::Kind::kDiverged;
  for (auto [side, kept, count] : {std::make_tuple(&a_, &difference.a, &difference.count_a),
                                   std::make_tuple(&b_, &difference.b, &difference.count_b)}) {
    do {
      take(*side, side->window.size(), *kept, *count);
      side->Fill(kMaxWindow);
    } while (!side->window.empty());
  }
  if (difference.count_b == 0) difference.kind = Difference::Kind::kMissing;
  if (difference.count_a == 0) difference.kind = Difference::Kind::kExtra;
  return true;
}

}  // namespace tg::diff
