// One client's connection relayed to the server: cuts both streams into messages, records each
// before it goes on, passes bytes and descriptors unchanged.
//
//   client  --requests-->  Channel  --whole messages per send-->  server
//           <--replies---  Channel  <---------------------------
//
// Invariants (design: "Laws"): a request is in the trace's mapping before its first byte goes
// upstream; a send call starts with a message; a reply header and its descriptors go in
// one call; payloads up to 1 MiB go only when complete; what was received is delivered before a
// side is closed; memory is bounded, a slow receiver holds the sender back as without a proxy.
//
// Lost framing: an unknown request makes both directions pass through unread, an unsolicited reply
// only the replies; requests stay framed then, but replies are no longer paired.
//
// Everything runs on the loop's thread, except snapshots of shared memory (the loop's workers).
#pragma once

#include <uv.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proxy/alerts.h"
#include "proxy/autopsy.h"
#include "proxy/channel.h"
#include "proxy/log.h"
#include "proxy/socket.h"
#include "proxy/sysmem.h"
#include "proxy/tap.h"
#include "schemas/trace/writer.h"
#include "schemas/wire/framer.h"

namespace tg::proxy {

class Capture;     // proxy/capture/capture.h
struct RuleSet;    // proxy/rules/policy.h
struct Intercept;  // proxy/intercept.h

struct SessionOptions {
  wire::Revision revision = wire::Revision::kUndecided;  // --protocol
  BodyPolicy bodies = BodyPolicy::kHead;
  bool machine_durability = false;  // force to disk before a request with side effects goes on
  uint32_t spin_us = 200;           // poll both sockets that long before sleeping; 0: never
  bool hold_upstream = false;       // keep the server's connection when the client goes
  bool capture_sysmem = true;       // snapshot small regions at the end and on request
  Capture* capture = nullptr;       // does that and more, instead; outlives the session
  std::shared_ptr<const RuleSet> rules = {};   // --read-only, --deny, --inject; null: none
  std::optional<AutopsyOptions> autopsy = {};  // --autopsy
};

// Totals over all connections, for the End packet.
struct Counters {
  std::array<uint64_t, 256> by_command{};
  uint64_t to_server = 0, to_client = 0;  // bytes forwarded
  uint64_t descriptors = 0;
  uint64_t errors = 0;  // replies with status != 0
  uint64_t raw_bytes = 0;
};

class Session {
 public:
  struct Peers {
    UniqueFd client, server;  // non-blocking
    bool client_is_unix = true, server_is_unix = true;
    uint32_t number = 1;  // counts connections from 1
    pid_t client_pid = 0, server_pid = 0;
  };

  // `over` is called once, from the loop, when both sockets are closed and nothing is pending; the
  // session may be deleted in it.
  Session(uv_loop_t* loop, const SessionOptions& options, Peers peers, trace::TraceWriter& writer,
          Counters& counters, LogFn log, std::function<void()> over);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void Start();
  // Stores what changed in the shared memory since the last time; returns at once.
  void Snapshot();
  // Ends it from our side: passes on what can be passed on at once, then closes.
  void Close(std::string reason);

  // The client is gone, the server's connection is kept (hold_upstream).
  bool held() const { return held_; }
  pid_t client_pid() const { return peers_.client_pid; }
  uint32_t number() const { return peers_.number; }
  const SysmemTable& sysmem() const { return *sysmem_; }

 private:
  struct Handles;
  enum class Side : uint8_t { kClient, kServer };

  static void OnPoll(uv_poll_t* handle, int status, int events);
  static void OnTick(uv_timer_t* handle);
  static void OnRetry(uv_timer_t* handle);
  static void OnIdle(uv_idle_t* handle);
  static void OnHold(uv_timer_t* handle);

