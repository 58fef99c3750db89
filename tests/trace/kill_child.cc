// The victim of kill_test: writes a trace and tells on its standard output what it has recorded.
// After each Request() or Reply() that returned, 16 bytes: call number, then 0 or 1.
//
// Which call does what follows from its number alone (see tests/trace/victim.h), so the killer
// knows what to look for.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "schemas/trace/trace.pb.h"
#include "tests/trace/victim.h"

namespace {

void Acknowledge(uint64_t call, uint64_t what) {
  const uint64_t words[2] = {call, what};
  // Up to PIPE_BUF bytes go whole or not at all.
  if (write(STDOUT_FILENO, words, sizeof words) != sizeof words) _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tg::trace;
  if (argc != 3) return 2;
  const std::string path = argv[1];
  const uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  auto sink = OpenFileSink(path, false);
  if (!sink) return 3;
  WriterOptions options;
  options.segment_size = 1 << 20;  // several borders a second
  options.patience_ms = 60'000;
  auto made = TraceWriter::Create(std::move(*sink), options, {});
  if (!made) return 4;
  TraceWriter& writer = **made;
  uint64_t now = 0;
  for (;;) {
    const uint64_t call = writer.calls() + 1;
    const testing::VictimCall c(seed, call);
    RequestRecord request;
    request.header = c.header();
    request.payload.size = c.payload().size();
    request.payload.data = c.payload();
    if (writer.Request(request, now += 300) != call) return 5;
    Acknowledge(call, 0);
    if (c.posted()) continue;
    ReplyRecord reply;
    reply.call = call;
    reply.reply = c.reply();
    reply.body.size = c.body().size();
    reply.body.data = c.body();
    writer.Reply(reply, now += 300);
    Acknowledge(call, 1);
  }
}
