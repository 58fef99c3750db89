// The models a whole trace goes through before the rules look at it. Shared by the report, the diff
// and the proxy.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decoder/explain/explain.h"
#include "decoder/explain/facts.h"
#include "decoder/explain/poll_watch.h"
#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"
#include "decoder/model/session.h"

namespace tg::explain {

class Observation {
 public:
  explicit Observation(const model::DeviceOptions& options = {});
  void Feed(const trace::Record& record);
  // No more records will come.
  void Finish();

  // For those who watch the device or the queues' packets as they come. Before the first record.
  void Watch(model::Observer* observer) { device_.AddObserver(observer); }
  void SetPacketListener(std::function<void(const model::QueuePacketEvent&)> listener) {
    queues_.queues().SetPacketListener(std::move(listener));
  }

  // What is known of the file the records came from.
  struct File {
    bool whole = true;
    std::string problem;  // "truncated at byte 1234"
    uint64_t lost_calls = 0;
  };
  Facts MakeFacts(const File& file) const;
  Explanation ExplainIt(const File& file) const { return Explain(MakeFacts(file)); }

  const model::Session& session() const { return session_.session(); }
  const model::SessionModel& session_model() const { return session_; }
  const model::Device& device() const { return device_; }
  const model::Queues& queues() const { return queues_.queues(); }
  const model::DeviceQueues& device_queues() const { return queues_; }
  const PollWatch& polls() const { return polls_; }
  // What the connections before the newest came to.
  const std::vector<Earlier>& earlier() const { return earlier_; }

 private:
  void KeepState();
  void KeepEarlier(const trace::Record& record);
  void KeepSilence(const trace::Record& record);

  model::SessionModel session_;
  model::Device device_;
  model::DeviceQueues queues_;
  PollWatch polls_;
  ShiftWatch shift_;
  RasWatch ras_;
  ReadWatch reads_;
  std::vector<Earlier> earlier_;
  // As it was when the newest recovery began.
  struct Kept {
    std::vector<QueueView> queues;
    model::Stamp first_round, last_round;
    uint64_t recovery = 0;  // its call
  };
  // Work was submitted and waited for in good order since that recovery (timeouts of BEAM).
  bool Survived(const Kept& kept) const;
  std::optional<Kept> kept_;
  size_t session_count_ = 0;
  size_t phase_count_ = 0;
  Quiet silence_;
  uint64_t last_call_ns_ = 0;
  uint64_t last_ns_ = 0;
};

}  // namespace tg::explain
