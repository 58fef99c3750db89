// Synthetic sessions of the AM driver on a gfx11 card, in its own words: boot, queues, submissions,
// waits, recovery, finish. What a test does not say did not happen.
//
// Addresses: there are no page tables in these traces, so virtual addresses are DMA addresses of
// regions (the model assumes that where no table was seen).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/explain/observation.h"
#include "tests/model/feeder.h"

namespace tg::explain {

class Scene : public model::Feeder {
 public:
  static constexpr uint64_t kComputeRing = 0x110000000, kComputePage = 0x120000000;
  static constexpr uint64_t kSdmaRing = 0x130000000, kSdmaPage = 0x140000000;
  static constexpr uint64_t kSignals = 0x150000000, kTimeline = kSignals + 0x3ff0;
  static constexpr uint64_t kStaging = 0x160000000, kVram = 0x170000000;

  uint32_t sdma_engine = 0;  // which one the driver uses
  uint16_t pci_device = 0;   // as configuration space tells it; 0: not read, gfx11 is assumed
  std::string transport = "unix";
  // Fields of the XGMI registers: more than one card in a hive where both are not 0.
  uint32_t xgmi_max_region = 0, xgmi_segment = 0;

  bool gfx9() const { return pci_device == 0x74a1 || pci_device == 0x75a0; }

  Observation seen;
  Observation::File file;

  void Emit(const trace::Record& record) override {
    seen.Feed(record);
    Feeder::Emit(record);
  }

  static std::vector<uint8_t> Dwords(const std::vector<uint32_t>& words) {
    std::vector<uint8_t> out(words.size() * 4);
    std::memcpy(out.data(), words.data(), out.size());
    return out;
  }
  static uint32_t Lo(uint64_t v) { return static_cast<uint32_t>(v); }
  static uint32_t Hi(uint64_t v) { return static_cast<uint32_t>(v >> 32); }
  void Sleep(double seconds) { now_ns += static_cast<uint64_t>(seconds * 1e9); }

  // ---- the driver's steps ----
  void Open() {
    if (!skip_connect_) Connect(transport);
    if (pci_device) CfgRead(0, 4, static_cast<uint32_t>(pci_device) << 16 | 0x1002);
    Request(wire::Command::kResizeBar, 0, 0);
    Reply(0);
    MapBar(0, 256u << 20);
    MapBar(2, 0x2000, 0x7f2000000000);
    MapBar(5, 0x100000, 0x7f5000000000);
    Read(5, 0x378c, 24 * 1024);
  }
  void Decide(uint32_t reg7 = 0) {
    if (gfx9()) {
      Field("regGCMC_VM_XGMI_LFB_CNTL", "pf_max_region", xgmi_max_region);
      Field("regGCMC_VM_XGMI_LFB_SIZE", "pf_lfb_size", xgmi_segment);
    }
    R("regSCRATCH_REG7", reg7);
  }
  // A read of a register with nothing but that field.
  void Field(std::string_view reg, std::string_view field, uint32_t value) {
    const auto* def = device.registers().map().FindDef(reg);
    R(reg, static_cast<uint32_t>(amd::SetField(*def, field, value)));
  }
  void BootTo() {
    Open();
    Decide();
    const bool gfx12 = device.gc().major >= 12;
    R(gfx12 ? "regMPASP_SMN_C2PMSG_81" : "regMP0_SMN_C2PMSG_81", 0);
  }
  void Boot() {
    BootTo();
    W("regSCRATCH_REG7", 0xa0000008);
    W("regSCRATCH_REG6", 1);
  }
  void Queues() {
    Region(0, 16u << 20, {{kComputeRing, 16u << 20}});
    Region(1, 0x4000, {{kComputePage, 0x4000}});
    W("regGRBM_GFX_CNTL", 1u << 2);
    W("regCP_HQD_PQ_BASE", Lo(kComputeRing >> 8));
    W("regCP_HQD_PQ_BASE_HI", Hi(kComputeRing >> 8));
    W("regCP_HQD_PQ_RPTR", 0);
    W("regCP_HQD_PQ_RPTR_REPORT_ADDR", Lo(kComputePage + 0x80));
    W("regCP_HQD_PQ_RPTR_REPORT_ADDR_HI", Hi(kComputePage));
    W("regCP_HQD_PQ_WPTR_POLL_ADDR", Lo(kComputePage + 0x38));
    W("regCP_HQD_PQ_WPTR_POLL_ADDR_HI", Hi(kComputePage));
    W("regCP_HQD_PQ_DOORBELL_CONTROL", 0x40000018);
    W("regCP_HQD_PQ_CONTROL", 0x515);
    W("regCP_HQD_PQ_WPTR_LO", 0);
    W("regCP_HQD_PQ_WPTR_HI", 0);
    W("regCP_HQD_ACTIVE", 1);
    W("regGRBM_GFX_CNTL", 0);
    Region(2, 16u << 20, {{kSdmaRing, 16u << 20}});
    Region(3, 0x4000, {{kSdmaPage, 0x4000}});
    for (const auto& [name, value] : std::vector<std::pair<std::string, uint32_t>>{
             {"RB_RPTR", 0},
             {"RB_RPTR_HI", 0},
             {"RB_WPTR", 0},
             {"RB_WPTR_HI", 0},
             {"RB_BASE", Lo(kSdmaRing >> 8)},
             {"RB_BASE_HI", Hi(kSdmaRing >> 8)},
             {"RB_RPTR_ADDR_LO", Lo(kSdmaPage + 0x80)},
             {"RB_RPTR_ADDR_HI", Hi(kSdmaPage)},
             {"RB_WPTR_POLL_ADDR_LO", Lo(kSdmaPage + 0x38)},
             {"RB_WPTR_POLL_ADDR_HI", Hi(kSdmaPage)},
             {"DOORBELL_OFFSET", SdmaDoorbellIndex() << 2},
             {"DOORBELL", 1u << 28},
             {"RB_CNTL", 1u | 22u << 1}})
      WSdma(name, value);
    Region(4, 0x4000, {{kSignals, 0x4000}});
    Region(5, 2u << 20, {{kStaging, 2u << 20}});
    Timeline(0);
  }

