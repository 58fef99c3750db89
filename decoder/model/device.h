// The device as a trace shows it. Records in, state out; no I/O and no clock, so the decoder, the
// diff and the live proxy share it.
//
//   Device device;
//   while (reader.Next(record) && record.call <= seq) device.Feed(record);
//   device.registers().Value("SCRATCH_REG7");
//
// State is that of the newest record fed: to ask at a sequence number, feed up to it. (10 million
// records take about a second, so there are no keyframes.) Memory is in proportion to what the
// trace touched: registers, pages, regions; histories are bounded.
//
// Untrusted input: any records in any order, any values. No crash, bounded work per record, a
// Warning with the call's number where something does not add up.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decoder/model/access.h"
#include "decoder/model/bars.h"
#include "decoder/model/boot.h"
#include "decoder/model/faults.h"
#include "decoder/model/gpuvm.h"
#include "decoder/model/ih.h"
#include "decoder/model/mailbox.h"
#include "decoder/model/registers.h"
#include "decoder/model/shadow.h"
#include "decoder/model/sysmem.h"
#include "decoder/model/types.h"
#include "schemas/amd/discovery.h"
#include "schemas/trace/reader.h"

namespace tg::model {

struct DeviceOptions {
  std::optional<uint32_t> dev;  // follow this dev_id; else the first one that is used
  // Content kept of VRAM, and of each region; of all together, with bookkeeping, twice as much.
  uint64_t max_shadow_bytes = 512u << 20;
  // At the bound, memory that nobody reads makes room for newer, so that rings and page tables stay
  // known however much passes; for following live, where the trace has it all. Then the bound is
  // one for all together, with bookkeeping.
  bool forget_oldest = false;
};

// How the discovery table came to be known.
enum class DiscoverySource : uint8_t { kNone, kBulkRead, kWindow };

class Device {
 public:
  explicit Device(DeviceOptions options = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void Feed(const trace::Record& record);
  // Told of every access from now on, in the order of adding. Not owned; must outlive the device.
  void AddObserver(Observer* observer);

  Stamp now() const;  // the newest call
  uint64_t calls() const;
  Vendor vendor() const;
  bool tcp() const;  // transport of the newest connection
  uint32_t connection() const;
  uint32_t dev() const;  // the dev_id that is followed
  uint64_t other_dev_calls() const;

  const Bars& bars() const;
  const Registers& registers() const;
  const Shadow& vram() const;
  // Other BARs than registers and VRAM, where touched; nullptr if not.
  const Shadow* bar_shadow(uint32_t index) const;
  const Sysmem& sysmem() const;
  const Gpuvm& gpuvm() const;
  const Ih& ih() const;
  const Psp& psp() const;
  const Smu& smu() const;
  const Boot& boot() const;
  const Faults& faults() const;

  // What the card said of itself; nullptr: not observed.
  const amd::Discovery* discovery() const;
  DiscoverySource discovery_source() const;
  Stamp discovery_at() const;
  // Version of the graphics core: observed, or assumed (registers().map().assumed()).
  amd::IpVersion gc() const;
  std::optional<uint64_t> vram_size() const;  // from RCC_CONFIG_MEMSIZE
  // BAR0 shows all of VRAM; nothing: not known.
  std::optional<bool> large_bar() const;

  const std::vector<Warning>& warnings() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::model
