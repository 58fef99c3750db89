// Live warnings: what a person should hear at once, from a look at each message. Says each thing
// once or a few times, never in a flood. No effect on the traffic.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "proxy/log.h"
#include "schemas/wire/framer.h"

namespace tg::proxy {

class Alerts {
 public:
  // `poison` gets what is worth an event in the trace besides the log line.
  Alerts(LogFn log, std::function<void(std::string_view)> poison);

  void Request(const wire::RequestHeader& header) {
    last_ = header;
    any_ = true;
    if (header.arg1 > wire::kAppBulkLimit || header.bar >= 256) Suspicious(header);
  }
  // kReply and kBodyChunk events.
  void Reply(const wire::ReplyEvent& event, uint32_t descriptors);
  void UnknownCommand(uint8_t command);
  // `bytes` came from the server while no request was waiting.
  void Unsolicited(size_t bytes);
  // 26 bytes wait since a second, which read as an R1 request: `proven` if the framer decided so.
  void LooksLikeR1(bool proven);
  // Nothing came for a while in the middle of a body.
  void ShortReply(const wire::RequestHeader& request, uint64_t missing);
  // The server ended the connection. Text for the trace's disconnect event.
  std::string ServerClosed() const;

  uint64_t errors() const { return errors_; }
  uint64_t regions() const { return regions_; }

 private:
  void Suspicious(const wire::RequestHeader& header);
  void Refused(const wire::RequestHeader& request, const std::string& text);
  void Mapped(const wire::ReplyEvent& event, uint32_t descriptors);
  void Say(LogLevel level, const std::string& text) { log_(level, text); }

  LogFn log_;
  std::function<void(std::string_view)> poison_;
  wire::RequestHeader last_;
  bool any_ = false;
  bool last_reply_was_error_ = false;
  uint64_t errors_ = 0;
  uint64_t regions_ = 0, granted_ = 0, asked_ = 0;
  std::string error_text_;
  std::map<std::string, int> said_;            // refusals by command
  std::map<uint32_t, uint64_t> handle_sizes_;  // of MAP_SYSMEM, by handle
  int poisoned_ = 0;
};

// "MMIO_WRITE bar2+0x800", "MAP_BAR 1", "RESET", "SYSMEM_READ region 7+0xff0": how a request is
// named in text.
std::string DescribeRequest(const wire::RequestHeader& header);

}  // namespace tg::proxy
