// Internal to the session model: its working state and its parts, shared by session*.cc.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/session.h"

namespace tg::model {

// Smaller numbers are no addresses (rule B06).
inline constexpr uint64_t kLeastAddress = 0x10000;

class SessionModel::Impl {
 public:
  // One call, or `count` equal ones from `seq` to `last_seq` out of a Repeat packet.
  struct Run {
    uint64_t seq = 0;
    uint64_t last_seq = 0;
    uint64_t time_ns = 0;
    uint64_t count = 1;
    uint64_t last_time_ns = 0;
    bool folded = false;  // from a Repeat: it knows itself what was answered
  };
  struct Pending {
    wire::RequestHeader header;
    uint64_t seq = 0;
    uint64_t time_ns = 0;
    bool answered = false;
  };
  // A payload or body whose rest comes in chunks.
  struct OpenBody {
    wire::RequestHeader header;
    uint64_t seq = 0;
    uint64_t announced = 0;
    uint64_t got = 0;
    bool of_reply = false;
    bool error = false;  // it is the text of an error reply
  };
  // The low half of a BAR address that a 4-byte write held, waiting for its high half.
  struct HalfAddress {
    uint32_t bar = 0;
    int shift = 0;
    uint64_t address = 0;
    uint64_t seq = 0;
    uint64_t map_seq = 0;
    wire::RequestHeader header;
    int writes_left = 0;
  };
  // What tells revisions and servers apart.
  struct Facts {
    wire::Revision declared_revision = wire::Revision::kUndecided;
    std::string declared_evidence;
    wire::Revision map_bar_revision = wire::Revision::kUndecided;
    std::string map_bar_evidence;
    uint64_t r2_only_seq = 0;  // first command that R1 did not have
    uint8_t r2_only_command = 0;
    std::optional<uint8_t> resize_status;
    bool resize_had_text = false;
    uint64_t resize_seq = 0;
    std::optional<wire::ReplyHeader> ping;
    uint64_t ping_seq = 0;
    uint64_t sysmem_fd_seq = 0;
    uint64_t sysmem_tcp_seq = 0;
    uint64_t reset_args_seq = 0;
    uint64_t probe_ok_seq = 0;
  };

  Impl();
  void Add(const trace::Record& record);
  void Finish();
  std::vector<Warning> Warnings() const;

  Session s;

 private:
  // session.cc: requests, replies, pairing, bodies
  void OnRequest(const trace::RequestView& request, const Run& run);
  void OnReply(const wire::RequestHeader& header, const trace::ReplyView& reply, const Run& run,
               uint64_t max_latency_ns);
  void OnRepeat(const trace::Record& record);
  void OnWrite(const trace::RequestView& request, const Run& run);
  void OnError(const wire::RequestHeader& header, const trace::ReplyView& reply, const Run& run);
  void OnMapBar(const wire::RequestHeader& header, const wire::ReplyHeader& reply, uint64_t seq);
  void OnRegion(const wire::RequestHeader& header, const trace::ReplyView& reply, const Run& run);
  void OnProbe(const wire::ReplyHeader& reply, uint64_t seq);
  void AddPending(const wire::RequestHeader& header, uint64_t seq, uint64_t time_ns);
  std::optional<wire::RequestHeader> TakePending(uint64_t seq);
  void OnAutopsy(const trace::Record& reply);
  void GiveUpPending();
  void OpenPayload(const wire::RequestHeader& header, uint64_t seq, const trace::BodyView& body,
                   bool of_reply);
  void ShortBody(const wire::RequestHeader& header, uint64_t seq, uint64_t announced, uint64_t got);
  BarSeen* FindBar(uint32_t dev, uint32_t index);
  const RegionSeen* FindRegion(uint32_t index) const;
  wire::Revision frame_revision() const;
  Connection& current() { return s.connections.back(); }
  void Warn(std::string_view rule, uint64_t seq, std::string text);

  // session_events.cc: everything that is no call
  void OnPacket(const trace::Record& record);
  void OnEvent(const trace::Record& record);
  void OnChunk(const trace::Record& record);
  void OnRaw(const trace::Record& record);
  void OnHeader(const trace::Record& record);
  void OnEnd(const trace::Record& record);
  void Connect(const trace::Record& record);
  void CloseConnection(const std::string& closed_first, uint64_t time_ns);

  // session_rules.cc: warnings
  void CheckRange(const wire::RequestHeader& header, uint64_t seq);
  void CheckBarAddress(const trace::RequestView& request, uint64_t seq);
  void ProbeNotDrained(const wire::RequestHeader& header, uint64_t seq);
  void UpdateFindings();
  void StateWarnings(std::vector<Warning>& out) const;

  Facts facts;
  std::map<uint64_t, bool> resized;  // (device, BAR) that a RESIZE_BAR was granted for
  wire::RequestHeader last_request;
  wire::RequestHeader autopsy_request;  // the proxy's own, and its call
  uint64_t autopsy_seq = 0;
  bool any_request = false;
  bool last_was_error = false;  // the server's newest reply was one
  std::deque<Pending> pending;  // by sequence number
  uint64_t pending_forgotten = 0;
  std::vector<OpenBody> open_bodies;
  RecentWrites recent;
  // No MAP_BAR address, shifted or not, lies outside.
  uint64_t lowest_bar_word = UINT64_MAX;
  uint64_t highest_bar_word = 0;
  bool raw_told = false;  // that this connection's streams lost their framing
  std::vector<HalfAddress> halves;
  std::vector<Warning> warnings;
  std::vector<Warning> poison;  // the proxy's own findings, told where we have none
  std::map<std::string, uint64_t, std::less<>> warned;
  bool finished = false;
};

}  // namespace tg::model