  // Boot, queues and copies 1..n that went well.
  void Copies(uint32_t n = 1) {
    Boot();
    Queues();
    for (uint32_t i = 1; i <= n; i++) {
      SdmaSubmit(i, i - 1);
      Timeline(i);
      SdmaRead(sdma_wptr_);
    }
    Drain();
  }
  // The same with one copy and a kernel after it: two submissions.
  void Work() {
    Copies();
    ComputeSubmit(2, 1);
    Timeline(2);
    ComputeRead(compute_wptr_);
    Drain();
  }

  // POLL timeline >= wait; COPY `bytes` staging -> VRAM; FENCE timeline = n.
  void SdmaSubmit(uint32_t n, uint32_t wait, bool ring_doorbell = true, uint32_t bytes = 0x1000) {
    Put(2, 3, sdma_wptr_, 1,
        Dwords({0xd0000008, Lo(kTimeline), Hi(kTimeline), wait, 0xffffffff, 0x0fff0004, 1,
                bytes - 1, 0, Lo(kStaging), Hi(kStaging), Lo(kVram), Hi(kVram), 0x00030005,
                Lo(kTimeline), Hi(kTimeline), n}));
    if (ring_doorbell) Write(2, SdmaDoorbellIndex() * 8, sdma_wptr_, 8);
  }
  void WSdma(const std::string& name, uint32_t value) {
    W(SdmaRegister(name), value, gfx9() ? static_cast<uint8_t>(sdma_engine) : 0);
  }
  std::string SdmaRegister(const std::string& name) const {
    if (gfx9()) return "regSDMA_GFX_" + name;
    return "regSDMA" + std::to_string(sdma_engine) + "_QUEUE0_" + name;
  }
  // 512 bytes doorbell pages apart, ten indices an engine (sdma-packets, doorbells).
  uint32_t SdmaDoorbellIndex() const { return 256 + 10 * sdma_engine; }
  // WAIT timeline >= wait; DISPATCH; RELEASE timeline = n.
  void ComputeSubmit(uint32_t n, uint32_t wait, bool ring_doorbell = true) {
    Put(0, 1, compute_wptr_, 4,
        Dwords({0xc0053c00,
                0x15,
                Lo(kTimeline),
                Hi(kTimeline),
                wait,
                0xffffffff,
                4,
                0xc0031500,
                1,
                1,
                1,
                0x8005,
                0xc0064900,
                0x0070f514,
                0x20000000,
                Lo(kTimeline),
                Hi(kTimeline),
                n,
                0,
                0}));
    if (ring_doorbell) Write(2, 0x18, compute_wptr_, 8);
  }
  // What the card did, as a snapshot shows it.
  void Timeline(uint64_t value) { Snapshot(4, 0x3ff0, Bytes(value, 8)); }
  void SdmaRead(uint64_t bytes) { Snapshot(3, 0x80, Bytes(bytes, 8)); }
  void ComputeRead(uint64_t dwords) { Snapshot(1, 0x80, Bytes(dwords, 8)); }
  uint64_t sdma_wptr() const { return sdma_wptr_; }
  uint64_t compute_wptr() const { return compute_wptr_; }

