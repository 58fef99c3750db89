// The simulated card and its servers: any bytes from a client, any packets in its rings.
//
// Input: kind u8 | the rest. Kinds 0 and 1: bytes on the wire of TinyGPU.app's and serve.py's
// flavour. Kinds 2, 3, 4: packets of the SDMA, PM4 and AQL ring of a card that is set up; of these
// two more bytes say which card and how many of the ring's bytes the doorbell leaves out.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "replay/sim/cp_queue.h"
#include "replay/sim/gpu.h"
#include "replay/sim/server_app.h"
#include "replay/sim/server_tcp.h"
#include "schemas/amd/pte.h"
#include "schemas/wire/bytes.h"
#include "tests/fuzz/fuzz.h"

namespace tg::sim {
namespace {

constexpr uint64_t kFb = 0x8000ull << 24;
constexpr uint64_t kUpload = 0x100000, kPspRing = 0x87000, kPspFence = 0x86000,
                   kPspCommand = 0x85000;
// Everything of a queue in 2 MiB of VRAM, which one huge page maps at the start of the VA space.
constexpr uint64_t kArea = 32 << 20, kRing = 0, kRingSize = 0x10000, kReport = 0x20000;

class Bench {
 public:
  explicit Bench(const char* asic) {
    GpuOptions options;
    options.asic = FindAsic(asic);
    auto made = Gpu::Create(options);
    FUZZ_CHECK(made);
    gpu = *std::move(made);
  }

