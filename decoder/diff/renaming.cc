#include "decoder/diff/renaming.h"

#include <algorithm>
#include <utility>

namespace tg::diff {
namespace {

uint64_t Distance(const Soft& a, const Soft& b) {
  const uint64_t distance = b.value - a.value;
  if (a.kind() != Soft::kStaging) return distance;
  const uint64_t n = std::max<uint64_t>(a.which(), 1);
  return (b.value % n + n - a.value % n) % n;
}

}  // namespace

// ---- state, seen through to what this one stands on ------------------------------------------

const Matcher::Distances* Matcher::FindDistances(uint64_t cls) const {
  for (const Matcher* m = this; m; m = m->base_)
    if (const auto found = m->distances_.find(cls); found != m->distances_.end())
      return &found->second;
  return nullptr;
}

Matcher::Distances& Matcher::MakeDistances(uint64_t cls) {
  const auto found = distances_.find(cls);
  if (found != distances_.end()) return found->second;
  const Distances* below = base_ ? base_->FindDistances(cls) : nullptr;
  return distances_.emplace(cls, below ? *below : Distances()).first->second;
}

const Matcher::Waiting* Matcher::FindWaiting(uint64_t channel) const {
  for (const Matcher* m = this; m; m = m->base_)
    if (const auto found = m->waiting_.find(channel); found != m->waiting_.end())
      return &found->second;
  return nullptr;
}

const uint64_t* Matcher::FindPage(uint64_t page, bool b) const {
  for (const Matcher* m = this; m; m = m->base_) {
    if (const auto found = m->pages_[b].find(page); found != m->pages_[b].end())
      return &found->second;
    if (m->pages_cleared_) return nullptr;
  }
  return nullptr;
}

void Matcher::Take(Matcher&& trial) {
  address_grants_ = trial.address_grants_;
  for (auto& [cls, distances] : trial.distances_) distances_[cls] = std::move(distances);
  for (auto& [channel, waiting] : trial.waiting_) {
    if (!base_ && waiting.a.empty() && waiting.b.empty()) {
      waiting_.erase(channel);
    } else {
      waiting_[channel] = std::move(waiting);
    }
  }
  if (trial.pages_cleared_) {
    pages_cleared_ = true;
    for (auto& pages : pages_) pages.clear();
  }
  for (int side = 0; side < 2; side++)
    for (const auto& [from, to] : trial.pages_[side]) pages_[side][from] = to;
}

// ---- numbers ---------------------------------------------------------------------------------

bool Matcher::MatchPage(uint64_t a, uint64_t b) {
  const uint64_t* of_a = FindPage(a, false);
  const uint64_t* of_b = FindPage(b, true);
  if (of_a || of_b) return of_a && of_b && *of_a == b && *of_b == a;
  size_t held = 0;
  for (const Matcher* m = this; m; m = m->base_) held += m->pages_[0].size();
  if (held >= kMaxPages) return true;
  pages_[0][a] = b;
  pages_[1][b] = a;
  return true;
}

bool Matcher::Match(const Soft& a, const Soft& b) {
  if (a.cls != b.cls) return false;
  if (a.kind() == Soft::kDmaPage) return MatchPage(a.value, b.value);
  const uint64_t distance = Distance(a, b);
  if (a.kind() == Soft::kPlace) return distance == 0;
  const Distances* state = FindDistances(a.cls);
  if (!state) {
    if (distance == 0) return true;
    if (a.counter() || address_grants_ == 0) return false;
  } else {
    if (state->free) return true;
    const auto found = std::find(state->known.begin(), state->known.end(), distance);
    if (found != state->known.end()) {
      if (state->credit > 0) MakeDistances(a.cls).credit = 0;
      return true;
    }
    if (a.counter() ? state->credit == 0 : state->used >= address_grants_) return false;
  }
  Distances& mine = MakeDistances(a.cls);
  if (a.counter())
    mine.credit = 0;
  else
    mine.used++;
  if (mine.known.size() >= kMaxDistances) mine.known.erase(mine.known.begin() + 1);
  mine.known.push_back(distance);
  return true;
}

void Matcher::Grant(const Soft& soft) {
  if (soft.counter())
    MakeDistances(soft.cls).credit = 1;
  else if (soft.kind() == Soft::kArgument)
    MakeDistances(soft.cls).free = true;
}

// The usual case, without copying anything.
bool Matcher::KnownAlready(const Token& a, const Token& b) const {
  if (a.more || b.more || a.parts || b.parts || a.connect || a.any_host || b.any_host ||
      a.softs != b.softs)
    return false;
  for (size_t i = 0; i < a.softs; i++) {
    const Soft &x = a.soft[i], &y = b.soft[i];
    if (x.cls != y.cls || x.kind() == Soft::kDmaPage) return false;
    const Distances* state = FindDistances(x.cls);
    if (!state) {
      if (Distance(x, y) != 0) return false;
    } else if (state->credit > 0 || state->known.front() != Distance(x, y)) {
      return false;
    }
  }
  return true;
}

bool Matcher::MatchAll(const Token& a, const Token& b) {
  if (a.any_host != b.any_host) {
    // Where the table lies, if that is told.
    const bool where = a.softs > 0 && b.softs > 0 && a.soft[0].kind() == Soft::kVram;
    return !where || Match(a.soft[0], b.soft[0]);
  }
  if (a.softs != b.softs || !a.more != !b.more) return false;
  for (size_t i = 0; i < a.softs; i++)
    if (!Match(a.soft[i], b.soft[i])) return false;
  if (a.more) {
    if (a.more->size() != b.more->size()) return false;
    for (size_t i = 0; i < a.more->size(); i++)
      if (!Match((*a.more)[i], (*b.more)[i])) return false;
  }
  if (a.connect) {
    pages_cleared_ = true;
    for (auto& pages : pages_) pages.clear();
  }
  return !a.parts || !b.parts || MatchParts(*a.parts, *b.parts);
}

bool Matcher::Pair(const Token& a, const Token& b) {
  if (a.plain() && b.plain()) return true;
  if (KnownAlready(a, b)) return true;
  Matcher trial(this);
  if (!trial.MatchAll(a, b)) return false;
  Take(std::move(trial));
  return true;
}

void Matcher::Skip(const Token& token, bool b) {
  for (const Soft& soft : token.few()) Grant(soft);
  if (token.more)
    for (const Soft& soft : *token.more) Grant(soft);
  if (!token.parts) return;
  const Waiting* before = FindWaiting(token.parts->channel);
  Waiting waiting = before ? *before : Waiting();
  std::vector<Part>& side = b ? waiting.b : waiting.a;
  for (const Part& part : token.parts->list) {
    for (const Soft& soft : part.soft) Grant(soft);
    if (side.size() < kMaxWaiting) side.push_back(part);
  }
  waiting_[token.parts->channel] = std::move(waiting);
}

// ---- packets ---------------------------------------------------------------------------------

bool Matcher::MatchList(const std::vector<const Part*>& a, const std::vector<const Part*>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++) {
    if (a[i]->fixed != b[i]->fixed || a[i]->soft.size() != b[i]->soft.size()) return false;
    for (size_t k = 0; k < a[i]->soft.size(); k++)
      if (!Match(a[i]->soft[k], b[i]->soft[k])) return false;
  }
  return true;
}

