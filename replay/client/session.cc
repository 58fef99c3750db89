#include "replay/client/session.h"

#include <algorithm>
#include <array>
#include <vector>

#include "replay/client/boot.h"
#include "replay/client/card.h"
#include "replay/client/vm.h"
#include "schemas/amd/doorbell.h"
#include "schemas/amd/mqd.h"
#include "schemas/wire/bytes.h"

namespace tg::client {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kRingSize = 16 << 20;
constexpr uint64_t kQueuePage = 0x1000;
constexpr uint64_t kEopSize = 0x1000;
constexpr uint64_t kStagingSize = 2 << 20;
constexpr size_t kStagingCount = 32;
constexpr uint64_t kSignalPage = 0x1000;
constexpr uint64_t kTimeline = kSignalPage - 16;  // tinygrad hands signals out from the end
constexpr uint64_t kKernelArguments = 16 << 20;
constexpr uint32_t kDoorbellBar = 2;

// Packets as tinygrad writes them (ops_amd.py).
constexpr uint32_t kPollMemory = 0xd0000008;   // POLL_REGMEM, memory >=
constexpr uint32_t kPollForEver = 0x0fff0004;  // interval 4, retries without end
constexpr uint32_t kCopyLinear = 0x00000001;
constexpr uint32_t kFence = 0x00030005;
constexpr uint32_t kWaitRegMem = 0xc0053c00;
constexpr uint32_t kAcquireMem = 0xc0065800;
constexpr uint32_t kReleaseMem = 0xc0064900;

constexpr uint32_t Low(uint64_t value) {
  return static_cast<uint32_t>(value);
}
constexpr uint32_t High(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

struct Queue {
  Mapping ring;
  Mapping page;
  uint64_t put = 0;       // units of the write pointer
  uint32_t doorbell = 0;  // byte offset in BAR 2
};

}  // namespace

class Session::Impl {
 public:
  Impl(Port& port, const SessionOptions& options)
      : card_(port), vm_(card_), boot_(card_, vm_), options_(options) {
    boot_.Run(options.force_full_boot);
    SetUpCompute();
    SetUpSdma();
    for (Mapping& buffer : staging_) buffer = vm_.MapHost(kStagingSize);
    signals_ = vm_.MapHost(kSignalPage);
    signals_.host->Store64(kTimeline, 0);
    arguments_ =
        card_.large_bar() ? vm_.MapVram(kKernelArguments, true) : vm_.MapHost(kKernelArguments);
  }

  bool partial() const { return boot_.partial(); }
  std::string arch() const { return amd::GfxArch(card_.version(amd::kHwGc)); }
  Vm& vm() { return vm_; }
  Card& card() { return card_; }
  Queue& sdma() { return sdma_; }
  Queue& compute() { return compute_; }
  uint64_t timeline() { return signals_.host->Load64(kTimeline) & 0xffffffff; }

  void CopyIn(const Buffer& to, std::span<const uint8_t> data) {
    for (uint64_t at = 0; at < data.size(); at += kStagingSize) {
      next_staging_ = (next_staging_ + 1) % kStagingCount;
      WaitFor(staged_[next_staging_]);
      Mapping& buffer = staging_[next_staging_];
      const auto piece = data.subspan(at, std::min<uint64_t>(kStagingSize, data.size() - at));
      buffer.host->Write(0, piece);
      SubmitCopy(to.va + at, buffer.va, piece.size());
      staged_[next_staging_] = submitted_;
    }
  }
  void CopyOut(const Buffer& from, std::span<uint8_t> data) {
    Synchronize();
    for (uint64_t at = 0; at < data.size(); at += kStagingSize) {
      const auto piece = data.subspan(at, std::min<uint64_t>(kStagingSize, data.size() - at));
      SubmitCopy(staging_[0].va, from.va + at, piece.size());
      WaitFor(submitted_);
      staging_[0].host->Read(0, piece);
    }
  }
  void Barrier() {
    const uint64_t signal = signals_.va + kTimeline;
    submitted_++;
    const uint32_t packets[] = {kWaitRegMem,
                                0x45,
                                0xe26,
                                0xe27,
                                0xffffffff,
                                0xffffffff,
                                4,  // HDP flush
                                kAcquireMem,
                                0,
                                0xffffffff,
                                0xffffffff,
                                0,
                                0,
                                0,
                                0xc3f1,
                                kReleaseMem,
                                0x0070f514,
                                0x20000000,
                                Low(signal),
                                High(signal),
                                Low(submitted_),
                                0,
                                0};
    SubmitCompute(packets);
    Synchronize();
  }
  void Synchronize() {
    try {
      WaitFor(submitted_);
    } catch (const Trouble& trouble) {
      Recover();
      Throw(Error::Code::kIo, trouble.error.message + "; device hang detected");
    }
    boot_.DrainInterrupts();
  }
  void Close() {
    std::optional<Trouble> trouble;
    try {
      WaitFor(submitted_);
    } catch (const Trouble& caught) {
      trouble = caught;
    }
    boot_.Finish(error_);
    if (trouble) throw *trouble;
  }

