#include "replay/sim/asic.h"

namespace tg::sim {
namespace {

// Bases: navi_offsets (sienna_cichlid_ip_offset.h and later boards share them), as the discovery
// tables of these boards list them in sysfs. SDMA registers lie in GC's windows since gfx10.
constexpr uint32_t kGc[] = {0x00001260, 0x0000A000, 0x0001C000, 0x02402C00};
constexpr uint32_t kMmhub[] = {0x0001A000, 0x02408800};
constexpr uint32_t kAthub[] = {0x00000C00, 0x02408C00};
constexpr uint32_t kOsssys[] = {0x000010A0, 0x0240A000};
constexpr uint32_t kHdp[] = {0x00000F20, 0x0240A400};
constexpr uint32_t kNbif[] = {0x00000000, 0x00000014, 0x00000D20,
                              0x00010400, 0x0241B000, 0x04040000};
constexpr uint32_t kMp[] = {0x00016000, 0x00DC0000, 0x00E00000, 0x00E40000, 0x0243FC00};
constexpr uint32_t kSmuio[] = {0x00016800, 0x00016A00, 0x00440000, 0x02401000};
constexpr uint32_t kThm[] = {0x00016600, 0x02400C00};
constexpr uint32_t kClk[] = {0x00016C00, 0x02401800};
constexpr uint32_t kDf[] = {0x00007000, 0x0240B800};
constexpr uint32_t kUmc[] = {0x00014000, 0x02425800};
constexpr uint32_t kVcn[] = {0x00007800, 0x00007E00, 0x02403000};
constexpr uint32_t kDcn[] = {0x00000012, 0x000000C0, 0x000034C0, 0x00009000, 0x02403C00};

constexpr AsicIp kNavi31Ips[] = {
    {amd::kHwGc, 0, {11, 0, 0}, kGc},
    {amd::kHwHdp, 0, {6, 0, 0}, kHdp},
    {amd::kHwSdma0, 0, {6, 0, 0}, kGc},
    {amd::kHwSdma1, 0, {6, 0, 0}, kGc},
    {amd::kHwMmhub, 0, {3, 0, 0}, kMmhub},
    {35, 0, {3, 0, 0}, kAthub},
    {amd::kHwNbif, 0, {4, 3, 0}, kNbif},
    {amd::kHwMp0, 0, {13, 0, 0}, kMp},
    {amd::kHwMp1, 0, {13, 0, 0}, kMp},
    {amd::kHwOsssys, 0, {6, 0, 0}, kOsssys},
    {4, 0, {13, 0, 6}, kSmuio},
    {3, 0, {13, 0, 2}, kThm},
    {6, 0, {13, 0, 0}, kClk},
    {46, 0, {4, 3, 0}, kDf},
    {150, 0, {8, 10, 0}, kUmc},
    {12, 0, {4, 0, 0}, kVcn},
    {271, 0, {3, 2, 0}, kDcn},
};

constexpr AsicIp kNavi48Ips[] = {
    {amd::kHwGc, 0, {12, 0, 1}, kGc},
    {amd::kHwHdp, 0, {7, 0, 0}, kHdp},
    {amd::kHwSdma0, 0, {7, 0, 1}, kGc},
    {amd::kHwSdma1, 0, {7, 0, 1}, kGc},
    {amd::kHwMmhub, 0, {4, 1, 0}, kMmhub},
    {35, 0, {4, 1, 0}, kAthub},
    {amd::kHwNbif, 0, {6, 3, 1}, kNbif},
    {amd::kHwMp0, 0, {14, 0, 3}, kMp},
    {amd::kHwMp1, 0, {14, 0, 3}, kMp},
    {amd::kHwOsssys, 0, {7, 0, 0}, kOsssys},
    {4, 0, {14, 0, 2}, kSmuio},
    {3, 0, {14, 0, 2}, kThm},
    {6, 0, {14, 0, 0}, kClk},
    {46, 0, {4, 15, 0}, kDf},
    {150, 0, {8, 14, 0}, kUmc},
    {12, 0, {5, 0, 0}, kVcn},
    {271, 0, {4, 1, 0}, kDcn},
};

// Words from byte 0x0c of gc_info on: num_se, num_wgp0_per_sa, num_wgp1_per_sa, num_rb_per_se,
// num_gl2c, num_gprs, num_max_gs_thds, gs_table_depth, gsprim_buff_depth, parameter_cache_depth,
// double_offchip_lds_buffer, wave_size, max_waves_per_simd, max_scratch_slots_per_cu, lds_size,
// num_sc_per_se, num_sa_per_se, num_packer_per_sc, num_gl2a | v1.1: num_tcp_per_sa,
// num_sdp_interface, num_tcps | v1.2: num_tcp_per_wgp, tcp_l1_size, num_sqc_per_wgp,
// l1_instruction_cache_size_per_sqc, l1_data_cache_size_per_sqc, gl1c_per_sa,
// gl1c_size_per_instance, gl2c_per_gpu | v1.3: tcp_size_per_cu, tcp_cache_line_size,
// instruction_cache_size_per_sqc, instruction_cache_line_size, scalar_data_cache_size_per_sqc,
// scalar_data_cache_line_size, tcc_size, tcc_cache_line_size.
//
// 96 compute units: 6 engines x 2 arrays x 4 WGPs x 2.
constexpr uint32_t kNavi31Gc[] = {6, 4, 0, 4, 24, 1536, 32, 32, 1792, 512, 1,  32, 16, 32,  64,
                                  1, 2, 4, 4, 8,  24,   96, 2,  32,   1,   32, 16, 1,  256, 24};
// 64 compute units: 4 engines x 2 arrays x 4 WGPs x 2.
constexpr uint32_t kNavi48Gc[] = {4,  4,  0,   4,  16, 1536, 32, 32,  1792, 512, 1,   32, 16,
                                  32, 64, 1,   2,  4,  4,    8,  16,  64,   2,   32,  1,  32,
                                  16, 1,  256, 16, 32, 128,  32, 128, 16,   64,  512, 256};

constexpr uint16_t kNavi31Gfx[] = {500, 2482};
constexpr uint16_t kNavi31Soc[] = {500, 635, 850, 1000, 1200, 1300};
constexpr uint16_t kNavi31Mem[] = {96, 456, 772, 1249};
constexpr uint16_t kNavi31Fabric[] = {500, 1000, 1428, 1800, 2000, 2250};
constexpr ClockDomain kNavi31Clocks[] = {
    {0, "gfx", kNavi31Gfx},
    {1, "soc", kNavi31Soc},
    {2, "memory", kNavi31Mem},
    {3, "fabric", kNavi31Fabric},
};

constexpr uint16_t kNavi48Gfx[] = {500, 2970};
constexpr uint16_t kNavi48Soc[] = {500, 750, 1000, 1150, 1300};
constexpr uint16_t kNavi48Mem[] = {96, 456, 772, 875, 1124, 1258};
constexpr uint16_t kNavi48Fabric[] = {500, 1000, 1400, 1750, 2000, 2250};
constexpr ClockDomain kNavi48Clocks[] = {
    {0, "gfx", kNavi48Gfx},
    {1, "soc", kNavi48Soc},
    {2, "memory", kNavi48Mem},
    {3, "fabric", kNavi48Fabric},
};

// PCI ids, BAR sizes: lspci of these boards; VRAM sizes: the kernel's "VRAM: 24560M" / "16304M".
constexpr Asic kAsics[] = {
    {.name = "navi31",
     .product = "Radeon RX 7900 XTX",
     .gfx = "gfx1100",
     .device_id = 0x744c,
     .revision = 0xc8,
     .subsystem = 0x0e3b1002,
     .vram_mib = 24560,
     .bar0_full = 32ull << 30,
     .bar2_size = 2ull << 20,
     .bar5_size = 1ull << 20,
     .rebar_sizes = 0xff00,  // 256 MiB .. 32 GiB
     .discovery_version = 3,
     .ips = kNavi31Ips,
     .gc = {1, 2, kNavi31Gc},
     .clocks = kNavi31Clocks,
     .smu_version = 0x004e7e00,  // 78.126.0
     .sos_version = 0x00310015},
    {.name = "navi48",
     .product = "Radeon RX 9070 XT",
     .gfx = "gfx1201",
     .device_id = 0x7550,
     .revision = 0xc0,
     .subsystem = 0x24141002,
     .vram_mib = 16304,
     .bar0_full = 16ull << 30,
     .bar2_size = 2ull << 20,
     .bar5_size = 512ull << 10,
     .rebar_sizes = 0x7f00,  // 256 MiB .. 16 GiB
     .discovery_version = 4,
     .ips = kNavi48Ips,
     .gc = {1, 3, kNavi48Gc},
     .clocks = kNavi48Clocks,
     .smu_version = 0x00684b00,  // 104.75.0
     .sos_version = 0x003e0020},
};

}  // namespace

const Asic* FindAsic(std::string_view name) {
  for (const Asic& asic : kAsics)
    if (asic.name == name) return &asic;
  return nullptr;
}

std::span<const Asic> AllAsics() {
  return kAsics;
}

}  // namespace tg::sim
