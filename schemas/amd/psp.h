// The security processor (PSP): its bootloader mailbox, its command ring, its commands.
//
// Registers (C2PMSG_n, prefix regMP0_SMN_ before MP0 14, regMPASP_SMN_ from 14): 35 bootloader
// command and status (bit 31 ready), 36 upload address >> 20, 64 ring control, 67 write pointer in
// dwords, 69/70 ring address, 71 ring size, 81 sOS sign of life.
//
// A command: its cmd_resp (0x400 bytes) and a ring frame (0x40 bytes) are written to VRAM, the
// write pointer is moved, the PSP writes the frame's fence value to the fence address and the
// response into the cmd_resp at +0x360.
//
// Facts: kernel psp_gfx_if.h and amdgpu_psp.h; order of use: tinygrad runtime/support/am/ip.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tg::amd {

inline constexpr size_t kPspFrameSize = 0x40;
inline constexpr size_t kPspCommandSize = 0x400;
inline constexpr size_t kPspResponseOffset = 0x360;
inline constexpr uint32_t kPspBootloaderReady = 0x80000000;
inline constexpr uint32_t kPspLoadSosDrv = 0x20000;    // bootloader: start the sOS
inline constexpr uint32_t kPspRingDestroy = 0x30000;   // C2PMSG_64
inline constexpr uint32_t kPspRingCreateKm = 0x20000;  // C2PMSG_64: ring type 2 << 16

enum PspCommandId : uint32_t {
  kPspSetupTmr = 5,
  kPspLoadIpFw = 6,
  kPspLoadToc = 0x20,
  kPspAutoloadRlc = 0x21,
  kPspSpatialPart = 39,
};

std::string PspCommandName(uint32_t id);          // "LOAD_IP_FW", "command 77"
std::string PspFwTypeName(uint32_t type);         // "RS64_MEC", "type 200"
std::string PspControlName(uint32_t value);       // C2PMSG_64: "DESTROY_RINGS"
std::string PspBootloaderName(uint32_t command);  // C2PMSG_35: "LOAD_SOSDRV"

struct PspFrame {
  uint64_t command_address = 0;  // MC addresses
  uint32_t command_size = 0;
  uint64_t fence_address = 0;
  uint32_t fence_value = 0;
};
// Nothing when there are fewer than kPspFrameSize bytes.
std::optional<PspFrame> DecodePspFrame(std::span<const uint8_t> bytes);

struct PspCommand {
  uint32_t id = 0;
  uint64_t address = 0;  // of the image, TOC or TMR
  uint32_t size = 0;
  uint32_t fw_type = 0;         // LOAD_IP_FW
  uint64_t system_address = 0;  // SETUP_TMR
  uint32_t mode = 0;            // SRIOV_SPATIAL_PART
  // Of the response, when the bytes reach so far (all zero before the PSP has answered).
  std::optional<uint32_t> status;
  std::optional<uint32_t> tmr_size;
};
// Nothing when the bytes do not reach to the end of the command's own part.
std::optional<PspCommand> DecodePspCommand(std::span<const uint8_t> bytes);
std::string DescribePspCommand(const PspCommand& command);  // "LOAD_IP_FW RS64_MEC"

}  // namespace tg::amd
