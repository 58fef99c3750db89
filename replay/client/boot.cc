#include "replay/client/boot.h"

#include <array>
#include <thread>

#include "schemas/amd/doorbell.h"
#include "schemas/amd/fault.h"
#include "schemas/amd/ih.h"
#include "schemas/amd/scratch.h"
#include "schemas/amd/vram_layout.h"

namespace tg::client {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kPciCommand = 4, kBusMaster = 4;
constexpr uint64_t kVaEnd = 0x7fffffffffff;
constexpr uint32_t kScratchPage = 0x1000, kDummyPage = 0x2000;
constexpr uint32_t kEngines = 18;

void Sleep(int ms) {
  std::this_thread::sleep_for(milliseconds(ms));
}

}  // namespace

void Boot::Run(bool force_full) {
  card_.set_fb_base(static_cast<uint64_t>(card_.Get("regMMMC_VM_FB_LOCATION_BASE") & 0xffffff)
                    << 24);
  card_.Get("regMMMC_VM_FB_LOCATION_TOP");
  vm_.WipeRoot();
  card_.ZeroVram(amd::kVramPspFence, 0x1000);

  partial_ = card_.Get("regSCRATCH_REG7") == amd::kAmVersionCurrent && !force_full;
  const std::string fault = card_.gfx12() ? "regGCVM_L2_PROTECTION_FAULT_STATUS_LO32"
                                          : "regGCVM_L2_PROTECTION_FAULT_STATUS";
  if (partial_ && (card_.Get("regSCRATCH_REG6") != 0 || card_.Get(fault) != 0)) partial_ = false;
  if (!partial_) {
    Port& port = card_.port();
    const auto command = [&port](uint32_t clear, uint32_t set) {
      const uint32_t value = port.CfgRead(kPciCommand, 2);
      port.CfgWrite(kPciCommand, 2, (value & ~clear) | set);
      port.CfgRead(kPciCommand, 2);
    };
    if (SosAlive() && SmuAlive()) {
      command(kBusMaster, 0);
      Mode1Reset();
    }
    command(0, kBusMaster);
    Soc();
    Hub("MM");
    InterruptRings();
    SecurityProcessor();
    SetUpPowerController();
  }
  Graphics();
  SetUpSdmaEngine();
  Clocks(true);
  Gating();
  card_.Set("regSCRATCH_REG7", amd::kAmVersionCurrent);
  card_.Set("regSCRATCH_REG6", 1);
}

