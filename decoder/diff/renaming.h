// Which numbers of one trace stand for which of the other, learnt while the two are aligned.
//
// Rule. Two numbers of a class match when their distance is one already known for that class; at
// the start that is 0. A new distance is learnt only where a difference gives reason to: what was
// skipped on one side moved the counters that it names, and something more or less that was mapped
// or written moves addresses. So a kernel launch more shifts all that follows by one learnt
// distance, while a single number that does not follow is a difference.
//
// Addresses of host memory that no region explains match when the mapping of pages stays two-way.
//
// Packets. A doorbell's packets must match those of its partner. Packets of a doorbell that was
// skipped wait: when the next doorbell of that queue announces them after all (a doorbell was
// dropped, not a submission), they are no further difference. Packets that were not observed on one
// side match whatever there is.
//
// A Matcher may stand on another one: then it tries out what would be, and the other is unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "decoder/diff/token.h"

namespace tg::diff {

class Matcher {
 public:
  explicit Matcher(const Matcher* base = nullptr) : base_(base) {
    if (base) address_grants_ = base->address_grants_;
  }

  // Whether `b` may stand for `a`; their fixed parts are equal already. Learns if so.
  bool Pair(const Token& a, const Token& b);
  // A token that has no partner. `b`: of the second stream.
  void Skip(const Token& token, bool b);
  // Something more or less was mapped or written: addresses may have moved.
  void GrantAddresses() { address_grants_ += kAddressGrant; }

  // Index of the first packet that differs when the two lists are compared one by one under what
  // is known now; the shorter length if none does.
  size_t FirstDifferentPart(const Parts& a, const Parts& b) const;

 private:
  static constexpr uint64_t kAddressGrant = 16;
  static constexpr size_t kMaxDistances = 32;
  static constexpr size_t kMaxPages = 1u << 20;
  static constexpr size_t kMaxWaiting = 4096;  // packets of skipped doorbells, per queue and side

  struct Distances {
    std::vector<uint64_t> known{0};
    uint64_t credit = 0;
    uint64_t used = 0;  // of the addresses' grants
    bool free = false;  // kArgument: not compared any more
  };
  struct Waiting {
    std::vector<Part> a, b;
  };

  bool Match(const Soft& a, const Soft& b);
  bool MatchPage(uint64_t a, uint64_t b);
  bool MatchAll(const Token& a, const Token& b);
  bool MatchParts(const Parts& a, const Parts& b);
  bool MatchList(const std::vector<const Part*>& a, const std::vector<const Part*>& b);
  void Grant(const Soft& soft);
  bool KnownAlready(const Token& a, const Token& b) const;

  const Distances* FindDistances(uint64_t cls) const;
  Distances& MakeDistances(uint64_t cls);
  const Waiting* FindWaiting(uint64_t channel) const;
  const uint64_t* FindPage(uint64_t page, bool b) const;
  void Take(Matcher&& trial);

  const Matcher* base_;
  uint64_t address_grants_ = 0;
  std::unordered_map<uint64_t, Distances> distances_;
  std::unordered_map<uint64_t, Waiting> waiting_;  // by channel
  std::unordered_map<uint64_t, uint64_t> pages_[2];
  bool pages_cleared_ = false;
};

}  // namespace tg::diff
