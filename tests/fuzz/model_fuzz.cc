// Any calls in any order with any values: the device model stays within its bounds, and what it
// says of itself hangs together.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "decoder/model/device.h"
#include "schemas/amd/discovery.h"
#include "schemas/trace/reader.h"
#include "schemas/trace/trace.pb.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace tg;
using namespace tg::model;

// Registers that steer the model.
constexpr const char* kRegisters[] = {
    "mmMM_INDEX",
    "mmMM_INDEX_HI",
    "mmMM_DATA",
    "mmRCC_CONFIG_MEMSIZE",
    "regBIF_BX_PF0_RSMU_INDEX",
    "regBIF_BX_PF0_RSMU_DATA",
    "regBIF_BX0_PCIE_INDEX2",
    "regBIF_BX0_PCIE_INDEX2_HI",
    "regBIF_BX0_PCIE_DATA2",
    "regBIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL",
    "regSCRATCH_REG6",
    "regSCRATCH_REG7",
    "regGCVM_L2_PROTECTION_FAULT_STATUS",
    "regGCVM_L2_PROTECTION_FAULT_ADDR_LO32",
    "regGCVM_L2_PROTECTION_FAULT_CNTL",
    "regMMMC_VM_FB_LOCATION_BASE",
    "regMMMC_VM_XGMI_LFB_CNTL",
    "regMMMC_VM_XGMI_LFB_SIZE",
    "regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32",
    "regGCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32",
    "regGCVM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32",
    "regGCVM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32",
    "regIH_RB_BASE",
    "regIH_RB_BASE_HI",
    "regIH_RB_CNTL",
    "regIH_RB_WPTR",
    "regIH_RB_RPTR",
    "regMP0_SMN_C2PMSG_35",
    "regMP0_SMN_C2PMSG_64",
    "regMP0_SMN_C2PMSG_67",
    "regMP0_SMN_C2PMSG_69",
    "regMP0_SMN_C2PMSG_70",
    "regMP0_SMN_C2PMSG_81",
    "mmMP1_SMN_C2PMSG_66",
    "mmMP1_SMN_C2PMSG_82",
    "mmMP1_SMN_C2PMSG_90",
    "mmMP1_SMN_C2PMSG_75",
    "regCP_STAT",
    "regCP_MEC_RS64_CNTL",
    "regSDMA0_QUEUE0_RB_CNTL",
    "regRLC_SAFE_MODE",
    "regMMMC_VM_AGP_BASE",
};

class Program {
 public:
  Program(const uint8_t* data, size_t size) : input_(data, size) {
    DeviceOptions options;
    options.max_shadow_bytes = 4 << 20;
    device_ = std::make_unique<Device>(options);
  }

  void Run() {
    for (int i = 0; i < 4000 && !input_.empty(); ++i) Step();
    Check();
  }

 private:
  static std::vector<uint8_t> Little(uint64_t value, size_t size) {
    std::vector<uint8_t> bytes(size);
    std::memcpy(bytes.data(), &value, std::min<size_t>(size, 8));
    return bytes;
  }

  uint64_t Address() {
    // Near where things are, or anywhere.
    switch (input_.Take<uint8_t>() % 4) {
      case 0:
        return input_.Take<uint16_t>() * 8ull;
      case 1:
        return 0x2000000 + input_.Take<uint16_t>() * 8ull;
      case 2:
        return input_.Take<uint32_t>();
      default:
        return input_.Take<uint64_t>();
    }
  }

  void Feed(trace::Record& record) {
    record.call = input_.Take<uint8_t>() == 0 ? input_.Take<uint64_t>() : call_;
    record.time_ns = call_ * 1000;
    device_->Feed(record);
  }

  void Request(uint8_t command, uint32_t bar, uint64_t arg0, uint64_t arg1, uint64_t arg2,
               std::span<const uint8_t> payload, uint64_t payload_size, bool zeros) {
    ++call_;
    trace::Record record;
    record.kind = trace::Record::Kind::kRequest;
    record.call = call_;
    record.time_ns = call_ * 1000;
    record.request.header = {command, 0, bar, arg0, arg1, arg2};
    record.request.payload.data = payload;
    record.request.payload.size = payload_size;
    record.request.payload.all_zero = zeros;
    record.request.payload.streamed = (arg2 & 1) != 0;
    device_->Feed(record);
  }