void Boot::Soc() {
  card_.Update("regRCC_DEV0_EPF2_STRAP2", {{"strap_no_soft_reset_dev0_f2", 0}});
  card_.Set("regRCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1);
}

void Boot::EnableDoorbells(int port, uint32_t awid, uint32_t offset, uint32_t size) {
  const std::string number = std::to_string(port);
  const std::string field = "s2a_doorbell_port" + number;
  card_.Set((card_.gfx12() ? "regGDC_S2A0_S2A_DOORBELL_ENTRY_" : "regS2A_DOORBELL_ENTRY_") +
                number + "_CTRL",
            {{field + "_enable", 1},
             {field + "_awid", awid},
             {field + "_range_size", size},
             {field + "_awaddr_31_28_value", 3},
             {field + "_range_offset", offset}});
}

void Boot::Hub(const std::string& hub) {
  const std::string mc = "reg" + hub + "MC_VM_", vm = "reg" + hub + "VM_";
  const uint64_t fb_end = card_.fb_base() + card_.vram_size() - 1;
  card_.Set(mc + "AGP_BASE", 0);
  card_.Set(mc + "AGP_BOT", 0xffffff);
  card_.Set(mc + "AGP_TOP", 0);
  card_.Set(mc + "SYSTEM_APERTURE_LOW_ADDR", static_cast<uint32_t>(card_.fb_base() >> 18));
  card_.Set(mc + "SYSTEM_APERTURE_HIGH_ADDR", static_cast<uint32_t>(fb_end >> 24 << 6));
  card_.SetPair(mc + "SYSTEM_APERTURE_DEFAULT_ADDR", "_LSB", "_MSB", kScratchPage >> 12);
  card_.SetPair(vm + "L2_PROTECTION_FAULT_DEFAULT_ADDR", "_LO32", "_HI32", kDummyPage >> 12);
  card_.Update(vm + "L2_PROTECTION_FAULT_CNTL2", {{"active_page_migration_pte_read_retry", 1}});
  card_.Update(mc + "MX_L1_TLB_CNTL", {{"enable_l1_tlb", 1},
                                       {"system_access_mode", 3},
                                       {"enable_advanced_driver_model", 1},
                                       {"system_aperture_unmapped_access", 0},
                                       {"mtype", amd::kMtypeUncached}});
  card_.Update(vm + "L2_CNTL", {{"enable_l2_cache", 1},
                                {"enable_default_page_out_to_system_memory", 1},
                                {"l2_pde0_cache_tag_generation_mode", 0},
                                {"pde_fault_classification", 0},
                                {"context1_identity_access_mode", 1},
                                {"identity_mode_fragment_size", 0},
                                {"enable_l2_fragment_processing", 0}});
  card_.Update(vm + "L2_CNTL2", {{"invalidate_all_l1_tlbs", 1}, {"invalidate_l2_cache", 1}});
  card_.Set(vm + "L2_CNTL3", {{"l2_cache_4k_associativity", 1},
                              {"l2_cache_bigk_associativity", 1},
                              {"bank_select", 9},
                              {"l2_cache_bigk_fragment_size", 6}});
  card_.Set(vm + "L2_CNTL4", {{"l2_cache_4k_partition_count", 1}});
  card_.Set(vm + "L2_CNTL5", {{"walker_priority_client_id", 0x1ff}});

  const std::string table = vm + "CONTEXT0_PAGE_TABLE_";
  card_.SetPair(table + "START_ADDR", "_LO32", "_HI32", amd::kVaStart >> 12);
  card_.SetPair(table + "END_ADDR", "_LO32", "_HI32", kVaEnd >> 12);
  card_.SetPair(table + "BASE_ADDR", "_LO32", "_HI32", amd::kVramRootTable | 1);
  // Depth 3; every kind of fault raises an interrupt and goes to the dummy page.
  const std::string context = vm + "CONTEXT0_CNTL";
  uint32_t control = 0x1800000;
  for (const char* kind : {"pde0", "dummy_page", "range", "valid", "read", "write", "execute"}) {
    for (const char* how :
         {"_protection_fault_enable_interrupt", "_protection_fault_enable_default"})
      control = card_.WithField(context, std::string(kind) + how, 1, control);
  }
  card_.Set(context, {{"enable_context", 1}, {"page_table_depth", 3}}, control);

  card_.SetPair(vm + "L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR", "_LO32", "_HI32", 0xfffffffff);
  card_.SetPair(vm + "L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR", "_LO32", "_HI32", 0);
  card_.SetPair(vm + "L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET", "_LO32", "_HI32", 0);
  for (uint32_t i = 0; i < kEngines; i++)
    card_.SetPair(vm + "INVALIDATE_ENG" + std::to_string(i) + "_ADDR_RANGE", "_LO32", "_HI32",
                  0x1fffffffff);
}

void Boot::InterruptRings() {
  struct Ring {
    uint64_t ring, wptr;
    std::string suffix;
  };
  const Ring rings[] = {{amd::kVramIhRing0, amd::kVramIhRing0Wptr, ""},
                        {amd::kVramIhRing1, amd::kVramIhRing1Wptr, "_RING1"}};
  for (const Ring& ring : rings) {
    const bool first = ring.suffix.empty();
    const uint64_t address = (card_.fb_base() + ring.ring) >> 8;
    card_.SetPair("regIH_RB_BASE", ring.suffix, "_HI" + ring.suffix, address);
    const uint32_t own = card_.WithField(
        "regIH_RB_CNTL" + ring.suffix, first ? "wptr_overflow_enable" : "rb_full_drain_enable", 1);
    card_.Set("regIH_RB_CNTL" + ring.suffix,
              {{"mc_space", 4},
               {"wptr_overflow_clear", 1},
               {"rb_size", 16},
               {"mc_snoop", 1},
               {"rptr_rearm", first ? 1u : 0u}},
              own);
    if (first) card_.SetPair("regIH_RB_WPTR_ADDR", "_LO", "_HI", card_.fb_base() + ring.wptr);
    card_.Set("regIH_RB_WPTR" + ring.suffix, 0);
    card_.Set("regIH_RB_RPTR" + ring.suffix, 0);
    card_.Set("regIH_DOORBELL_RPTR" + ring.suffix, 0);
  }
  card_.Update("regIH_STORM_CLIENT_LIST_CNTL", {{"client18_is_storm_client", 1}});
  card_.Update("regIH_INT_FLOOD_CNTL", {{"flood_cntl_enable", 1}});
  card_.Update("regIH_MSI_STORM_CTRL", {{"delay", 3}});
  card_.Update("regIH_RB_CNTL", {{"rb_enable", 1}, {"enable_intr", 1}});
  card_.Update("regIH_RB_CNTL_RING1", {{"rb_enable", 1}});
}

void Boot::Graphics() {
  card_.Wait(
      [this] {
        return card_.Get("regCP_STAT") == 0 ||
               card_.Field("regRLC_RLCS_BOOTLOAD_STATUS", "bootload_complete") == 0;
      },
      "RLC autoload");
  Hub("GC");
  vm_.set_gc_hub(true);
  if (partial_) return ResetMec();
  ConfigMec();
  card_.Set("regTCP_CNTL", card_.Get("regTCP_CNTL") | 0x20000000);
  card_.Set("regRLC_CNTL", 1);
  card_.Update("regRLC_SRM_CNTL", {{"srm_enable", 1}, {"auto_incr_addr", 1}});
  card_.Set("regRLC_SPM_MC_CNTL", 0xf);
  EnableDoorbells(0, 3, 0, 0);
  EnableDoorbells(3, 6, 0, 0);
  card_.Update("regGRBM_CNTL", {{"read_timeout", 0xff}});
  for (uint32_t vmid = 0; vmid < 16; vmid++) {
    Select(0, 0, vmid);
    card_.Set("regSH_MEM_CONFIG", {{"initial_inst_prefetch", 3}, {"alignment_mode", 3}});
    card_.Set("regSH_MEM_BASES", {{"shared_base", 1}, {"private_base", 2}});
  }
  Select(0, 0, 0);
  card_.Set("regCP_MEC_DOORBELL_RANGE_LOWER", 0);
  card_.Set("regCP_MEC_DOORBELL_RANGE_UPPER", 0xf8);
  EnableMec();
}

void Boot::Select(uint32_t me, uint32_t queue, uint32_t vmid) {
  card_.Set("regGRBM_GFX_CNTL", {{"meid", me}, {"queueid", queue}, {"vmid", vmid}});
}

void Boot::ConfigMec() {
  struct Engine {
    const char* name;
    const char* control;
    const char* stem;
    uint32_t me;
  };
  const Engine engines[] = {{"pfp", "regCP_ME_CNTL", "regCP_PFP", 0},
                            {"me", "regCP_ME_CNTL", "regCP_ME", 0},
                            {"mec", "regCP_MEC_RS64_CNTL", "regCP_MEC_RS64", 1}};
  for (const Engine& engine : engines) {
    if (!card_.gfx12() && engine.me == 0) continue;
    Select(engine.me, 0, 0);
    card_.SetPair(std::string(engine.stem) + "_PRGRM_CNTR_START", "", "_HI", 0x1000 >> 2);
    Select(0, 0, 0);
    const std::string reset = std::string(engine.name) + "_pipe0_reset";
    card_.Update(engine.control, {{reset, 1}});
    card_.Update(engine.control, {{reset, 0}});
  }
}

void Boot::EnableMec() {
  card_.Update("regCP_MEC_RS64_CNTL",
               {{"mec_pipe0_reset", 0}, {"mec_pipe0_active", 1}, {"mec_halt", 0}});
  Sleep(50);
}

void Boot::Dequeue() {
  for (uint32_t queue = 0; queue < 2; queue++) {
    Select(1, queue, 0);
    if (!(card_.Get("regCP_HQD_ACTIVE") & 1)) continue;
    card_.Set("regCP_HQD_DEQUEUE_REQUEST", 2);
    card_.Set("regSPI_COMPUTE_QUEUE_RESET", 1);
    card_.Wait([this] { return !(card_.Get("regCP_HQD_ACTIVE") & 1); }, "HQD dequeue");
  }
  Select(0, 0, 0);
}

void Boot::ResetMec() {
  Dequeue();
  if (!card_.gfx12()) {
    card_.Set("regGRBM_SOFT_RESET", {{"soft_reset_cp", 1}, {"soft_reset_cpc", 1}});
    Sleep(50);
    card_.Set("regGRBM_SOFT_RESET", 0);
  }
  ConfigMec();
  EnableMec();
}

void Boot::SetUpSdmaEngine() {
  const bool mcu = card_.version(amd::kHwSdma0).major >= 7;
  card_.Update("regSDMA0_WATCHDOG_CNTL", {{"queue_hang_count", 100}});
  card_.Update("regSDMA0_UTCL1_CNTL", {{"resp_mode", 3}, {"redo_delay", 9}});
  card_.Update("regSDMA0_UTCL1_PAGE",
               {{"rd_l2_policy", 2}, {"wr_l2_policy", 3}, {"llc_noalloc", 1}});
  if (mcu) {
    card_.Update("regSDMA0_MCU_CNTL", {{"halt", 0}, {"reset", 0}});
  } else {
    card_.Update("regSDMA0_F32_CNTL", {{"halt", 0}, {"th1_reset", 0}});
  }
  card_.Update("regSDMA0_CNTL", {{"trap_enable", 1}});
  EnableDoorbells(2, 0xe, amd::kDoorbellSdma0 * 2, 4);
}

void Boot::Gating() {
  card_.Update("regHDP_MEM_POWER_CTRL",
               {{"atomic_mem_power_ctrl_en", 1}, {"atomic_mem_power_ds_en", 1}});
  card_.Set("regRLC_SAFE_MODE", {{"message", 1}, {"cmd", 1}});
  card_.Wait([this] { return !(card_.Get("regRLC_SAFE_MODE") & 1); }, "RLC safe mode");
  card_.Update("regRLC_CGCG_CGLS_CTRL", {{"cgcg_gfx_idle_threshold", 0x36},
                                         {"cgcg_en", 1},
                                         {"cgls_rep_compansat_delay", 0xf},
                                         {"cgls_en", 1}});
  card_.Update("regCP_RB_WPTR_POLL_CNTL", {{"poll_frequency", 0x100}, {"idle_poll_count", 0x90}});
  card_.Update(
      "regCP_INT_CNTL",
      {{"cntx_busy_int_enable", 1}, {"cntx_empty_int_enable", 1}, {"cmp_busy_int_enable", 1}});
  card_.Update("regSDMA0_RLC_CGCG_CTRL", {{"cgcg_int_enable", 1}});
  card_.Update("regSDMA1_RLC_CGCG_CTRL", {{"cgcg_int_enable", 1}});
  card_.Update("regRLC_CGTT_MGCG_OVERRIDE", {{"perfmon_clock_state", 1},
                                             {"gfxip_repeater_fgcg_override", 0},
                                             {"gfxip_fgcg_override", 0},
                                             {"grbm_cgtt_sclk_override", 0},
                                             {"rlc_cgtt_sclk_override", 0},
                                             {"gfxip_mgcg_override", 0},
                                             {"gfxip_cgls_override", 0},
                                             {"gfxip_cgcg_override", 0}});
  card_.Set("regRLC_SAFE_MODE", {{"message", 0}, {"cmd", 1}});
}

void Boot::DrainInterrupts() {
  const uint32_t wptr = card_.Get("regIH_RB_WPTR");
  card_.Set("regIH_RB_RPTR", (wptr >> 2) & 0xffff);
  if (!(wptr & 1)) return;
  card_.Update("regIH_RB_WPTR", {{"rb_overflow", 0}});
  card_.Update("regIH_RB_CNTL", {{"wptr_overflow_clear", 1}});
  card_.Update("regIH_RB_CNTL", {{"wptr_overflow_clear", 0}});
}

bool Boot::TakeInterrupts() {
  constexpr uint32_t kRingDwords = amd::kVramIhRingSize / 4;
  const uint32_t wptr = (card_.Get("regIH_RB_WPTR") >> 2) & 0xffff;
  uint32_t rptr = card_.Get("regIH_RB_RPTR");
  bool error = false;
  // No more entries than the ring holds, whatever the pointers say.
  for (uint32_t i = 0; rptr != wptr && i < kRingDwords / amd::kIhEntryDwords; i++) {
    std::array<uint32_t, amd::kIhEntryDwords> words;
    for (uint32_t word = 0; word < words.size(); word++)
      words[word] = card_.ReadVram32(amd::kVramIhRing0 + (rptr + word) % kRingDwords * 4ull);
    rptr = (rptr + amd::kIhEntryDwords) % kRingDwords;
    const amd::IhMeaning meaning =
        amd::ExplainIhEntry(card_.version(amd::kHwGc), amd::DecodeIhEntry(words));
    error |= meaning.effect != amd::IhEffect::kIgnored;
    if (meaning.effect != amd::IhEffect::kPageFault) continue;
    card_.Get(card_.gfx12() ? "regGCVM_L2_PROTECTION_FAULT_STATUS_LO32"
                            : "regGCVM_L2_PROTECTION_FAULT_STATUS");
    card_.Get("regGCVM_L2_PROTECTION_FAULT_ADDR_HI32");
    card_.Get("regGCVM_L2_PROTECTION_FAULT_ADDR_LO32");
    card_.Update("regGCVM_L2_PROTECTION_FAULT_CNTL", {{"clear_protection_fault_status_addr", 1}});
  }
  DrainInterrupts();
  card_.Get("regBIF_BX0_BIF_DOORBELL_INT_CNTL");
  return error;
}

void Boot::Finish(bool error) {
  if (sdma_up_) {
    const std::string queue = "regSDMA0_QUEUE0_";
    card_.Update(queue + "RB_CNTL", {{"rb_enable", 0}});
    card_.Update(queue + "IB_CNTL", {{"ib_enable", 0}});
    card_.Update(queue + "DOORBELL", {{"enable", 0}});
    card_.Update(queue + "DOORBELL_OFFSET", {{"offset", 0}});
  }
  card_.Set("regGRBM_SOFT_RESET", {{"soft_reset_sdma0", 1}});
  Sleep(10);
  card_.Set("regGRBM_SOFT_RESET", 0);
  Dequeue();
  Clocks(false);
  error |= TakeInterrupts();
  card_.Set("regSCRATCH_REG6", error ? 1 : 0);
}

}  // namespace tg::client