  // The client's rounds while it waits: at the beginning and at the end of that time.
  void Wait(double seconds, uint32_t doorbell_int = 0) {
    Sleep(0.2);
    Round(doorbell_int);
    Sleep(seconds - 0.2);
    Round(doorbell_int);
  }
  void Round(uint32_t doorbell_int = 0) {
    R("regIH_RB_WPTR", 0);
    R("regIH_RB_RPTR", 0);
    R("regIH_RB_WPTR", 0);
    W("regIH_RB_RPTR", 0);
    R("regBIF_BX0_BIF_DOORBELL_INT_CNTL", doorbell_int);
  }
  // One entry of the interrupt ring, as the handler reads it.
  void Interrupt(uint8_t client, uint8_t source, std::vector<uint32_t> context = {0, 0, 0, 0}) {
    R("regIH_RB_WPTR", (ih_ + 8) << 2);
    R("regIH_RB_RPTR", ih_);
    const std::vector<uint32_t> entry = {client | static_cast<uint32_t>(source) << 8,
                                         0,
                                         0,
                                         0,
                                         context[0],
                                         context[1],
                                         context[2],
                                         context[3]};
    for (uint32_t i = 0; i < 8; i++) Read(0, 0x3000 + (ih_ + i) * 4, entry[i]);
    ih_ += 8;
  }
  void HandlerEnd(uint32_t doorbell_int = 0) {
    R("regIH_RB_WPTR", ih_ << 2);
    W("regIH_RB_RPTR", ih_);
    R("regBIF_BX0_BIF_DOORBELL_INT_CNTL", doorbell_int);
  }
  void Drain() {
    R("regIH_RB_WPTR", ih_ << 2);
    W("regIH_RB_RPTR", ih_);
  }
  void Recover() {
    const char* const mec = gfx9() ? "regCP_MEC_CNTL" : "regCP_MEC_RS64_CNTL";
    W(mec, 0x10000);
    W(mec, 0);
    W("regGRBM_GFX_CNTL", 1u << 2);
    W("regCP_HQD_PQ_RPTR", 0);
    W("regCP_HQD_PQ_WPTR_LO", 0);
    W("regCP_HQD_PQ_WPTR_HI", 0);
    W("regCP_HQD_ACTIVE", 1);
    W("regGRBM_GFX_CNTL", 0);
  }
  // Recovery sets the compute queue's pointers to 0.
  void ForgetCompute() {
    compute_wptr_ = 0;
    ComputeRead(0);
  }
  void Finish(uint32_t reg6 = 0) {
    WSdma("RB_CNTL", 22u << 1);
    if (!gfx9()) {  // SDMA >= 6 only
      W("regGRBM_SOFT_RESET", 0x800000);
      W("regGRBM_SOFT_RESET", 0);
    }
    W("regSCRATCH_REG6", reg6);
  }
  // A new process: another connection, regions and rings of its own.
  void Again(uint32_t connection) {
    tinygpu::trace::Packet packet;
    packet.mutable_event()->set_kind(tinygpu::trace::SessionEvent::CONNECT);
    packet.mutable_event()->set_connection(connection);
    packet.mutable_event()->set_transport(transport);
    Packet(packet);
    sdma_wptr_ = compute_wptr_ = 0;
    skip_connect_ = true;
  }
  void Left(std::string_view by = "client") {
    tinygpu::trace::Packet packet;
    packet.mutable_event()->set_kind(tinygpu::trace::SessionEvent::DISCONNECT);
    packet.mutable_event()->set_closed_first(std::string(by));
    Packet(packet);
  }
  void Mode1Reset() {
    W("mmMP1_SMN_C2PMSG_54", 0);
    W("mmMP1_SMN_C2PMSG_53", 0);
    W("mmMP1_SMN_C2PMSG_75", 2);
    R("mmMP1_SMN_C2PMSG_54", 1);
  }
  // Reads that go on for that long without the condition being met.
  void Poll(std::string_view name, uint32_t value, double seconds, int reads = 20) {
    for (int i = 0; i < reads; i++) {
      R(name, value);
      Sleep(seconds / reads);
    }
    R(name, value);
  }
  void Closed(std::string_view by = "client") {
    tinygpu::trace::Packet packet;
    packet.mutable_event()->set_kind(tinygpu::trace::SessionEvent::DISCONNECT);
    packet.mutable_event()->set_connection(1);
    packet.mutable_event()->set_closed_first(std::string(by));
    Packet(packet);
    tinygpu::trace::Packet end;
    end.mutable_end()->set_reason("client closed");
    Packet(end);
  }
  Explanation Explain() {
    seen.Finish();
    return seen.ExplainIt(file);
  }

 private:
  void Put(uint32_t ring, uint32_t page, uint64_t& wptr, uint32_t unit,
           std::vector<uint8_t> bytes) {
    const uint64_t at = wptr * unit;
    wptr += bytes.size() / unit;
    Snapshot(ring, at, std::move(bytes));
    Snapshot(page, 0x38, Bytes(wptr, 8));
  }

  uint64_t sdma_wptr_ = 0, compute_wptr_ = 0;
  uint32_t ih_ = 0;
  bool skip_connect_ = false;
};

}  // namespace tg::explain
