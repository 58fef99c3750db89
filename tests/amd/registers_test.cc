#include "schemas/amd/registers.h"

#include <gtest/gtest.h>

namespace tg::amd {
namespace {

IpBlock Block(uint16_t hw_id, IpVersion version, uint8_t instance, std::vector<uint64_t> bases) {
  IpBlock ip;
  ip.hw_id = hw_id;
  ip.version = version;
  ip.instance = instance;
  ip.bases = std::move(bases);
  return ip;
}

// Offsets as Linux 6.1 has them (drivers/gpu/drm/amd/include/asic_reg: gc_11_0_0, gc_11_0_3,
// mmhub_3_0_0/1/2, nbio_4_3_0, mp_13_0_0, mp_11_0, osssys_6_0_0, hdp_6_0_0 *_offset.h).
struct KernelFact {
  const char* prefix;
  IpVersion version;
  const char* name;
  uint32_t offset;
  uint8_t base;
};
constexpr KernelFact kKernelFacts[] = {
    {"gc", {11, 0, 0}, "regSDMA0_QUEUE0_RB_RPTR", 0x0083, 0},
    {"gc", {11, 0, 0}, "regSDMA0_QUEUE0_RB_WPTR", 0x0085, 0},
    {"gc", {11, 0, 0}, "regGRBM_SOFT_RESET", 0x0da8, 0},
    {"gc", {11, 0, 0}, "regCP_STAT", 0x0f40, 0},
    {"gc", {11, 0, 0}, "regGCVM_L2_PROTECTION_FAULT_STATUS", 0x15c8, 0},
    {"gc", {11, 0, 0}, "regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32", 0x16f3, 0},
    {"gc", {11, 0, 0}, "regCP_MQD_BASE_ADDR", 0x1fa9, 0},
    {"gc", {11, 0, 0}, "regCP_HQD_ACTIVE", 0x1fab, 0},
    {"gc", {11, 0, 0}, "regGRBM_GFX_CNTL", 0x0900, 1},
    {"gc", {11, 0, 0}, "regSCRATCH_REG6", 0x2046, 1},
    {"gc", {11, 0, 0}, "regSCRATCH_REG7", 0x2047, 1},
    {"gc", {11, 0, 3}, "regSCRATCH_REG7", 0x2047, 1},
    {"mmhub", {3, 0, 0}, "regMMVM_INVALIDATE_ENG17_ACK", 0x0786, 0},
    {"mmhub", {3, 0, 2}, "regMMVM_INVALIDATE_ENG17_ACK", 0x0706, 0},
    {"mmhub", {3, 0, 1}, "regMMVM_INVALIDATE_ENG17_ACK", 0x0786, 1},
    {"mmhub", {3, 0, 0}, "regMMMC_VM_FB_LOCATION_BASE", 0x08ec, 0},
    {"nbio", {4, 3, 0}, "regBIF_BX_PF0_RSMU_INDEX", 0x0000, 1},
    {"nbio", {4, 3, 0}, "regBIF_BX0_BIF_DOORBELL_INT_CNTL", 0x00fe, 2},
    {"nbio", {4, 3, 0}, "regBIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", 0x012d, 2},
    {"nbio", {4, 3, 0}, "regRCC_DEV0_EPF2_STRAP2", 0xd102, 5},
    {"nbio", {4, 3, 0}, "regS2A_DOORBELL_ENTRY_0_CTRL", 0x4f7640, 3},
    {"osssys", {6, 0, 0}, "regIH_RB_WPTR", 0x0084, 0},
    {"mp", {13, 0, 0}, "regMP0_SMN_C2PMSG_81", 0x0091, 0},
    {"mp", {11, 0, 0}, "mmMP1_SMN_C2PMSG_90", 0x029a, 0},
    {"fixed", {0, 0, 0}, "mmRCC_CONFIG_MEMSIZE", 0x0de3, 0},
};

TEST(RegisterTables, SampleEqualsTheKernelHeaders) {
  for (const KernelFact& fact : kKernelFacts) {
    const data::Module* module = ChooseModule(fact.prefix, fact.version);
    ASSERT_NE(module, nullptr) << fact.prefix;
    ASSERT_EQ(module->version, fact.version);
    int seen = 0;
    for (uint32_t i = 0; i < module->count; ++i) {
      const RegisterDef& reg = data::kRegisters[module->first + i];
      if (NameOf(reg) != fact.name) continue;
      ++seen;
      EXPECT_EQ(reg.offset, fact.offset) << fact.name;
      EXPECT_EQ(reg.base, fact.base) << fact.name;
    }
    EXPECT_EQ(seen, 1) << fact.name;
  }
}

TEST(RegisterTables, EveryModuleIsSortedByNameAndWithinTheTables) {
  size_t total = 0;
  for (size_t m = 0; m < data::kModuleCount; ++m) {
    const data::Module& module = data::kModules[m];
    ASSERT_LE(module.first + module.count, data::kRegisterCount);
    total += module.count;
    for (uint32_t i = 0; i < module.count; ++i) {
      const RegisterDef& reg = data::kRegisters[module.first + i];
      if (i > 0) {
        ASSERT_LT(data::kRegisters[module.first + i - 1].name, reg.name);
      }
      for (size_t f = 0; f < FieldCount(reg); ++f)
        ASSERT_LE(FieldAt(reg, f).lsb, FieldAt(reg, f).msb);
    }
  }
  EXPECT_EQ(total, data::kRegisterCount);
  EXPECT_EQ(data::kModuleCount, 29u);  // 28 of the package and the fixed one
}

TEST(ChooseModule, SameMajorNewestNotNewer) {
  const auto chosen = [](const char* prefix, IpVersion version) {
    const data::Module* module = ChooseModule(prefix, version);
    return module ? ToString(module->version) : "none";
  };
  EXPECT_EQ(chosen("gc", {9, 4, 4}), "9.4.3");
  EXPECT_EQ(chosen("gc", {9, 5, 0}), "9.4.3");
  EXPECT_EQ(chosen("gc", {9, 4, 2}), "none");
  EXPECT_EQ(chosen("gc", {11, 0, 2}), "11.0.0");
  EXPECT_EQ(chosen("gc", {11, 0, 3}), "11.0.3");
  EXPECT_EQ(chosen("gc", {11, 0, 4}), "11.0.3");
  EXPECT_EQ(chosen("gc", {12, 0, 1}), "12.0.0");
  EXPECT_EQ(chosen("gc", {10, 3, 0}), "none");
  EXPECT_EQ(chosen("mmhub", {1, 8, 1}), "1.8.0");
  EXPECT_EQ(chosen("nbio", {7, 9, 1}), "7.9.0");
  EXPECT_EQ(chosen("nbif", {6, 3, 1}), "6.3.1");
  EXPECT_EQ(chosen("hdp", {4, 4, 5}), "4.4.2");
  EXPECT_EQ(chosen("mp", {14, 0, 3}), "14.0.2");
  EXPECT_EQ(chosen("mp", {13, 0, 12}), "13.0.0");
  EXPECT_EQ(chosen("sdma", {4, 4, 4}), "4.4.2");
}

// Byte offsets that field reports quote (B07, B09) and amd-boot gives.
TEST(RegisterMap, AssumedBasesGiveTheOffsetsOfFieldReports) {
  const RegisterMap map = RegisterMap::Assumed();
  EXPECT_TRUE(map.assumed());
  EXPECT_EQ(map.Lookup(0x3011c).name(), "regSCRATCH_REG7");
  EXPECT_EQ(map.Lookup(0x30118).name(), "regSCRATCH_REG6");
  EXPECT_EQ(map.Lookup(0x58a08).name(), "mmMP1_SMN_C2PMSG_66");
  EXPECT_EQ(map.Lookup(0x58a48).name(), "mmMP1_SMN_C2PMSG_82");
  EXPECT_EQ(map.Lookup(0x58a68).name(), "mmMP1_SMN_C2PMSG_90");
  EXPECT_EQ(map.Lookup(0x4b8c).name(), "regSDMA0_QUEUE0_RB_RPTR");
  EXPECT_EQ(map.Lookup(0x4b94).name(), "regSDMA0_QUEUE0_RB_WPTR");
  EXPECT_EQ(map.Lookup(0x378c).name(), "mmRCC_CONFIG_MEMSIZE");
  EXPECT_EQ(map.Lookup(0).name(), "mmMM_INDEX");
  EXPECT_EQ(map.Lookup(4).name(), "mmMM_DATA");
  EXPECT_EQ(map.Lookup(24).name(), "mmMM_INDEX_HI");
  EXPECT_EQ(map.Lookup(0x58a0a).name(), "mmMP1_SMN_C2PMSG_66");  // any byte of it
  EXPECT_FALSE(map.Lookup(0x7ffffffc));
  EXPECT_FALSE(map.Lookup(~0ull));
  EXPECT_EQ(map.Find("SCRATCH_REG7"), 0x3011cu);
  EXPECT_EQ(map.Find("regSCRATCH_REG7"), 0x3011cu);
  EXPECT_EQ(map.Find("MP1_SMN_C2PMSG_90"), 0x58a68u);
  EXPECT_EQ(map.Find("no such register"), std::nullopt);
  EXPECT_EQ(map.Find("regSCRATCH_REG7", 1), std::nullopt);
  EXPECT_EQ(map.Find(std::string(10000, 'x')), std::nullopt);
}

TEST(RegisterMap, NamesOfSharedAddresses) {
  const RegisterMap navi31 = RegisterMap::Assumed(0x744c);
  const auto psp = navi31.Aliases(*navi31.Find("regMP0_SMN_C2PMSG_81"));
  ASSERT_EQ(psp.size(), 2u);
  EXPECT_EQ(psp[0].name(), "regMP0_SMN_C2PMSG_81");
  EXPECT_EQ(psp[1].name(), "mmMP0_SMN_C2PMSG_81");
  const auto smu = navi31.Aliases(*navi31.Find("mmMP1_SMN_C2PMSG_90"));
  ASSERT_EQ(smu.size(), 2u);
  EXPECT_EQ(smu[0].name(), "mmMP1_SMN_C2PMSG_90");
  EXPECT_EQ(smu[0].hw_id, kHwMp1);
  EXPECT_EQ(smu[1].name(), "regMP1_SMN_C2PMSG_90");
  const RegisterMap navi48 = RegisterMap::Assumed(0x7550);
  EXPECT_EQ(navi48.Lookup((0x16000 + 0x91) * 4).name(), "regMPASP_SMN_C2PMSG_81");
  EXPECT_EQ(navi48.Lookup(0x58a68).name(), "mmMP1_SMN_C2PMSG_90");
  // The MQD's name for it, not the older one.
  EXPECT_EQ(navi48.Lookup(*navi48.Find("regCOMPUTE_DESTINATION_EN_SE0")).name(),
            "regCOMPUTE_STATIC_THREAD_MGMT_SE0");
}

// The driver copies the MQD image over this range, so each of its 56 dwords has a name.
TEST(RegisterMap, MqdRangeHasNoHoles) {
  for (const uint16_t device : {0x744c, 0x7480, 0x7550, 0x74a1}) {
    const RegisterMap map = RegisterMap::Assumed(device);
    const auto first = map.Find("regCP_MQD_BASE_ADDR");
    const auto last = map.Find("regCP_HQD_PQ_WPTR_HI");
    ASSERT_TRUE(first && last);
    EXPECT_EQ((*last - *first) / 4, 55u);
    for (uint64_t at = *first; at <= *last; at += 4)
      EXPECT_TRUE(map.Lookup(at)) << (at - *first) / 4;
    EXPECT_EQ(map.Lookup(*first + 26 * 4).name(), "regCP_HQD_SEMA_CMD");
  }
}

TEST(RegisterMap, PartOfATableIsCompletedByAssumption) {
  const std::vector<IpBlock> ips = {Block(kHwGc, {12, 0, 1}, 0, {0x1260, 0xB000, 0, 0})};
  const RegisterMap map = RegisterMap::FromPart(ips);
  EXPECT_TRUE(map.assumed());
  EXPECT_EQ(map.Find("regSCRATCH_REG7"), (0xB000u + 8263) * 4);  // as the table says
  EXPECT_EQ(map.Find("mmMP1_SMN_C2PMSG_90"), 0x58a68u);          // assumed
  EXPECT_EQ(map.Version(kHwMp0), (IpVersion{14, 0, 3}));
}

TEST(RegisterMap, InstancesAndForeignBases) {
  std::vector<IpBlock> ips;
  for (uint8_t i = 0; i < 8; ++i) {
    ips.push_back(Block(kHwGc, {9, 4, 3}, i, {0x2000u + i * 0x100000u, 0xA000u + i * 0x100000u}));
  }
  for (uint8_t i = 0; i < 16; ++i)
    ips.push_back(Block(kHwSdma0, {4, 4, 2}, i, {0x4980u + i * 0x400u}));
  const RegisterMap map(ips);
  EXPECT_FALSE(map.assumed());
  EXPECT_EQ(map.Find("regSCRATCH_REG7", 3), (0x30A000u + 8263) * 4);
  const RegisterHit hit = map.Lookup((0x30A000u + 8263) * 4);
  EXPECT_EQ(hit.name(), "regSCRATCH_REG7");
  EXPECT_EQ(hit.instance, 3);
  EXPECT_EQ(hit.hw_id, kHwGc);
  EXPECT_STREQ(hit.module->prefix, "gc");
  EXPECT_EQ(map.InstancesOf("SDMA_GFX_RB_CNTL").size(), 16u);
  EXPECT_EQ(map.Version(kHwGc), (IpVersion{9, 4, 3}));
  EXPECT_EQ(map.Version(kHwHdp), std::nullopt);
}

TEST(RegisterMap, HostileBlocksStayBounded) {
  std::vector<IpBlock> ips;
  for (int i = 0; i < 5000; ++i) {
    ips.push_back(Block(kHwGc, {11, 0, 0}, static_cast<uint8_t>(i), {~0ull, ~0ull - 100}));
  }
  ips.push_back(Block(kHwMmhub, {3, 0, 0}, 0, {}));
  ips.push_back(Block(kHwHdp, {77, 0, 0}, 0, {1}));
  const RegisterMap map(ips);
  EXPECT_LT(map.size(), 64u * 2000);
  ASSERT_EQ(map.problems().size(), 3u);
  EXPECT_EQ(map.problems()[0], "no register table for HDP 77.0.0");
  EXPECT_NE(map.problems()[1].find("GC has more than 64 instances"), std::string::npos);
  EXPECT_NE(map.problems()[2].find("MMHUB: 319 registers"), std::string::npos);
}

TEST(Fields, DecodeAndEncode) {
  const RegisterMap map = RegisterMap::Assumed(0x744c);
  const RegisterDef* req = map.FindDef("regGCVM_INVALIDATE_ENG17_REQ");
  ASSERT_NE(req, nullptr);
  // What the AM driver writes to flush VMID 0 (amd-boot: 0x00f80001).
  EXPECT_EQ(GetField(*req, "per_vmid_invalidate_req", 0x00f80001), 1u);
  EXPECT_EQ(GetField(*req, "invalidate_l1_ptes", 0x00f80001), 1u);
  EXPECT_EQ(GetField(*req, "no such", 1), std::nullopt);
  uint64_t value = 0;
  for (const char* name : {"per_vmid_invalidate_req", "invalidate_l2_ptes", "invalidate_l2_pde0",
                           "invalidate_l2_pde1", "invalidate_l2_pde2", "invalidate_l1_ptes"}) {
    value = SetField(*req, name, 1, value);
  }
  EXPECT_EQ(value, 0x00f80001u);
  const RegisterDef* select = map.FindDef("regGRBM_GFX_CNTL");
  ASSERT_NE(select, nullptr);
  EXPECT_EQ(DescribeFields(*select, SetField(*select, "meid", 1)), "meid=1");
  EXPECT_EQ(DescribeFields(*map.FindDef("regSCRATCH_REG7"), 0xA0000008), "");
  const RegisterDef* dequeue = map.FindDef("regCP_HQD_DEQUEUE_REQUEST");
  EXPECT_EQ(DescribeFields(*dequeue, 2), "dequeue_req=2(reset waves)");
}

TEST(HwIds, Names) {
  EXPECT_EQ(HwIdName(11), "GC");
  EXPECT_EQ(HwIdName(271), "DMU");
  EXPECT_EQ(HwIdName(9999), "hw id 9999");
  EXPECT_TRUE(IsKnownHwId(108));
  EXPECT_FALSE(IsKnownHwId(13));
}

}  // namespace
}  // namespace tg::amd
