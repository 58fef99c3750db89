// Queue things in words; shared by the report and the proxy's live log.
#pragma once

#include <string>

#include "decoder/model/queue_state.h"
#include "schemas/amd/packet.h"

namespace tg::model {

// "POLL_REGMEM [0x80001000] >= 397", "COPY_LINEAR 4096 bytes 0x110000000 -> 0x120000000",
// "op 0x2a, 3 dwords".
std::string PacketText(const amd::DecodedPacket& packet);
// "[0x80001000] >= 397", with "& 0xff" behind the bracket where the mask is not all ones.
std::string WaitText(const amd::WaitSpec& wait);
// The one line of a state; see QueueState::headline.
std::string Headline(const QueueState& state);
// 0x24c4 in the queue's own unit.
std::string PointerText(const Queue& queue, uint64_t position);

}  // namespace tg::model
