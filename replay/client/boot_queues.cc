// Setting up the compute queue and the SDMA queue.
#include <bit>

#include "replay/client/boot.h"
#include "schemas/amd/doorbell.h"
#include "schemas/amd/mqd.h"
#include "schemas/amd/vram_layout.h"
#include "schemas/wire/bytes.h"

namespace tg::client {
namespace {

constexpr uint32_t kStaticThreads[] = {0x5c, 0x60, 0x68, 0x6c, 0xb0, 0xb4, 0xb8, 0xbc};

uint32_t Log2(uint64_t value) {
  return static_cast<uint32_t>(std::bit_width(value) - 1);
}

}  // namespace

void Boot::SetUpCompute(const RingSetup& setup) {
  Select(1, 0, 0);
  std::vector<uint8_t> mqd(amd::kMqdSize);
  const auto put = [&mqd](uint32_t at, uint32_t value) { StoreLe(&mqd[at], value); };
  const auto put64 = [&mqd](uint32_t at, uint64_t value) { StoreLe(&mqd[at], value); };
  put(0, amd::kMqdHeader);
  for (uint32_t at : kStaticThreads) put(at, 0xffffffff);
  put64(amd::kMqdBaseAddr, card_.fb_base() + amd::kVramMqd);
  put(0x210, 0x5501);  // persistent state
  put(0x214, 2);       // pipe priority
  put(0x218, 0xf);     // queue priority
  put(0x21c, 0x111);   // quantum
  put64(amd::kMqdPqBase, setup.ring >> 8);
  put64(amd::kMqdRptrReportAddr, setup.rptr);
  put64(amd::kMqdWptrPollAddr, setup.wptr);
  put(amd::kMqdDoorbellControl, 0x40000000 | amd::kDoorbellMecRing0 * 2 << 2);
  put(amd::kMqdPqControl, 5u << 8 | (Log2(setup.size / 4) - 1));
  put(0x254, 0x300000);    // indirect buffers
  put(0x280, 0x20004000);  // status
  put(0x288, 0x100);       // privileged
  put64(amd::kMqdEopBase, setup.eop >> 8);
  put(amd::kMqdEopControl, Log2(setup.eop_size / 4) - 1);
  card_.WriteVram(amd::kVramMqd, mqd);

  const uint64_t first = card_.DwordOf("regCP_MQD_BASE_ADDR");
  for (uint32_t i = 0; i < amd::kMqdRegisterCount; i++)
    card_.SetDword(first + i, LoadLe<uint32_t>(&mqd[amd::kMqdRegisterBytes + 4 * i]));
  card_.Set("regCP_HQD_ACTIVE", 1);
  card_.FlushHdp();
  Select(0, 0, 0);
}

void Boot::SetUpSdma(const RingSetup& setup) {
  const std::string queue = "regSDMA0_QUEUE0_";
  card_.Set(queue + "MINOR_PTR_UPDATE", 1);
  card_.SetPair(queue + "RB_RPTR", "", "_HI", 0);
  card_.SetPair(queue + "RB_WPTR", "", "_HI", 0);
  card_.SetPair(queue + "RB_BASE", "", "_HI", setup.ring >> 8);
  card_.SetPair(queue + "RB_RPTR_ADDR", "_LO", "_HI", setup.rptr);
  card_.SetPair(queue + "RB_WPTR_POLL_ADDR", "_LO", "_HI", setup.wptr);
  card_.Update(queue + "DOORBELL_OFFSET", {{"offset", amd::kDoorbellSdma0 * 2}});
  card_.Update(queue + "DOORBELL", {{"enable", 1}});
  card_.Set(queue + "MINOR_PTR_UPDATE", 0);
  const bool mcu = card_.version(amd::kHwSdma0).major >= 7;
  card_.Set(queue + "RB_CNTL", {{mcu ? "mcu_wptr_poll_enable" : "f32_wptr_poll_enable", 1},
                                {"rptr_writeback_enable", 1},
                                {"rptr_writeback_timer", 4},
                                {"rb_enable", 1},
                                {"rb_priv", 1},
                                {"rb_size", Log2(setup.size / 4)}});
  card_.Update(queue + "IB_CNTL", {{"ib_enable", 1}});
  sdma_up_ = true;
}

}  // namespace tg::client
