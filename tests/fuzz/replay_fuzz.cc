// A recording of anything, served to a client that does anything: script, survey, device words,
// player and engine.
//
// Input: options u8 | steps, each one byte that says what comes and its operands. The first half of
// the steps makes the trace, the second half is the client. Options: bit 0 any polls, bit 1
// addresses mapped, bit 2 with an engine, bit 3 the trace is torn.
#include <memory>
#include <vector>

#include "replay/serve/engine.h"
#include "replay/serve/player.h"
#include "tests/fuzz/fuzz.h"
#include "tests/replay/session.h"

namespace tg::replay {
namespace {

using testing::Header;
using testing::Le;
using testing::Session;
using wire::Command;

constexpr size_t kMaxSteps = 300;
constexpr uint64_t kRegion = 0x4000;
constexpr uint64_t kDma = 0x10000000;

// Few places, so that they meet.
wire::RequestHeader Small(fuzz::Input& in, Command command) {
  const uint8_t where = in.Take<uint8_t>();
  const uint32_t bar = command == Command::kSysmemRead || command == Command::kSysmemWrite
                           ? where % 3
                           : (where % 4 == 3 ? 5 : where % 3);
  return Header(command, bar, 4ull * (where >> 2), where & 1 ? 4 : 8);
}

void Record(fuzz::Input& in, Session& session, uint32_t& regions, uint32_t& connections) {
  switch (in.Take<uint8_t>() % 14) {
    case 0:
      session.Connect(++connections);
      break;
    case 1:
      session.Disconnect(in.Take<uint8_t>() & 1 ? "server" : "client", connections);
      break;
    case 2:
    case 3: {
      const wire::RequestHeader header = Small(in, Command::kMmioRead);
      session.Call(header, {0, header.arg1, 0}, Le(in.Take<uint16_t>(), header.arg1));
      break;
    }
    case 4:
    case 5: {
      const wire::RequestHeader header = Small(in, Command::kMmioWrite);
      session.Posted(header, Le(in.Take<uint64_t>(), header.arg1));
      break;
    }
    case 6: {
      // Queue set-up: SDMA0 on gfx11, as the assumed map has it.
      constexpr uint64_t kQueue[] = {0x4b80, 0x4b84, 0x4b88, 0x4b8c, 0x4b90, 0x4b94, 0x4b98};
      session.Write4(5, kQueue[in.Take<uint8_t>() % 7], in.Take<uint32_t>());
      break;
    }
    case 7:
      session.Doorbell(in.Take<uint16_t>());
      break;
    case 8:
      session.MapFd(regions, kRegion, kDma + kRegion * regions);
      regions++;
      break;
    case 9:
      session.Memory(in.Take<uint8_t>() % 3, in.Take<uint16_t>(), Le(in.Take<uint64_t>(), 8),
                     static_cast<tinygpu::trace::SysmemData::Why>(in.Take<uint8_t>() % 6));
      break;
    case 10:
      session.Zeros(in.Take<uint8_t>() % 3, in.Take<uint16_t>(), in.Take<uint16_t>());
      break;
    case 11:
      session.Unanswered(Small(in, Command::kMmioRead));
      break;
    case 12: {
      wire::ReplyHeader reply{in.Take<uint8_t>(), in.Take<uint8_t>(), in.Take<uint16_t>()};
      session.Call(Header(static_cast<Command>(in.Take<uint8_t>()), in.Take<uint8_t>() % 6,
                          in.Take<uint32_t>(), in.Take<uint8_t>()),
                   reply, std::vector<uint8_t>(in.Take<uint8_t>()));
      break;
    }
    default: {
      tinygpu::trace::Packet packet;
      if (in.Take<uint8_t>() & 1) {
        packet.mutable_loss()->set_calls(in.Take<uint8_t>());
      } else {
        packet.mutable_event()->set_kind(
            static_cast<tinygpu::trace::SessionEvent::Kind>(in.Take<uint8_t>() % 15));
        packet.mutable_event()->set_connection(connections);
      }
      session.Append(packet);
    }
  }
}

// What a client asks next: what the recording has, or something else.
Received Next(fuzz::Input& in, std::vector<Received>& asked,
              std::vector<std::vector<uint8_t>>& own) {
  const uint8_t what = in.Take<uint8_t>();
  if (!asked.empty() && what % 4 != 0) {
    Received received = asked.front();
    asked.erase(asked.begin());
    return received;
  }
  const auto command = static_cast<Command>(what >> 2);
  wire::RequestHeader header = Small(in, command);
  if (what & 64) header.arg0 = in.Take<uint64_t>();
  const wire::CommandInfo* info = wire::FindCommand(header.command);
  own.emplace_back(info && info->payload ? header.arg1 : 0, in.Take<uint8_t>());
  return testing::Ask(header, {});
}

void Play(fuzz::Input& in) {
  const uint8_t options = in.Take<uint8_t>();
  Session session(true);
  uint32_t regions = 0, connections = 0;
  const auto half = in.Bytes(in.Take<uint16_t>() % 4096);
  fuzz::Input made(half.data(), half.size());
  for (size_t i = 0; i < kMaxSteps && !made.empty(); i++)
    Record(made, session, regions, connections);
  const std::vector<uint8_t> bytes = session.Bytes((options & 8) != 0);

  // The requests in their order, as a faithful client makes them.
  std::vector<Received> asked;
  std::vector<std::vector<uint8_t>> payloads;
  {
    auto script = testing::OpenBytes(bytes);
    for (; const Step* step = script->At(0); script->Pop()) {
      if (step->kind != Step::Kind::kCall || !step->call.payload.known()) continue;
      payloads.push_back(step->call.payload.data);
      payloads.back().resize(static_cast<size_t>(step->call.payload.size));
      asked.push_back(testing::Ask(step->call.request));
    }
    for (size_t i = 0; i < asked.size(); i++) {
      asked[i].payload = payloads[i];
      asked[i].payload_size = payloads[i].size();
    }
  }
  const Survey survey = testing::Examined(bytes);
  FUZZ_CHECK(asked.size() <= survey.calls);
  DeviceWords words;
  std::unique_ptr<Engine> engine;
  if (options & 4) {
    auto reader = trace::TraceReader::FromBytes(bytes);
    words = DeviceWords::Read(**reader);
    auto again = trace::TraceReader::FromBytes(bytes);
    engine = std::make_unique<Engine>(std::move(*again), words);
  }
  Player player(testing::OpenBytes(bytes), survey,
                {.any_polls = (options & 1) != 0, .map_addresses = (options & 2) != 0},
                std::move(engine));
  std::vector<std::vector<uint8_t>> own;
  bool connected = player.Connect();
  for (size_t i = 0; i < 2 * kMaxSteps && connected; i++) {
    if (in.empty() && asked.empty()) break;
    const Received received = Next(in, asked, own);
    if (received.request.arg0 % 61 == 7) {
      player.OnSilence();
    } else if (received.request.arg0 % 61 == 11) {
      (void)player.Disconnect();
      connected = player.Connect();
      continue;
    }
    const Answer answer = player.OnRequest(received);
    const wire::CommandInfo* info = wire::FindCommand(received.request.command);
    if (answer.kind == Answer::Kind::kReply) {
      FUZZ_CHECK(info && info->reply);
      FUZZ_CHECK(answer.body.empty() || answer.zeros == 0);
    }
    if (answer.kind == Answer::Kind::kPosted) FUZZ_CHECK(!info || !info->reply);
    if (answer.kind == Answer::Kind::kDiverged || answer.kind == Answer::Kind::kOver)
      FUZZ_CHECK(!answer.problem.empty());
    FUZZ_CHECK(player.played() <= survey.calls);
  }
  (void)player.Disconnect();
  FUZZ_CHECK(player.History().size() <= 20);
}

}  // namespace
}  // namespace tg::replay

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tg::fuzz::Input in(data, size);
  tg::replay::Play(in);
  return 0;
}