  // A packet never straddles the ring's end: the rest is filled with zero dwords.
  void SubmitSdma(std::span<const uint32_t> packets) {
    const uint64_t bytes = packets.size_bytes();
    uint64_t at = sdma_.put % kRingSize;
    if (at + bytes >= kRingSize) {
      const std::vector<uint8_t> zeros(kRingSize - at);
      sdma_.ring.host->Write(at, zeros);
      sdma_.put += zeros.size();
      at = 0;
    }
    sdma_.ring.host->Write(at, AsBytes(packets));
    sdma_.put += bytes;
    Ring(sdma_);
  }
  void SubmitCompute(std::span<const uint32_t> packets) {
    for (size_t i = 0; i < packets.size(); i++) {
      const uint64_t at = (compute_.put + i) * 4 % kRingSize;
      compute_.ring.host->Write(at, AsBytes(packets.subspan(i, 1)));
    }
    compute_.put += packets.size();
    Ring(compute_);
  }

  std::vector<Mapping> extra;  // buffers and shared memory handed out

 private:
  static std::span<const uint8_t> AsBytes(std::span<const uint32_t> words) {
    return {reinterpret_cast<const uint8_t*>(words.data()), words.size_bytes()};
  }

  RingSetup SetupOf(const Queue& queue) const {
    RingSetup setup;
    setup.ring = queue.ring.va;
    setup.size = kRingSize;
    setup.rptr = queue.page.va + amd::kQueuePageRptr;
    setup.wptr = queue.page.va + amd::kQueuePageWptr;
    setup.eop = eop_.va;
    setup.eop_size = kEopSize;
    return setup;
  }
  void SetUpCompute() {
    compute_.ring = vm_.MapHost(kRingSize);
    compute_.page = vm_.MapHost(kQueuePage);
    eop_ = vm_.MapVram(kEopSize, false);
    compute_.doorbell = amd::kDoorbellMecRing0 * 8;
    ClearPointers(compute_);
    boot_.SetUpCompute(SetupOf(compute_));
  }
  void SetUpSdma() {
    sdma_.ring = vm_.MapHost(kRingSize);
    sdma_.page = vm_.MapHost(kQueuePage);
    sdma_.doorbell = amd::kDoorbellSdma0 * 8;
    ClearPointers(sdma_);
    boot_.SetUpSdma(SetupOf(sdma_));
  }
  static void ClearPointers(Queue& queue) {
    queue.put = 0;
    queue.page.host->Store64(amd::kQueuePageRptr, 0);
    queue.page.host->Store64(amd::kQueuePageWptr, 0);
  }
  void Ring(Queue& queue) {
    queue.page.host->Store64(amd::kQueuePageWptr, queue.put);
    card_.FlushHdp();
    std::array<uint8_t, 8> value;
    StoreLe(value.data(), queue.put);
    card_.port().Write(kDoorbellBar, queue.doorbell, value);
  }

  // Wait for the submission before, copy, signal: 17 dwords.
  void SubmitCopy(uint64_t to, uint64_t from, uint64_t bytes) {
    const uint64_t signal = signals_.va + kTimeline;
    const uint32_t before = Low(submitted_++);
    const uint32_t packets[] = {kPollMemory,  Low(signal),    High(signal),   before, 0xffffffff,
                                kPollForEver, kCopyLinear,    Low(bytes - 1), 0,      Low(from),
                                High(from),   Low(to),        High(to),       kFence, Low(signal),
                                High(signal), Low(submitted_)};
    SubmitSdma(packets);
  }