  void Reply(uint8_t status, uint64_t resp0, uint64_t resp1, std::span<const uint8_t> body,
             uint64_t body_size) {
    trace::Record record;
    record.kind = trace::Record::Kind::kReply;
    record.reply.reply = {status, resp0, resp1};
    record.reply.body.data = body;
    record.reply.body.size = body_size;
    Feed(record);
  }

  void Register(bool write, uint32_t value) {
    const char* name = kRegisters[input_.Take<uint8_t>() % std::size(kRegisters)];
    const auto address = device_->registers().map().Find(name);
    if (!address) return;
    const auto bytes = Little(value, 4);
    if (write) {
      Request(7, 5, *address, 4, 0, bytes, 4, false);
    } else {
      Request(6, 5, *address, 4, 0, {}, 0, false);
      Reply(0, 4, 0, bytes, 4);
    }
  }

  void Step() {
    switch (input_.Take<uint8_t>() % 14) {
      case 0:
        Register(true, input_.Take<uint32_t>());
        break;
      case 1:
        Register(false, input_.Take<uint32_t>());
        break;
      case 2: {  // a page-table entry or any small write
        const uint64_t at = Address();
        Request(7, 0, at, 8, 0, Little(Address() | input_.Take<uint8_t>(), 8), 8, false);
        break;
      }
      case 3: {  // fills and writes whose content is not there
        const uint64_t at = Address();
        const uint64_t size = Address();
        const bool zeros = input_.Take<uint8_t>() % 2 == 0;
        Request(7, input_.Take<uint8_t>() % 7, at, size, 0, {}, size, zeros);
        break;
      }
      case 4: {  // block write
        const uint64_t at = Address();
        const auto bytes = input_.Bytes(input_.Take<uint16_t>() % 512);
        Request(7, input_.Take<uint8_t>() % 7, at, bytes.size(), 0, bytes, bytes.size(), false);
        break;
      }
      case 5: {  // block read: a discovery table, or what looks like one
        std::vector<uint8_t> bytes(0x400, 0);
        const auto head = input_.Bytes(input_.Take<uint16_t>() % 0x400);
        std::copy(head.begin(), head.end(), bytes.begin());
        if (input_.Take<uint8_t>() % 2 == 0) {
          const auto signature = Little(amd::kDiscoverySignature, 4);
          std::copy(signature.begin(), signature.end(), bytes.begin());
          const uint16_t table = static_cast<uint16_t>(bytes[0xc] | bytes[0xd] << 8);
          const auto ipds = Little(amd::kIpTableSignature, 4);
          if (table + 4u <= bytes.size()) std::copy(ipds.begin(), ipds.end(), &bytes[table]);
        }
        Request(6, 0, Address(), bytes.size(), 0, {}, 0, false);
        Reply(0, bytes.size(), 0, bytes, bytes.size());
        break;
      }
      case 6:
        Request(input_.Take<uint8_t>() % 2 == 0 ? 3 : 4, 0, input_.Take<uint16_t>() % 5000,
                input_.Take<uint8_t>() % 9, input_.Take<uint32_t>(), {}, 0, false);
        Reply(0, input_.Take<uint32_t>(), 0, {}, 0);
        break;
      case 7:
        Request(1, input_.Take<uint16_t>() % 300, 0, 0, 0, {}, 0, false);
        Reply(input_.Take<uint8_t>() % 2, input_.Take<uint64_t>(), input_.Take<uint64_t>(), {}, 0);
        break;
      case 8: {
        tinygpu::trace::Packet packet;
        auto* region = packet.mutable_region();
        region->set_index(input_.Take<uint8_t>() % 8);
        region->set_granted(Address());
        region->set_mapped(input_.Take<uint8_t>() % 2);
        for (int i = input_.Take<uint8_t>() % 40; i > 0; --i) {
          region->add_address(Address());
          region->add_length(Address());
        }
        Packet(packet);
        break;
      }
      case 9: {
        tinygpu::trace::Packet packet;
        auto* sysmem = packet.mutable_sysmem();
        sysmem->set_index(input_.Take<uint8_t>() % 8);
        sysmem->set_offset(Address());
        if (input_.Take<uint8_t>() % 2 == 0) {
          sysmem->set_zeros(true);
          sysmem->set_size(Address());
        } else {
          const auto bytes = input_.Bytes(64);
          sysmem->set_data(std::string(bytes.begin(), bytes.end()));
        }
        Packet(packet);
        break;
      }
      case 10: {
        tinygpu::trace::Packet packet;
        auto* chunk = packet.mutable_chunk();
        chunk->set_calls_back(input_.Take<uint8_t>());
        chunk->set_of_reply(input_.Take<uint8_t>() % 2 == 0);
        chunk->set_offset(Address());
        const auto bytes = input_.Bytes(32);
        chunk->set_data(std::string(bytes.begin(), bytes.end()));
        chunk->set_last(input_.Take<uint8_t>() % 2 == 0);
        Packet(packet);
        break;
      }
      case 11: {
        tinygpu::trace::Packet packet;
        auto* event = packet.mutable_event();
        event->set_kind(tinygpu::trace::SessionEvent::CONNECT);
        event->set_transport(input_.Take<uint8_t>() % 2 == 0 ? "tcp" : "unix");
        event->set_connection(input_.Take<uint8_t>());
        Packet(packet);
        break;
      }
      case 12: {  // a folded run
        trace::RepeatedCall one;
        one.request.header = {6, 0, 5, input_.Take<uint16_t>() * 4ull, 4, 0};
        const auto value = Little(input_.Take<uint32_t>(), 4);
        trace::ReplyView reply;
        reply.body.data = value;
        reply.body.size = 4;
        if (input_.Take<uint8_t>() % 4 != 0) one.reply = reply;
        trace::Record record;
        record.kind = trace::Record::Kind::kRepeat;
        record.pattern = std::span(&one, 1);
        record.issued = input_.Take<uint64_t>();
        record.answered = input_.Take<uint64_t>();
        Feed(record);
        break;
      }
      default: {  // anything at all
        const auto bytes = input_.Bytes(input_.Take<uint8_t>());
        Request(input_.Take<uint8_t>() % 16, input_.Take<uint32_t>() % 8, Address(), Address(),
                Address(), bytes, Address(), false);
        Reply(input_.Take<uint8_t>() % 2, Address(), Address(), bytes, Address());
        break;
      }
    }
  }

