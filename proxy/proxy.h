// The proxy as a whole, on one loop: listener, the client being served, those that wait, the trace.
//
// One client at a time, as the server does it: TinyGPU.app accepts a second connection only when
// the first one is over. Others are accepted here and wait, and the log says who waits for whom.
#pragma once

#include <uv.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "proxy/connector.h"
#include "proxy/listener.h"
#include "proxy/log.h"
#include "proxy/session.h"
#include "schemas/trace/writer.h"

namespace tinygpu::trace {
class SessionEvent;
}

namespace tg::proxy {

struct ProxyOptions {
  ConnectOptions connect;
  SessionOptions session;
  std::function<void()> client_gone;  // a client that was served is gone; may be empty
};

class Proxy {
 public:
  // The writer must outlive the proxy.
  Proxy(uv_loop_t* loop, const ProxyOptions& options, std::unique_ptr<Listener> listener,
        trace::TraceWriter& writer, LogFn log);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void Start();
  // Ends everything: the session is closed with what can be delivered at once. `stopped` is called
  // from the loop when nothing of ours is left but closing handles.
  void Stop(std::string reason, std::function<void()> stopped);
  // Snapshot of shared memory (SIGUSR1).
  void Snapshot();
  // A client is being served or waits.
  bool busy() const { return (session_ && !session_->held()) || connector_ || !waiting_.empty(); }

  // Adds an event to the trace.
  void Note(const tinygpu::trace::SessionEvent& event);
  const Listener& listener() const { return *listener_; }
  const Counters& counters() const { return counters_; }

 private:
  struct Client {
    UniqueFd fd;
    uint32_t number = 0;
    pid_t pid = 0;
  };

  void Accepted(UniqueFd fd);
  void Next();
  void Connected(Result<UniqueFd> server);
  void Over();
  void Watch();
  void Stopped();

  uv_loop_t* const loop_;
  const ProxyOptions options_;
  std::unique_ptr<Listener> listener_;
  trace::TraceWriter& writer_;
  LogFn log_;
  Counters counters_;
  uint32_t clients_ = 0;
  Client connecting_;  // while connector_ works for it
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<Session> session_;
  std::deque<Client> waiting_;
  uv_timer_t* watch_ = nullptr;
  bool trace_paused_ = false;
  bool gone_told_ = false;  // of the session whose connection is held
  bool stopping_ = false;
  std::function<void()> stopped_;
};

}  // namespace tg::proxy