  bool PumpRequests(Channel::Wait wait = Channel::Wait::kNo);
  bool PumpReplies(Channel::Wait wait = Channel::Wait::kNo);
  void ForwardRequests();
  void ForwardReplies();
  void HandleRequest(const wire::RequestEvent& event, uint64_t now);
  void HandleReply(const wire::ReplyEvent& event, uint64_t now);
  void RecordRegion(const wire::ReplyEvent& event, std::span<const int> descriptors, uint64_t now);
  void CollectAddresses(const wire::ReplyEvent& event, uint64_t now);
  bool FlushToServer();
  bool FlushToClient();
  bool TookAll(Channel::SendResult result);
  // What waiting at a socket came to. kOver: the event loop must have its turn.
  enum class Arrival : uint8_t { kSome, kNone, kOver };
  void AwaitMore();
  Arrival Spin(uint64_t window, uint64_t until);
  Arrival Park();
  void EarnSpin();
  bool NobodyIsSlow() const { return requests_.queue_empty() && replies_.queue_empty(); }
  void Settle();
  void EndOfRequests();
  void EndOfReplies();
  bool ClientGone() const;
  void UpdatePolls();
  void Tick();
  void Finish();
  void CloseHandles();
  void NoteClosed(const char* side);
  void NoteRevision();
  bool MayReadClient() const;
  bool MayReadServer() const;
  void Poison(std::string_view text);

  // Guard, injection and autopsy: session_intercept.cc. None of it without `intercept_`.
  bool BlocksRequests() const;
  bool OwnQuestionIsNext() const;
  bool InterceptRequest(const wire::RequestEvent& event, uint64_t now, uint64_t& call);
  bool InterceptRest(const wire::RequestEvent& event, uint32_t descriptors, uint64_t now);
  bool InterceptReply(const wire::ReplyEvent& event, uint32_t descriptors, bool truncated,
                      uint64_t now);
  void QueueChanged(const wire::ReplyEvent& event, uint32_t descriptors, bool truncated,
                    uint64_t now);
  void Hold(uint64_t ms);
  bool AnswerMade();
  bool AutopsyBegins(std::string reason, uint64_t stalled_since);
  void AutopsyGoesOn();
  void AutopsyTick(uint64_t now);
  void PassOnEndOfRequests();

  uv_loop_t* const loop_;
  const SessionOptions options_;
  Peers peers_;
  Counters& counters_;
  LogFn log_;
  std::function<void()> over_;
  Handles* handles_ = nullptr;  // from Start() until the loop has closed them

  Tap tap_;
  Alerts alerts_;
  std::shared_ptr<SysmemTable> sysmem_;
  Channel requests_, replies_;
  wire::RequestFramer request_framer_;
  wire::ReplyFramer reply_framer_;
  wire::Pairing pairing_;
  std::vector<uint8_t> addresses_;        // body of a MAP_SYSMEM reply so far
  std::unique_ptr<Intercept> intercept_;  // null: a mere relay
  bool end_waits_ = false;                // for the autopsy

  bool client_eof_ = false, server_eof_ = false;         // nothing more to read there
  bool server_closed_ = false, client_closed_ = false;   // nothing more can be sent there
  bool requests_ended_ = false, replies_ended_ = false;  // EOF passed on
  bool held_ = false;
  bool finishing_ = false;
  bool retrying_ = false;
  bool sync_needed_ = false;
  bool truncated_control_warned_ = false;
  bool silence_warned_ = false;
  bool revision_noted_ = false;
  bool sync_failed_ = false;
  bool capture_ended_ = false;
  uint64_t short_reply_call_ = 0;  // warned about
  int snapshots_running_ = 0;
  int handles_open_ = 0;
  std::string closed_first_, end_text_;
  uint64_t undelivered_to_server_ = 0, undelivered_to_client_ = 0;
  uint64_t replies_ended_ns_ = 0;
  uint64_t last_request_ns_ = 0, last_reply_ns_ = 0;  // when bytes last came from either side
  int spin_credit_ = 4;
};

}  // namespace tg::proxy
