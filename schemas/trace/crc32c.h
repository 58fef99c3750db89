// CRC-32C (Castagnoli, polynomial 0x1edc6f41 reflected), as iSCSI, ext4 and LevelDB use it:
// RFC 3720 B.4. Chosen over xxHash for packets because both CPUs this runs on have an instruction
// for it: 24 bytes cost a few nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tg::trace {

// The checksum of bytes already summed (`crc`; 0 for none) followed by `bytes`:
// Crc32c(b, Crc32c(a)) is the checksum of a then b.
uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t crc = 0);

// The table-driven version, whatever the CPU has. For tests.
uint32_t Crc32cTable(std::span<const uint8_t> bytes, uint32_t crc = 0);

}  // namespace tg::trace