  void WaitFor(uint64_t number) {
    auto began = Clock::now();
    for (uint64_t last = timeline(); last < number;) {
      const auto waited = Clock::now() - began;
      if (waited > options_.wait_timeout) {
        error_ = true;
        Throw(Error::Code::kIo, "Wait timeout: " + std::to_string(options_.wait_timeout.count()) +
                                    " ms! (the signal is not set to " + std::to_string(number) +
                                    ", but " + std::to_string(last) + ")");
      }
      if (waited > std::chrono::milliseconds(200) && boot_.TakeInterrupts()) {
        error_ = true;
        Throw(Error::Code::kIo, "Device is in error state");
      }
      const uint64_t now = timeline();
      if (now != last) began = Clock::now();
      last = now;
    }
  }
  // The compute engine only, as tinygrad: then everything counts as done.
  void Recover() {
    boot_.TakeInterrupts();
    boot_.ResetMec();
    ClearPointers(compute_);
    boot_.SetUpCompute(SetupOf(compute_));
    signals_.host->Store64(kTimeline, submitted_);
    error_ = false;
  }

  Card card_;
  Vm vm_;
  Boot boot_;
  SessionOptions options_;
  Queue compute_, sdma_;
  Mapping eop_, signals_, arguments_;
  std::array<Mapping, kStagingCount> staging_;
  std::array<uint64_t, kStagingCount> staged_{};
  size_t next_staging_ = 0;
  uint64_t submitted_ = 0;
  bool error_ = false;
};

namespace {

template <typename F>
auto Guard(F&& body) -> Result<decltype(body())> {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return {};
    } else {
      return body();
    }
  } catch (const Trouble& trouble) {
    return tl::unexpected<Error>(trouble.error);
  }
}

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Open(Port& port, const SessionOptions& options) {
  return Guard(
      [&] { return std::unique_ptr<Session>(new Session(std::make_unique<Impl>(port, options))); });
}

bool Session::partial_boot() const {
  return impl_->partial();
}
std::string Session::arch() const {
  return impl_->arch();
}

Result<Buffer> Session::Allocate(uint64_t size) {
  return Guard([&] {
    impl_->extra.push_back(impl_->vm().MapVram(size, false));
    return Buffer{impl_->extra.back().va, size};
  });
}

Result<void> Session::CopyIn(const Buffer& to, std::span<const uint8_t> data) {
  return Guard([&] { impl_->CopyIn(to, data); });
}
Result<void> Session::CopyOut(const Buffer& from, std::span<uint8_t> data) {
  return Guard([&] { impl_->CopyOut(from, data); });
}
Result<void> Session::Barrier() {
  return Guard([&] { impl_->Barrier(); });
}
Result<void> Session::Synchronize() {
  return Guard([&] { impl_->Synchronize(); });
}
Result<void> Session::Close() {
  return Guard([&] { impl_->Close(); });
}
Result<void> Session::SubmitSdma(std::span<const uint32_t> packets) {
  return Guard([&] { impl_->SubmitSdma(packets); });
}
Result<void> Session::SubmitCompute(std::span<const uint32_t> packets) {
  return Guard([&] { impl_->SubmitCompute(packets); });
}
Result<Session::Shared> Session::MapHost(uint64_t size) {
  return Guard([&] {
    impl_->extra.push_back(impl_->vm().MapHost(size));
    return Shared{impl_->extra.back().va, impl_->extra.back().host.get()};
  });
}
Result<void> Session::Unmap(const Buffer& buffer) {
  return Guard([&] {
    for (const Mapping& mapping : impl_->extra)
      if (mapping.va == buffer.va) return impl_->vm().Unmap(mapping);
    Throw(Error::Code::kUsage, "no such buffer");
  });
}
Result<uint32_t> Session::ReadRegister(std::string_view name) {
  return Guard([&] { return impl_->card().Get(name); });
}
Result<void> Session::WriteRegister(std::string_view name, uint32_t value) {
  return Guard([&] { impl_->card().Set(name, value); });
}
uint64_t Session::sdma_rptr() const {
  return impl_->sdma().page.host->Load64(amd::kQueuePageRptr);
}
uint64_t Session::compute_rptr() const {
  return impl_->compute().page.host->Load64(amd::kQueuePageRptr);
}
uint64_t Session::timeline() const {
  return impl_->timeline();
}

}  // namespace tg::client