  // As after the driver's boot, without its pauses.
  void SetUp() {
    gpu->Reset();
    gpu->host().Clear();
    gpu->CfgWrite(4, 2, 6);
    const std::string psp = gpu->card().Version(amd::kHwMp0).major >= 14 ? "regMPASP_SMN_C2PMSG_"
                                                                         : "regMP0_SMN_C2PMSG_";
    Set(psp + "36", static_cast<uint32_t>((kFb + kUpload) >> 20));
    Set(psp + "35", 0x20000);
    Set(psp + "69", static_cast<uint32_t>(kFb + kPspRing));
    Set(psp + "70", static_cast<uint32_t>((kFb + kPspRing) >> 32));
    Set(psp + "71", 0x10000);
    Set(psp + "64", 0x20000);
    uint32_t wptr = 0;
    for (uint32_t type : {18u, 71u, 89u, 8u, 0u}) {  // 0: start them
      std::vector<uint8_t> command(0x400), frame(0x40);
      StoreLe<uint32_t>(&command[8], type ? 6 : 0x21);
      StoreLe(&command[0x1c], kFb + kUpload);
      StoreLe<uint32_t>(&command[0x24], 4096);
      StoreLe(&command[0x28], type);
      StoreLe(&frame[0], kFb + kPspCommand);
      StoreLe(&frame[0xc], kFb + kPspFence);
      gpu->BarWrite(0, kPspCommand, command);
      gpu->BarWrite(0, kPspRing + wptr * 4, frame);
      Set(psp + "67", wptr += 16);
    }
    PageTables();
    Set("regRCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1);
    const bool gfx12 = gpu->card().Version(amd::kHwGc).major >= 12;
    const std::string entry = gfx12 ? "regGDC_S2A0_S2A_DOORBELL_ENTRY_" : "regS2A_DOORBELL_ENTRY_";
    Set(entry + "0_CTRL", 1);
    Set(entry + "2_CTRL", 1 | 512 << 7);
    Set("regCP_MEC_DOORBELL_RANGE_UPPER", 0xf8);
    Set("regCP_MEC_RS64_CNTL", 1u << 26);
    Set("regIH_RB_BASE", static_cast<uint32_t>((kFb + 0x3000) >> 8));
    Set("regIH_RB_BASE_HI", static_cast<uint32_t>((kFb + 0x3000) >> 40));
    Set("regIH_RB_CNTL", 1 | 16 << 1 | 1 << 16);
    SdmaQueue();
    ComputeQueue();
  }
  void Put(uint64_t offset, std::span<const uint8_t> bytes) {
    gpu->BarWrite(0, kArea + offset, bytes);
  }
  void Ring(uint64_t slot, uint64_t value) {
    std::array<uint8_t, 8> bytes;
    StoreLe(bytes.data(), value);
    gpu->BarWrite(2, slot, bytes);
    for (int i = 0; i < 4 && gpu->pending(); i++) gpu->Run();
  }

  std::unique_ptr<Gpu> gpu;

 private:
  void Set(const std::string& name, uint32_t value) {
    if (!map_) map_ = std::make_unique<amd::RegisterMap>(Blocks());
    const auto byte = map_->Find(name);
    FUZZ_CHECK(byte);
    std::array<uint8_t, 4> word;
    StoreLe(word.data(), value);
    gpu->BarWrite(5, *byte, word);
  }
  std::vector<amd::IpBlock> Blocks() const {
    std::vector<amd::IpBlock> blocks;
    for (const AsicIp& ip : gpu->card().asic.ips) {
      amd::IpBlock block;
      block.hw_id = ip.hw_id;
      block.version = ip.version;
      block.bases.assign(ip.bases.begin(), ip.bases.end());
      blocks.push_back(block);
    }
    return blocks;
  }
  void Entry(uint64_t table, int level, amd::Pte pte) {
    std::array<uint8_t, 8> bytes;
    const auto format = amd::PteFormatFor(gpu->card().Version(amd::kHwGc));
    StoreLe(bytes.data(), amd::EncodePte(format, level, pte));
    gpu->BarWrite(0, table, bytes);
  }
  void PageTables() {
    amd::Pte table;
    table.valid = true;
    table.address = 0x10000;
    Entry(0, 0, table);
    table.address = 0x11000;
    Entry(0x10000, 1, table);
    amd::Pte leaf;
    leaf.valid = leaf.read = leaf.write = leaf.execute = leaf.leaf = true;
    leaf.address = kArea;
    Entry(0x11000, 2, leaf);
    const std::string context = "regGCVM_CONTEXT0_";
    Set(context + "PAGE_TABLE_START_ADDR_HI32", 2);
    Set(context + "PAGE_TABLE_END_ADDR_LO32", 0xffffffff);
    Set(context + "PAGE_TABLE_END_ADDR_HI32", 7);
    Set(context + "CNTL", 0x007ffe01);
    Set("regGCVM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32", 2);
  }
  void SdmaQueue() {
    const std::string queue = "regSDMA0_QUEUE0_";
    const bool mcu = gpu->card().Version(amd::kHwSdma0).major >= 7;
    Set(mcu ? "regSDMA0_MCU_CNTL" : "regSDMA0_F32_CNTL", 0);
    const uint64_t base = amd::kVaStart + kRing;
    Set(queue + "RB_BASE", static_cast<uint32_t>(base >> 8));
    Set(queue + "RB_BASE_HI", static_cast<uint32_t>(base >> 40));
    Set(queue + "RB_RPTR_ADDR_LO", static_cast<uint32_t>(amd::kVaStart + kReport));
    Set(queue + "RB_RPTR_ADDR_HI", static_cast<uint32_t>(amd::kVaStart >> 32));
    Set(queue + "DOORBELL_OFFSET", 512 << 2);
    Set(queue + "DOORBELL", 1u << 28);
    Set(queue + "RB_CNTL", 1 | 14 << 1 | 1 << 12);  // 64 KiB
  }
  void ComputeQueue() {
    Set("regGRBM_GFX_CNTL", 4);
    const uint64_t base = amd::kVaStart + kRing;
    Set("regCP_HQD_PQ_BASE", static_cast<uint32_t>(base >> 8));
    Set("regCP_HQD_PQ_BASE_HI", static_cast<uint32_t>(base >> 40));
    Set("regCP_HQD_PQ_CONTROL", 13);  // 64 KiB
    Set("regCP_HQD_PQ_DOORBELL_CONTROL", 0x40000018);
    Set("regCP_HQD_ACTIVE", 1);
  }

  std::unique_ptr<amd::RegisterMap> map_;
};

Bench& BenchOf(bool navi48) {
  static Bench navi31("navi31");
  static Bench second("navi48");
  return navi48 ? second : navi31;
}

constexpr size_t kMostAnswered = 128u << 20;

void Wire(Bench& bench, Protocol& protocol, std::span<const uint8_t> bytes) {
  int ends[2];
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  PrepareSocket(ends[0]);
  // The other side: sends everything, takes everything, descriptors too.
  std::thread peer([fd = ends[1], bytes] {
    std::thread sender([fd, bytes] {
      size_t done = 0;
      while (done < bytes.size()) {
        const ssize_t sent = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
        if (sent <= 0) break;
        done += static_cast<size_t>(sent);
      }
      shutdown(fd, SHUT_WR);
    });
    static thread_local std::array<uint8_t, 1 << 16> sink;
    // 33 bytes can ask for 64 MiB: one input gets two such answers and then nobody listens.
    size_t taken = 0;
    for (ssize_t got = 1; got > 0 && taken < kMostAnswered;) {
      got = recv(fd, sink.data(), sink.size(), 0);
      if (got > 0) taken += static_cast<size_t>(got);
    }
    shutdown(fd, SHUT_RDWR);
    sender.join();
  });
  Link link(ends[0], *bench.gpu);
  protocol.Serve(link);
  close(ends[0]);
  peer.join();
  close(ends[1]);
  FUZZ_CHECK(bench.gpu->card().regs.Gaps().size() <= 4096);
}

void Packets(uint8_t kind, fuzz::Input& input) {
  Bench& bench = BenchOf(input.Take<uint8_t>() & 1);
  const uint8_t left_out = input.Take<uint8_t>();
  const auto ring = input.Bytes(kRingSize);
  bench.SetUp();
  bench.Put(kRing, ring);
  const uint64_t announced = ring.size() > left_out ? ring.size() - left_out : 0;
  if (kind == 2) {
    bench.Ring(0x800, announced);
  } else if (kind == 3) {
    bench.Ring(0x18, announced / 4);
  } else {
    CpQueue queue(bench.gpu->card(), bench.gpu->vm(), bench.gpu->ih());
    CpQueueSetup setup;
    setup.aql = true;
    setup.base = amd::kVaStart + kRing;
    setup.size = kRingSize;
    setup.report = amd::kVaStart + kReport;
    queue.Activate(setup);
    queue.Doorbell(announced / 64 - 1);
    Budget budget;
    queue.Run(budget);
  }
}

}  // namespace
}  // namespace tg::sim

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tg::sim;  // NOLINT: a fuzz target's whole file
  tg::fuzz::Input input(data, size);
  const uint8_t kind = input.Take<uint8_t>() % 5;
  if (kind >= 2) {
    Packets(kind, input);
    return 0;
  }
  Bench& bench = BenchOf(false);
  bench.SetUp();
  if (kind == 0) {
    static AppProtocol app(*bench.gpu);  // its 64 MiB buffer is worth keeping
    Wire(bench, app, input.Rest());
  } else {
    TcpProtocol tcp(*bench.gpu);
    Wire(bench, tcp, input.Rest());
    bench.gpu->host().Clear();
  }
  return 0;
}
