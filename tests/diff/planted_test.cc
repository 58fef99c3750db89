// Differences planted in traces of the real driver (tests/zoo): each is found as exactly one, where
// it was planted, and the same with the arguments swapped.
//
// TINYGPU_DIFF_PLANTS: how many places of each kind are tried (default: a few; all are not many
// hours).
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "decoder/diff/diff.h"
#include "decoder/diff/event.h"
#include "tests/decoder/wire_trace.h"
#include "tests/diff/edit.h"

namespace tg::diff {
namespace {

using Kind = Difference::Kind;
using testing::Step;
using testing::Trace;
using wire::Command;

DiffResult DiffOf(const std::string& a, const std::string& b) {
  auto result = Diff(a, b, {});
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

Kind Mirror(Kind kind) {
  if (kind == Kind::kMissing) return Kind::kExtra;
  if (kind == Kind::kExtra) return Kind::kMissing;
  return kind;
}

std::string Describe(const DiffResult& result) {
  std::string text = std::to_string(result.total) + " differences:\n";
  for (const Difference& d : result.differences) {
    text += std::string(KindName(d.kind)) + "\n";
    for (const Token& t : d.a) text += " -" + EventLine(*t.event) + "\n";
    for (const Token& t : d.b) text += " +" + EventLine(*t.event) + "\n";
  }
  return text;
}

// What depends on how long the host waited; see events.h.
bool Noise(const Step& step) {
  constexpr uint64_t kIhRptr = 0x448c, kIhWptr = 0x4490, kDoorbellInt = 0x3878;
  if (step.header.bar != 5) return false;
  return step.header.arg0 == kIhRptr || step.header.arg0 == kIhWptr ||
         step.header.arg0 == kDoorbellInt;
}

// Index windows: who changes the index changes which register the data is.
bool Window(const Step& step) {
  return step.header.bar == 5 && step.header.arg0 < 0x40;
}

// Exactly one difference, that begins at the call, either way.
void ExpectOne(const std::string& good, const std::string& planted, uint64_t call,
               const std::string& what) {
  const DiffResult there = DiffOf(good, planted), back = DiffOf(planted, good);
  ASSERT_EQ(there.total, 1u) << what << ": " << Describe(there);
  ASSERT_EQ(back.total, 1u) << what << ": " << Describe(back);
  const Difference &d = there.differences[0], &m = back.differences[0];
  EXPECT_EQ(Mirror(d.kind), m.kind) << what;
  EXPECT_EQ(d.at_a, m.at_b) << what;
  EXPECT_EQ(d.at_b, m.at_a) << what;
  EXPECT_EQ(d.count_a, m.count_b) << what;
  EXPECT_EQ(d.count_b, m.count_a) << what;
  const auto holds = [call](const std::vector<Token>& side) {
    for (const Token& t : side)
      if (t.event->seq <= call + 1 && call <= t.event->last_seq + 1) return true;
    return false;
  };
  EXPECT_TRUE(holds(d.a) || holds(d.b)) << what << " at call " << call << ": " << Describe(there);
  EXPECT_EQ(there.exit_code(), 1);
}

size_t Places(size_t usual) {
  const char* asked = std::getenv("TINYGPU_DIFF_PLANTS");
  return asked ? std::strtoull(asked, nullptr, 10) : usual;
}

// One kind of plant: the places where it can be, and what it does there.
struct Plant {
  const char* name;
  const char* trace;
  size_t usual;  // places tried
  std::function<bool(const Trace&, size_t)> fits;
  std::function<void(Trace&, size_t)> change;
};

bool LastOfItsReads(const Trace& t, size_t i) {
  const auto read = [](const Step& s) {
    return s.request(Command::kMmioRead) || s.request(Command::kCfgRead);
  };
  if (i + 1 >= t.steps.size() || t.steps[i + 1].kind != Step::Kind::kReply) return false;
  for (size_t k = i + 2; k < t.steps.size(); k++) {
    const Step& s = t.steps[k];
    if (s.kind != Step::Kind::kRequest) continue;
    return !read(s) || s.header.arg0 != t.steps[i].header.arg0 ||
           s.header.bar != t.steps[i].header.bar;
  }
  return true;
}

bool FirstOfItsReads(const Trace& t, size_t i) {
  for (size_t k = i; k-- > 0;) {
    const Step& s = t.steps[k];
    if (s.kind != Step::Kind::kRequest) continue;
    return s.header.command != t.steps[i].header.command ||
           s.header.arg0 != t.steps[i].header.arg0 || s.header.bar != t.steps[i].header.bar;
  }
  return true;
}

bool Leaf(const Step& s, bool system) {
  return s.write(0, 8) && (s.value() & 0x73) == (system ? 0x73u : 0x71u) &&
         ((s.value() & 2) != 0) == system;
}

bool RegisterWrite(const Step& s) {
  return s.write(5, 4) && !Noise(s) && !Window(s);
}

const std::vector<Plant>& Plants() {
  static const std::vector<Plant> plants = [] {
    std::vector<Plant> all;
    for (const char* trace : {"copies", "barrier", "navi48_copies", "small_bar_copies",
                              "tcp_copies", "partial_boot", "chain", "two_clients"}) {
      all.push_back({"value written to a register", trace, 3,
                     [](const Trace& t, size_t i) { return RegisterWrite(t.steps[i]); },
                     [](Trace& t, size_t i) { t.steps[i].set_value(t.steps[i].value() ^ 0x10); }});
      all.push_back(
          {"value read from a register", trace, 3,
           [](const Trace& t, size_t i) {
             const Step& s = t.steps[i];
             return s.request(Command::kMmioRead) && s.header.bar == 5 && !Noise(s) && !Window(s) &&
                    LastOfItsReads(t, i);
           },
           [](Trace& t, size_t i) { t.steps[i + 1].set_value(t.steps[i + 1].value() ^ 0x40); }});
      all.push_back({"two writes swapped", trace, 4,
                     [](const Trace& t, size_t i) {
                       if (i + 1 >= t.steps.size()) return false;
                       const Step &a = t.steps[i], &b = t.steps[i + 1];
                       if (a.kind != Step::Kind::kRequest || b.kind != Step::Kind::kRequest ||
                           !a.request(Command::kMmioWrite) || !b.request(Command::kMmioWrite))
                         return false;
                       return !Noise(a) && !Noise(b) && !Window(a) && !Window(b) &&
                              (a.header != b.header || a.body.data != b.body.data);
                     },
                     [](Trace& t, size_t i) {
                       Step &a = t.steps[i], &b = t.steps[i + 1];
                       std::swap(a.header, b.header);
                       std::swap(a.body, b.body);
                     }});
      all.push_back({"doorbell dropped", trace, 4,
                     [](const Trace& t, size_t i) { return t.steps[i].write(2, 8); },
                     [](Trace& t, size_t i) { t.Drop(i); }});
      all.push_back({"doorbell value", trace, 3,
                     [](const Trace& t, size_t i) { return t.steps[i].write(2, 8); },
                     [](Trace& t, size_t i) { t.steps[i].set_value(t.steps[i].value() + 4); }});
      all.push_back(
          {"page of host memory elsewhere", trace, 4,
           [](const Trace& t, size_t i) { return Leaf(t.steps[i], true); },
           [](Trace& t, size_t i) { t.steps[i].set_value(t.steps[i].value() + 0x5000); }});
      all.push_back(
          {"page of host memory in no region", trace, 2,
           [](const Trace& t, size_t i) { return Leaf(t.steps[i], true); },
           [](Trace& t, size_t i) { t.steps[i].set_value(t.steps[i].value() | 0x770000000000); }});
      all.push_back(
          {"page of VRAM elsewhere", trace, 2,
           [](const Trace& t, size_t i) { return Leaf(t.steps[i], false); },
           [](Trace& t, size_t i) { t.steps[i].set_value(t.steps[i].value() + 0x3000); }});
      all.push_back({"flags of a page", trace, 2,
                     [](const Trace& t, size_t i) { return Leaf(t.steps[i], true); },
                     [](Trace& t, size_t i) { t.steps[i].set_value(t.steps[i].value() ^ 0x40); }});
      all.push_back({"register write dropped", trace, 3,
                     [](const Trace& t, size_t i) {
                       if (!RegisterWrite(t.steps[i])) return false;
                       // One of several equal ones is a change of their number instead.
                       return true;
                     },
                     [](Trace& t, size_t i) { t.Drop(i); }});
      all.push_back({"register write more", trace, 3,
                     [](const Trace& t, size_t i) { return RegisterWrite(t.steps[i]); },
                     [](Trace& t, size_t i) { t.InsertWrite(i, 5, 0xb000, 0x1234, 4); }});
      all.push_back({"register read dropped", trace, 2,
                     [](const Trace& t, size_t i) {
                       const Step& s = t.steps[i];
                       return s.request(Command::kMmioRead) && s.header.bar == 5 && !Noise(s) &&
                              !Window(s) && LastOfItsReads(t, i) && FirstOfItsReads(t, i);
                     },
                     [](Trace& t, size_t i) { t.Drop(i); }});
      all.push_back({"page-table write dropped", trace, 2,
                     [](const Trace& t, size_t i) { return Leaf(t.steps[i], true); },
                     [](Trace& t, size_t i) { t.Drop(i); }});
      all.push_back({"configuration value", trace, 2,
                     [](const Trace& t, size_t i) {
                       return t.steps[i].request(Command::kCfgRead) && LastOfItsReads(t, i);
                     },
                     [](Trace& t, size_t i) { t.steps[i + 1].reply.resp0 ^= 0x2; }});
      all.push_back(
          {"configuration write", trace, 1,
           [](const Trace& t, size_t i) { return t.steps[i].request(Command::kCfgWrite); },
           [](Trace& t, size_t i) { t.steps[i].header.arg2 ^= 0x8; }});
      all.push_back({"size of a BAR", trace, 2,
                     [](const Trace& t, size_t i) {
                       return t.steps[i].request(Command::kMapBar) && t.steps[i].header.bar == 2;
                     },
                     [](Trace& t, size_t i) { t.AnswerOf(i)->reply.resp1 *= 2; }});
      all.push_back({"shared memory refused", trace, 1,
                     [](const Trace& t, size_t i) {
                       // The last ones, which nothing depends on any more.
                       return (t.steps[i].request(Command::kResizeBar));
                     },
                     [](Trace& t, size_t i) { t.AnswerOf(i)->reply.status = 1; }});
      // A partial boot finds its firmware loaded.
      if (std::string_view(trace) != "partial_boot")
        all.push_back({"firmware", trace, 2,
                       [](const Trace& t, size_t i) {
                         const Step& s = t.steps[i];
                         return s.request(Command::kMmioWrite) && s.header.bar == 0 &&
                                s.header.arg0 == 0x100000 && s.body.xxh3 && !s.body.all_zero;
                       },
                       [](Trace& t, size_t i) { *t.steps[i].body.xxh3 ^= 1; }});
      all.push_back({"block in VRAM", trace, 2,
                     [](const Trace& t, size_t i) {
                       const Step& s = t.steps[i];
                       return s.request(Command::kMmioWrite) && s.header.bar == 0 &&
                              s.header.arg1 >= 0x40 && s.header.arg1 <= 0x800 &&
                              s.body.data.size() == s.header.arg1;
                     },
                     [](Trace& t, size_t i) { t.steps[i].body.data[0x20] ^= 1; }});
    }
    return all;
  }();
  return plants;
}

class Planted : public ::testing::TestWithParam<size_t> {};

TEST_P(Planted, IsOneDifference) {
  const Plant& plant = Plants()[GetParam()];
  const Trace good = Trace::FromZoo(plant.trace);
  const std::string name = std::to_string(GetParam());
  const std::string path = good.Write("good" + name + ".pb");
  ASSERT_EQ(DiffOf(path, path).total, 0u);
  std::vector<size_t> places;
  for (size_t i = 0; i < good.steps.size(); i++)
    if (plant.fits(good, i)) places.push_back(i);
  ASSERT_FALSE(places.empty()) << plant.trace << " has no place for it";
  std::mt19937 random(static_cast<unsigned>(GetParam()) + 1);
  std::shuffle(places.begin(), places.end(), random);
  places.resize(std::min(places.size(), Places(plant.usual)));
  for (const size_t at : places) {
    Trace changed = good;
    plant.change(changed, at);
    const std::string planted = changed.Write("planted" + name + ".pb");
    ExpectOne(path, planted, good.steps[at].call,
              std::string(plant.name) + " in " + plant.trace + ", step " + std::to_string(at));
    std::remove(planted.c_str());
  }
  std::remove(path.c_str());
}

std::string PlantName(const ::testing::TestParamInfo<size_t>& info) {
  std::string name;
  for (const char c : std::string(Plants()[info.param].trace) + " " + Plants()[info.param].name)
    name += isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Real, Planted, ::testing::Range<size_t>(0, Plants().size()), PlantName);

}  // namespace
}  // namespace tg::diff