  void Packet(const tinygpu::trace::Packet& packet) {
    trace::Record record;
    record.kind = trace::Record::Kind::kPacket;
    record.packet = &packet;
    Feed(record);
  }

  void Check() {
    const Device& d = *device_;
    const auto list = d.gpuvm().Mappings(500, 20000);
    FUZZ_CHECK(list.mappings.size() <= 500);
    for (size_t i = 0; i < list.mappings.size(); ++i) {
      const Mapping& m = list.mappings[i];
      FUZZ_CHECK(m.size > 0);
      if (i > 0) {
        FUZZ_CHECK(list.mappings[i - 1].va + list.mappings[i - 1].size <= m.va);
      }
      // A walk of its first byte leads to the same place.
      const Walk walk = d.gpuvm().WalkVa(m.va);
      FUZZ_CHECK(walk.end == Walk::End::kMapped);
      FUZZ_CHECK(walk.target.kind == m.target.kind && walk.target.address == m.target.address);
      std::array<uint8_t, 64> out{};
      d.gpuvm().Read(m.va, out);
      d.gpuvm().Describe(m.va);
    }
    FUZZ_CHECK(d.warnings().size() <= 500);
    FUZZ_CHECK(d.vram().data_bytes() <= 4 << 20);
    uint64_t accesses = 0;
    for (const RegisterState& state : d.registers().all()) {
      accesses += state.reads + state.writes;
      FUZZ_CHECK(state.history.All().size() <= 64);
    }
    FUZZ_CHECK(accesses == d.registers().accesses());
    for (const RegisterPair& pair : d.registers().Pairs()) {
      FUZZ_CHECK(pair.low->known && pair.high->known);
    }
    uint64_t unnamed = 0;
    for (const RegisterState* state : d.registers().Unnamed()) {
      unnamed += state->reads + state->writes;
    }
    FUZZ_CHECK(unnamed == d.registers().unnamed_accesses());
    d.boot().NextStart();
    d.vram().Touched();
    if (d.discovery()) d.discovery()->Props();
  }

  fuzz::Input input_;
  std::unique_ptr<Device> device_;
  uint64_t call_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Program(data, size).Run();
  return 0;
}
