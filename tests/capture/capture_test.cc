// The whole capture: hand-over, thread, real mappings, a real trace file, and what a reader of that
// file knows afterwards.
#include "proxy/capture/capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"
#include "decoder/model/queue_state.h"
#include "proxy/sysmem.h"
#include "schemas/amd/registers.h"
#include "schemas/trace/reader.h"
#include "schemas/trace/trace.pb.h"
#include "schemas/trace/writer.h"
#include "schemas/wire/bytes.h"
#include "tests/rings/hex.h"

namespace tg::proxy {
namespace {

using wire::Command;
using namespace std::chrono_literals;

// A server's region as TinyGPU.app gives it: a file that both sides map.
class SharedFile {
 public:
  SharedFile(const std::string& path, size_t size) : path_(path), size_(size) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(size)), 0);
    base_ =
        static_cast<uint8_t*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
  }
  ~SharedFile() {
    ::munmap(base_, size_);
    ::close(fd_);
  }
  int fd() const { return fd_; }
  void Table(uint64_t address, uint64_t length) {
    const uint64_t table[4] = {address, length, 0, 0};
    std::memcpy(base_, table, sizeof table);
  }
  void Write(uint64_t offset, const std::vector<uint8_t>& bytes) {
    std::memcpy(base_ + offset, bytes.data(), bytes.size());
  }
  void Write64(uint64_t offset, uint64_t value) { std::memcpy(base_ + offset, &value, 8); }
  void Shrink() { EXPECT_EQ(::ftruncate(fd_, 0), 0); }
  void Unlink() { ::unlink(path_.c_str()); }

 private:
  std::string path_;
  size_t size_;
  int fd_;
  uint8_t* base_;
};

class CaptureTest : public ::testing::Test {
 protected:
  CaptureTest() {
    char folder[] = "/tmp/capturetestXXXXXX";
    folder_ = ::mkdtemp(folder);
    tinygpu::trace::Header header;
    auto sink = trace::OpenFileSink(folder_ + "/trace.pb", true);
    trace::WriterOptions options;
    options.segment_size = 1 << 20;
    auto writer = trace::TraceWriter::Create(std::move(*sink), options, header);
    writer_ = std::move(*writer);
    const std::pair<uint32_t, uint64_t> regions[] = {{0, 0x10000}, {1, 0x4000}, {2, 0x4000}};
    for (const auto& [index, size] : regions) {
      files_.push_back(
          std::make_unique<SharedFile>(folder_ + "/region" + std::to_string(index), size));
      files_.back()->Table(kDma + index * 0x1000000ull, size);
    }
  }
  ~CaptureTest() override { std::filesystem::remove_all(folder_); }

