#include "decoder/diff/align.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tg::diff {
namespace {

using Kind = Difference::Kind;

Token Make(uint64_t key, uint64_t value) {
  Token token;
  token.key = key;
  token.value = value;
  return token;
}

// A stream in letters: each is one event, the letter its key. A digit behind a letter is its value.
std::vector<Token> Stream(const std::string& text) {
  std::vector<Token> out;
  for (const char c : text) {
    if (c >= '0' && c <= '9')
      out.back().value = static_cast<uint64_t>(c - '0' + 1);
    else
      out.push_back(Make(static_cast<uint64_t>(c), 0));
  }
  return out;
}

std::vector<Difference> Diff(const std::vector<Token>& a, const std::vector<Token>& b) {
  size_t ia = 0, ib = 0;
  Aligner aligner([&](Token& t) { return ia < a.size() && (t = a[ia++], true); },
                  [&](Token& t) { return ib < b.size() && (t = b[ib++], true); });
  std::vector<Difference> out;
  Difference d;
  while (aligner.Next(d)) out.push_back(d);
  EXPECT_EQ(aligner.events_a(), a.size());
  EXPECT_EQ(aligner.events_b(), b.size());
  return out;
}

struct Case {
  const char* what;
  const char *a, *b;
  std::vector<std::string> expected;  // "kind at_a+count_a at_b+count_b"
};

std::string Line(const Difference& d) {
  return std::string(KindName(d.kind)) + " " + std::to_string(d.at_a) + "+" +
         std::to_string(d.count_a) + " " + std::to_string(d.at_b) + "+" + std::to_string(d.count_b);
}

const std::vector<Case> kCases = {
    {"same", "abcdefgh", "abcdefgh", {}},
    {"both empty", "", "", {}},
    {"one empty", "abc", "", {"missing 0+3 0+0"}},
    {"a value", "abcd1efghijk", "abcd2efghijk", {"value 3+1 3+1"}},
    {"one dropped", "abcdefghijk", "abcdfghijk", {"missing 4+1 4+0"}},
    {"one more", "abcdfghijk", "abcdefghijk", {"extra 4+0 4+1"}},
    {"a swapped pair", "abcdefghijk", "abcedfghijk", {"order 3+2 3+2"}},
    {"replaced", "abcdefghijk", "abcXYZghijk", {"replaced 3+3 3+3"}},
    {"a run inserted", "abcdefghijk", "abcdUVWUVWUVWefghijk", {"extra 4+0 4+9"}},
    {"ends early", "abcdefghijk", "abcdef", {"missing 6+5 6+0"}},
    {"first event", "abcdefgh", "Xbcdefgh", {"replaced 0+1 0+1"}},
    {"last event", "abcdefgh", "abcdefgX", {"replaced 7+1 7+1"}},
    {"last value", "abcdefgh1", "abcdefgh2", {"value 7+1 7+1"}},
    {"two apart",
     "abc1defghijklm2nopq",
     "abc3defghijklm4nopq",
     {"value 2+1 2+1", "value 12+1 12+1"}},
    {"nothing in common", "abcdefg", "ABCDEFG", {"replaced 0+7 0+7"}},
};

TEST(Align, Cases) {
  for (const Case& c : kCases) {
    std::vector<std::string> lines;
    for (const Difference& d : Diff(Stream(c.a), Stream(c.b))) lines.push_back(Line(d));
    EXPECT_EQ(lines, c.expected) << c.what;
  }
}

TEST(Align, SymmetricWhenSwapped) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; round++) {
    std::vector<Token> a, b;
    for (uint64_t i = 0; i < 400; i++) a.push_back(Make(random() % 40, random() % 3));
    for (const Token& t : a) {
      if (random() % 50 == 0) continue;
      if (random() % 50 == 0) b.push_back(Make(random() % 40, random() % 3));
      b.push_back(t);
      if (random() % 50 == 0) b.back().value = 9;
    }
    const auto ab = Diff(a, b), ba = Diff(b, a);
    ASSERT_EQ(ab.size(), ba.size());
    for (size_t i = 0; i < ab.size(); i++) {
      EXPECT_EQ(ab[i].at_a, ba[i].at_b);
      EXPECT_EQ(ab[i].at_b, ba[i].at_a);
      EXPECT_EQ(ab[i].count_a, ba[i].count_b);
      EXPECT_EQ(ab[i].count_b, ba[i].count_a);
    }
  }
}

TEST(Align, ALongInsertedRunIsOneDifference) {
  std::vector<Token> a, b;
  for (uint64_t i = 0; i < 50000; i++) a.push_back(Make(i, 1));
  b = a;
  std::vector<Token> run;
  for (uint64_t i = 0; i < 30000; i++) run.push_back(Make(1000000 + i, 2));
  b.insert(b.begin() + 20000, run.begin(), run.end());
  const auto differences = Diff(a, b);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(Line(differences[0]), "extra 20000+0 20000+30000");
  EXPECT_EQ(differences[0].b.size(), Difference::kKept);
  ASSERT_EQ(differences[0].before_a.size(), kContext);
  EXPECT_EQ(differences[0].before_a.back().key, 19999u);
}

TEST(Align, StreamsThatNeverMeetAgainAreOneDifference) {
  std::vector<Token> a, b;
  for (uint64_t i = 0; i < 200000; i++) {
    a.push_back(Make(i, 1));
    b.push_back(Make(i < 1000 ? i : i + 10000000, 1));
  }
  const auto differences = Diff(a, b);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(Line(differences[0]), "diverged 1000+199000 1000+199000");
}

TEST(Align, AStreamOfEqualEventsIsNotQuadratic) {
  const std::vector<Token> a(300000, Make(1, 1));
  const std::vector<Token> b(299000, Make(1, 1));
  const auto differences = Diff(a, b);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(Line(differences[0]), "missing 299000+1000 299000+0");
}

}  // namespace
}  // namespace tg::diff
