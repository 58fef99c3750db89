// Any sequence of register accesses, doorbells and observed memory: the queue model stays bounded
// and its states can always be asked for.
#include <map>

#include "decoder/model/queue_state.h"
#include "decoder/model/queues.h"
#include "tests/fuzz/fuzz.h"

namespace {

// 256 KiB of "memory" at every address, its content the input's.
class Memory : public tg::model::QueueMemory {
 public:
  explicit Memory(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  tg::model::Place Locate(uint64_t va) const override {
    tg::model::Place place;
    if (bytes_.empty() || va >> 47) return place;
    place.kind = tg::model::Place::Kind::kSysmem;
    place.region = static_cast<uint32_t>(va >> 18 & 3);
    place.offset = va & 0x3ffff;
    place.run = 4096 - place.offset % 4096;
    return place;
  }
  bool ReadPlace(const tg::model::Place& place, std::span<uint8_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = bytes_[(place.offset + i + place.region) % bytes_.size()];
    }
    return place.region != 3;
  }

 private:
  std::span<const uint8_t> bytes_;
};

constexpr const char* kRegisters[] = {"regSDMA0_QUEUE0_RB_CNTL",
                                      "regSDMA0_QUEUE0_RB_BASE",
                                      "regSDMA0_QUEUE0_RB_RPTR",
                                      "regSDMA0_QUEUE0_RB_WPTR",
                                      "regSDMA0_QUEUE0_RB_RPTR_ADDR_LO",
                                      "regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_LO",
                                      "regSDMA0_QUEUE0_DOORBELL_OFFSET",
                                      "regGRBM_GFX_CNTL",
                                      "regCP_HQD_PQ_BASE",
                                      "regCP_HQD_PQ_CONTROL",
                                      "regCP_HQD_PQ_WPTR_POLL_ADDR",
                                      "regCP_HQD_PQ_RPTR_REPORT_ADDR",
                                      "regCP_HQD_PQ_DOORBELL_CONTROL",
                                      "regCP_HQD_AQL_CONTROL",
                                      "regCP_HQD_ACTIVE",
                                      "regSDMA_GFX_RB_CNTL",
                                      "regCP_HQD_PQ_RPTR"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tg;
  fuzz::Input input(data, size);
  const Memory memory(std::span(data, size));
  model::Queues queues(memory);
  queues.SetVersions(4 + input.Take<uint8_t>() % 4, 9 + input.Take<uint8_t>() % 4);
  uint64_t call = 0;
  while (!input.empty() && call < 200) {
    ++call;
    const uint8_t what = input.Take<uint8_t>();
    const char* name = kRegisters[input.Take<uint8_t>() % std::size(kRegisters)];
    switch (what % 5) {
      case 0:
        queues.OnRegisterWrite(name, what >> 5, input.Take<uint32_t>(), call, call);
        break;
      case 1:
        queues.OnRegisterRead(name, what >> 5, input.Take<uint32_t>(), call, call);
        break;
      case 2:
        queues.OnDoorbell(what & 0x80   ? 0x800
                          : what & 0x40 ? 0x18
                                        : input.Take<uint16_t>(),
                          what & 0x20 ? input.Take<uint64_t>() : input.Take<uint16_t>(), 8, call,
                          call);
        break;
      case 3:
        queues.OnSysmem(static_cast<model::Queues::Seen>(what / 5 % 3), input.Take<uint8_t>() % 4,
                        input.Take<uint32_t>(), input.Take<uint16_t>(), call, call);
        break;
      default:
        queues.OnVramWrite(0, input.Bytes(0x2d8), call);
        break;
    }
  }
  queues.OnEnd(call, call);
  FUZZ_CHECK(queues.queues().size() <= model::kMaxQueues);
  FUZZ_CHECK(queues.warnings().size() <= model::kMaxQueueWarnings + model::kMaxQueues);
  for (size_t i = 0; i < queues.queues().size(); ++i) {
    model::StateOptions options;
    options.max_items = 16;
    const auto state = StateOf(queues, i, options);
    FUZZ_CHECK(!state.headline.empty());
    FUZZ_CHECK(state.items.size() <= 16);
  }
  return 0;
}