  void Start(SysmemPolicy policy = SysmemPolicy::kRings, size_t handover = 1 << 20) {
    CaptureOptions options;
    options.policy = policy;
    options.handover_bytes = handover;
    options.clock_ns = [this] { return Now(); };
    options.say = [this](bool, const std::string& text) {
      const std::lock_guard lock(mutex_);
      said_.push_back(text);
    };
    capture_ = std::make_unique<Capture>(*writer_, options);
    tinygpu::trace::Packet packet;
    packet.mutable_event()->set_kind(tinygpu::trace::SessionEvent::CONNECT);
    packet.mutable_event()->set_connection(1);
    packet.mutable_event()->set_transport("unix");
    writer_->Append(packet, Now());
    capture_->OnConnect(table_, Now());
  }
  uint64_t Now() const {
    return skew_ +
           static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  // What the relay does with a request and with a reply.
  uint64_t Request(Command command, uint32_t bar, uint64_t arg0, uint64_t arg1,
                   std::span<const uint8_t> payload = {}) {
    wire::RequestEvent event;
    event.kind = wire::RequestEvent::Kind::kRequest;
    event.header = {.command = static_cast<uint8_t>(command),
                    .dev = 0,
                    .bar = bar,
                    .arg0 = arg0,
                    .arg1 = arg1,
                    .arg2 = 0};
    event.payload = payload;
    event.payload_size = payload.size();
    trace::RequestRecord record;
    record.header = event.header;
    record.payload = {.size = payload.size(), .data = payload, .xxh3 = std::nullopt};
    const uint64_t call = writer_->Request(record, Now());
    last_ = {.header = event.header, .call = call};
    capture_->OnRequest(event, call, Now());
    return call;
  }
  void Reply(uint64_t resp0, uint64_t resp1, std::span<const uint8_t> body = {}) {
    wire::ReplyEvent event;
    event.kind = wire::ReplyEvent::Kind::kReply;
    event.request = last_;
    event.reply = {.status = 0, .resp0 = resp0, .resp1 = resp1};
    event.body = body;
    event.body_size = body.size();
    trace::ReplyRecord record;
    record.call = last_.call;
    record.reply = event.reply;
    record.body = {.size = body.size(), .data = body, .xxh3 = std::nullopt};
    writer_->Reply(record, Now());
    capture_->OnReply(event, Now());
  }
  void Write(uint32_t bar, uint64_t offset, uint64_t value, size_t size) {
    uint8_t bytes[8];
    StoreLe(bytes, value);
    Request(Command::kMmioWrite, bar, offset, size, std::span<const uint8_t>(bytes, size));
  }
  void Read(uint32_t bar, uint64_t offset, uint32_t value) {
    Request(Command::kMmioRead, bar, offset, 4);
    uint8_t bytes[4];
    StoreLe(bytes, value);
    Reply(4, 0, bytes);
  }
  void Register(const char* name, uint32_t value) { Write(5, *map_.Find(name), value, 4); }
  void MapRegion(uint32_t index, uint64_t size) {
    const uint64_t call = Request(Command::kMapSysmemFd, 0, size, 0);
    Reply(size, index);
    const SysmemRegion region = table_->Add(files_[index]->fd(), index, size, size);
    tinygpu::trace::Packet packet;
    auto& record = *packet.mutable_region();
    record.set_index(index);
    record.set_asked(size);
    record.set_granted(size);
    record.set_mapped(region.mapped);
    for (const auto& [address, length] : region.table) {
      record.add_address(address);
      record.add_length(length);
    }
    writer_->Append(packet, Now());
    capture_->OnRegion(region, call, Now());
  }
  // Without page tables addresses are DMA addresses, see DeviceMemory.
  void SetUpSdma() {
    for (uint32_t i = 0; i < 3; ++i) MapRegion(i, i == 0 ? 0x10000 : 0x4000);
    Register("regSDMA0_QUEUE0_RB_WPTR", 0);
    Register("regSDMA0_QUEUE0_RB_WPTR_HI", 0);
    Register("regSDMA0_QUEUE0_RB_BASE", kDma >> 8);
    Register("regSDMA0_QUEUE0_RB_BASE_HI", 0);
    Register("regSDMA0_QUEUE0_RB_RPTR_ADDR_LO", kDma + 0x1000080);
    Register("regSDMA0_QUEUE0_RB_RPTR_ADDR_HI", 0);
    Register("regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_LO", kDma + 0x1000038);
    Register("regSDMA0_QUEUE0_RB_WPTR_POLL_ADDR_HI", 0);
    Register("regSDMA0_QUEUE0_DOORBELL_OFFSET", 512u << 2);
    Register("regSDMA0_QUEUE0_RB_CNTL", 1u | 14u << 1);
  }
  // Wait for n - 1, signal n: 40 bytes.
  void Submit(uint32_t n) {
    std::vector<uint8_t> packets;
    for (uint32_t v : {0xd0000008u, kDma + 0x2003ff0u, 0u, n - 1, 0xffffffffu, 0x0fff0004u,
                       0x00030005u, kDma + 0x2003ff0u, 0u, n}) {
      for (int i = 0; i < 4; ++i) packets.push_back(static_cast<uint8_t>(v >> (8 * i)));
    }
    files_[0]->Write(put_, packets);
    submitted_.insert(submitted_.end(), packets.begin(), packets.end());
    put_ += packets.size();
    files_[1]->Write64(0x38, put_);
    Write(2, 0x800, put_, 8);
  }
  bool Until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
  std::vector<std::string> Said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  void Close() {
    capture_->OnDisconnect(Now());
    capture_->Stop(20'000);
    ASSERT_TRUE(writer_->Close({}, Now()));
    auto reader = trace::TraceReader::Open(folder_ + "/trace.pb");
    ASSERT_TRUE(reader);
    trace::Record record;
    while ((*reader)->Next(record)) {
      if (record.packet && record.packet->has_loss()) losses_ += record.packet->loss().calls();
      if (record.packet && record.packet->has_sysmem()) {
        ++snapshots_;
        // What the capture thread had come to is told, and is never ahead of the file.
        EXPECT_GT(record.packet->sysmem().after_call(), 0u);
        EXPECT_LE(record.packet->sysmem().after_call(), record.call);
      }
      if (record.packet && record.packet->has_event()) {
        const auto kind = record.packet->event().kind();
        stalls_ += kind == tinygpu::trace::SessionEvent::STALL;
        overs_ += kind == tinygpu::trace::SessionEvent::STALL_OVER;
      }
      device_.Feed(record);
    }
    queues_.Finish();
  }

  static constexpr uint32_t kDma = 0x10000000;
  std::string folder_;
  std::unique_ptr<trace::TraceWriter> writer_;
  std::vector<std::unique_ptr<SharedFile>> files_;
  std::shared_ptr<SysmemTable> table_ = std::make_shared<SysmemTable>();
  std::unique_ptr<Capture> capture_;
  std::mutex mutex_;
  std::vector<std::string> said_;
  wire::PendingReply last_;
  const amd::RegisterMap map_ = amd::RegisterMap::Assumed();
  std::atomic<uint64_t> skew_{0};
  uint64_t put_ = 0;
  std::vector<uint8_t> submitted_;
  // Read back.
  model::Device device_;
  model::DeviceQueues queues_{device_};
  uint64_t losses_ = 0, snapshots_ = 0, stalls_ = 0, overs_ = 0;
};

TEST_F(CaptureTest, EverySubmittedByteIsInTheTraceAndDecodes) {
  Start();
  SetUpSdma();
  constexpr uint32_t kCount = 300;
  for (uint32_t n = 1; n <= kCount; ++n) {
    Submit(n);
    files_[2]->Write64(0x3ff0, n);
    files_[1]->Write64(0x80, put_);
  }
  files_[0]->Unlink();
  Close();
  const auto index = queues_.queues().FindByName("SDMA0");
  ASSERT_TRUE(index);
  const model::Queue& queue = queues_.queues().queues()[*index];
  EXPECT_EQ(queue.submissions_total, kCount);
  for (const model::Submission& s : queue.submissions) {
    EXPECT_EQ(s.content, model::Submission::Content::kObserved);
    EXPECT_EQ(s.packets, 2u);
    EXPECT_EQ(s.not_packets, 0u);
    EXPECT_TRUE(s.retired_call);
  }
  std::vector<uint8_t> ring;
  ASSERT_TRUE(queues_.queues().ReadRing(queue, 0, put_, ring));
  EXPECT_EQ(ring, submitted_);
  EXPECT_EQ(StateOf(queues_.queues(), *index).kind, model::QueueState::Kind::kIdle);
  EXPECT_EQ(losses_, 0u);
  EXPECT_EQ(capture_->counters().doorbells, kCount);
}

TEST_F(CaptureTest, PolicyNoneStoresNothing) {
  Start(SysmemPolicy::kNone);
  SetUpSdma();
  Submit(1);
  Close();
  EXPECT_EQ(snapshots_, 0u);
  EXPECT_FALSE(StateOf(queues_.queues(), 0).ring_observed);
}

TEST_F(CaptureTest, RegionThatVanishesWhileMapped) {
  Start();
  SetUpSdma();
  Submit(1);
  ASSERT_TRUE(Until([&] { return capture_->counters().doorbells == 1; }));
  files_[0]->Shrink();
  files_[1]->Shrink();
  put_ = 80;
  Write(2, 0x800, put_, 8);
  Close();
  const model::Queue& queue = queues_.queues().queues()[0];
  EXPECT_EQ(queue.submissions[0].content, model::Submission::Content::kObserved);
  EXPECT_EQ(queue.submissions[1].content, model::Submission::Content::kNotObserved);
}

// The client polls the interrupt ring: hang.md, signature of waiting. The clock jumps ahead, so
// that nobody has to wait.
TEST_F(CaptureTest, StallIsSaidLiveAndWhenItIsOver) {
  Start();
  SetUpSdma();
  files_[1]->Write64(0x80, 0);
  Submit(1);
  const uint64_t wptr = *map_.Find("regIH_RB_WPTR"), rptr = *map_.Find("regIH_RB_RPTR");
  skew_ += 200'000'000;
  const auto round = [&] {
    Read(5, wptr, 0);
    Read(5, rptr, 0);
    Read(5, wptr, 0);
    Write(5, rptr, 0, 4);
  };
  for (int i = 0; i < 20; ++i) {
    skew_ += 30'000'000;
    round();
  }
  ASSERT_TRUE(Until([&] { return Said().size() >= 2; }));
  EXPECT_THAT(Said()[0], ::testing::HasSubstr("GPU stall: the client polls the interrupt ring"));
  EXPECT_THAT(Said()[0], ::testing::HasSubstr("last doorbell SDMA0 0x28"));
  EXPECT_THAT(Said()[1],
              ::testing::StartsWith("SDMA0 rptr 0x0 wptr 0x28, 40 bytes / 2 packets left; waiting: "
                                    "POLL_REGMEM [0x12003ff0] >= 0, memory holds 0 (satisfied)"));
  EXPECT_THAT(Said()[1], ::testing::HasSubstr("fence missing: [0x12003ff0] = 1"));
  files_[2]->Write64(0x3ff0, 1);
  files_[1]->Write64(0x80, 0x28);
  Read(5, wptr, 0);
  Write(5, rptr, 0, 4);  // the drain of a synchronize that ended well
  ASSERT_TRUE(Until([&] { return Said().size() >= 3; }));
  EXPECT_THAT(Said()[2], ::testing::HasSubstr("GPU stall over after"));
  EXPECT_THAT(Said()[2], ::testing::EndsWith("; SDMA0 rptr 0x28 wptr 0x28, idle"));
  Close();
  EXPECT_EQ(stalls_, 1u);
  EXPECT_EQ(overs_, 1u);
}

TEST_F(CaptureTest, LagBecomesALoss) {
  Start(SysmemPolicy::kRings, 1 << 16);
  SetUpSdma();
  // Far more than the hand-over holds, faster than it can be worked off.
  const std::vector<uint8_t> data(4096, 1);
  uint64_t sent = 0;
  while (capture_->counters().dropped_calls == 0 && sent < 200'000) {
    for (int i = 0; i < 200; ++i, ++sent) Request(Command::kMmioWrite, 0, 0x100000, 4096, data);
  }
  EXPECT_GT(capture_->counters().dropped_calls, 0u);
  // It goes on afterwards.
  ASSERT_TRUE(Until([&] {
    Submit(1);
    put_ = 0;
    return capture_->counters().doorbells > 0;
  }));
  Close();
  EXPECT_GT(losses_, 0u);
}

TEST(SysmemPolicyTest, Names) {
  EXPECT_EQ(*ParseSysmemPolicy("none"), SysmemPolicy::kNone);
  EXPECT_EQ(*ParseSysmemPolicy("rings"), SysmemPolicy::kRings);
  EXPECT_EQ(*ParseSysmemPolicy("full"), SysmemPolicy::kFull);
  EXPECT_FALSE(ParseSysmemPolicy("all"));
}

}  // namespace
}  // namespace tg::proxy
