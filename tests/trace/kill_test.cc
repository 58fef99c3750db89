// kill -9 at random moments: whatever the writer had returned from is in the file.
//
// TINYGPU_SOAK=N kills N times instead of 25.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/trace/temp_dir.h"
#include "tests/trace/testing.h"
#include "tests/trace/victim.h"

extern char** environ;

namespace tg::trace {
namespace {

using namespace testing;

struct Acknowledged {
  uint64_t requests = 0;  // calls 1 .. requests
  uint64_t replies = 0;   // newest call whose reply was acknowledged
};

// Starts the victim, lets it live for `life` after its first record, kills it.
void Kill(const std::string& path, uint64_t seed, std::chrono::microseconds life,
          Acknowledged& acknowledged) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, fds[0]);
  posix_spawn_file_actions_addclose(&actions, fds[1]);
  std::string text = std::to_string(seed), file = path, program = KILL_CHILD;
  char* argv[] = {program.data(), file.data(), text.data(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, KILL_CHILD, &actions, nullptr, argv, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(fds[1]);

  std::thread killer;
  std::vector<uint64_t> words(8192);
  size_t have = 0;  // bytes
  for (;;) {
    const ssize_t n =
        read(fds[0], reinterpret_cast<char*>(words.data()) + have, words.size() * 8 - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (!killer.joinable()) {
      killer = std::thread([child, life] {
        std::this_thread::sleep_for(life);
        kill(child, SIGKILL);
      });
    }
    have += static_cast<size_t>(n);
    for (size_t i = 0; i < have / 16; i++) {
      uint64_t& last = words[2 * i + 1] == 0 ? acknowledged.requests : acknowledged.replies;
      last = words[2 * i];
    }
    const size_t rest = have % 16;
    std::copy_n(reinterpret_cast<char*>(words.data()) + have - rest, rest,
                reinterpret_cast<char*>(words.data()));
    have = rest;
  }
  close(fds[0]);
  if (killer.joinable()) killer.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the victim ended by itself: " << WEXITSTATUS(status);
}

void SameBytes(std::span<const uint8_t> a, std::span<const uint8_t> b, uint64_t call) {
  ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << "call " << call;
}

void Check(const std::string& path, uint64_t seed, const Acknowledged& acknowledged) {
  auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader) << reader.error().message;
  uint64_t requests = 0, replies = 0, folded = 0;
  const auto request = [&](const RequestView& view, uint64_t call) {
    ASSERT_EQ(call, ++requests);
    const VictimCall c(seed, call);
    ASSERT_EQ(view.header, c.header()) << call;
    SameBytes(view.payload.data, c.payload(), call);
  };
  const auto reply = [&](const ReplyView& view, uint64_t call) {
    replies = call;
    const VictimCall c(seed, call);
    ASSERT_EQ(view.reply, c.reply()) << call;
    SameBytes(view.body.data, c.body(), call);
  };
  Record record;
  while (!::testing::Test::HasFatalFailure() && (*reader)->Next(record)) {
    if (record.kind == Record::Kind::kRequest) request(record.request, record.call);
    if (record.kind == Record::Kind::kReply) reply(record.reply, record.call);
    if (record.kind != Record::Kind::kRepeat) continue;
    folded += record.issued;
    uint64_t answered = 0;
    for (uint64_t i = 0; i < record.issued && !::testing::Test::HasFatalFailure(); i++) {
      const RepeatedCall& c = record.pattern[i % record.pattern.size()];
      request(c.request, record.call + i);
      if (c.reply && answered++ < record.answered) reply(*c.reply, record.call + i);
    }
  }
  EXPECT_TRUE((*reader)->skipped().empty());
  EXPECT_EQ((*reader)->end_state(), EndState::kNotClosed);
  // One more may have been recorded and not yet acknowledged.
  EXPECT_GE(requests, acknowledged.requests);
  EXPECT_LE(requests, acknowledged.requests + 1);
  EXPECT_GE(replies, acknowledged.replies);
  EXPECT_GT(acknowledged.requests, 0u);
  EXPECT_GE(folded * 8, requests > 5000 ? requests : 0);
}

TEST(Kill, NothingAcknowledgedIsMissing) {
  const char* soak = std::getenv("TINYGPU_SOAK");
  const int rounds = soak != nullptr ? std::max(1, std::atoi(soak)) : 25;
  std::mt19937 random(std::random_device{}());
  uint64_t calls = 0;
  for (int round = 0; round < rounds; round++) {
    const uint64_t seed = random();
    SCOPED_TRACE("seed " + std::to_string(seed));
    const TempDir dir;
    Acknowledged acknowledged;
    Kill(dir / "t.pb", seed, std::chrono::microseconds(random() % 60'000), acknowledged);
    if (HasFatalFailure()) return;
    Check(dir / "t.pb", seed, acknowledged);
    if (HasFailure()) return;
    calls += acknowledged.requests;
  }
  RecordProperty("calls", static_cast<int>(calls));
}

}  // namespace
}  // namespace tg::trace
