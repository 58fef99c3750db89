// What a trace holds of each ring, for the end-to-end case: one JSON object a line.
//   trace_rings TRACE
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"
#include "decoder/model/queue_state.h"
#include "schemas/trace/reader.h"

int main(int argc, char** argv) {
  using namespace tg;
  if (argc != 2) return 2;
  auto reader = trace::TraceReader::Open(argv[1]);
  if (!reader) return 3;
  model::Device device;
  model::DeviceQueues queues(device);
  trace::Record record;
  while ((*reader)->Next(record)) device.Feed(record);
  queues.Finish();
  for (const model::Queue& queue : queues.queues().queues()) {
    uint64_t observed = 0, odd = 0;
    for (const model::Submission& s : queue.submissions) {
      observed += s.content == model::Submission::Content::kObserved;
      odd += s.not_packets;
    }
    std::vector<uint8_t> bytes;
    const bool whole = queues.queues().ReadRing(queue, 0, queue.announced.value_or(0), bytes);
    std::string hex;
    for (const uint8_t b : bytes) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += kDigits[b >> 4];
      hex += kDigits[b & 15];
    }
    nlohmann::ordered_json out;
    out["name"] = queue.name;
    out["submissions"] = queue.submissions_total;
    out["observed"] = observed;
    out["not_packets"] = odd;
    out["bytes"] = queue.bytes_total;
    out["ring"] = whole ? nlohmann::ordered_json(hex) : nlohmann::ordered_json(nullptr);
    out["headline"] = StateOf(queues.queues(), queue.index).headline;
    std::printf("%s\n", out.dump().c_str());
  }
  return 0;
}