bool Matcher::MatchParts(const Parts& a, const Parts& b) {
  const Waiting* found = FindWaiting(a.channel);
  const Waiting before = found ? *found : Waiting();
  const auto list = [](const std::vector<Part>* first, const std::vector<Part>& second) {
    std::vector<const Part*> all;
    if (first)
      for (const Part& part : *first) all.push_back(&part);
    for (const Part& part : second) all.push_back(&part);
    return all;
  };
  const bool any = !before.a.empty() || !before.b.empty();
  bool matched = !a.known || !b.known;
  // With and without what waits, on either side; all of it first.
  for (int with = any ? 3 : 0; with >= 0 && !matched; with--) {
    Matcher trial(this);
    matched = trial.MatchList(list(with & 1 ? &before.a : nullptr, a.list),
                              list(with & 2 ? &before.b : nullptr, b.list));
    if (matched) Take(std::move(trial));
  }
  // A pointer that was off left this one to begin inside a packet: that was said already.
  const auto broken = [](const std::vector<Part>& parts) {
    return std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.broken; });
  };
  if (!matched && (any || a.bytes != b.bytes))
    matched = broken(a.list) || broken(b.list) || broken(before.a) || broken(before.b);
  if (matched && any) waiting_[a.channel] = Waiting();
  return matched;
}

size_t Matcher::FirstDifferentPart(const Parts& a, const Parts& b) const {
  Matcher trial(this);
  const size_t n = std::min(a.list.size(), b.list.size());
  for (size_t i = 0; i < n; i++)
    if (!trial.MatchList({&a.list[i]}, {&b.list[i]})) return i;
  return n;
}

}  // namespace tg::diff
