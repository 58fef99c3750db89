// A run of equal calls that is going on: the Repeat packet at the end of the file and its two
// states, which change by turns. A kill between two stores breaks at most the one being changed;
// the other then says one call less.
#pragma once

#include <array>
#include <cstdint>

#include "schemas/trace/encode.h"
#include "schemas/trace/fold.h"

namespace tg::trace {

class RepeatRun {
 public:
  bool active() const { return period_ != 0; }
  void End() { period_ = 0; }

  // What the packet will say: the pattern, and a first call at `time` (ns since start).
  void Load(const CallHistory& history, size_t period, uint64_t time);
  template <typename Out>
  void Emit(Out& out) const {
    out.Message(10, [&](auto& repeat) {
      for (size_t i = 0; i < loaded_; i++)
        repeat.Message(1, [&](auto& call) { EmitCall(call, pattern_[i]); });
      static constexpr std::array<uint8_t, kRepeatStateSize> kZero = {};
      repeat.Bytes(2, kZero);
      repeat.Bytes(3, kZero);
    });
  }
  // Stores the states into a packet whose content ends at `end`, where Emit left zero bytes.
  void InitStates(uint8_t* end);
  // The packet is in the file: from now on calls go into it.
  void Begin();

  // True when this request is the run's next call: counted. False: the run is over.
  bool Continue(const RequestRecord& record, uint64_t time);
  // True when this answers the run's newest call as its pattern says: counted.
  bool Answer(const ReplyRecord& record, uint64_t latency_ticks);

 private:
  template <typename Out>
  static void EmitCall(Out& out, const CallImage& image) {
    RequestRecord request;
    request.header = image.header;
    request.payload.size = image.payload_size;
    request.payload.data = image.payload();
    out.Message(1, [&](auto& o) { EmitRequest(o, request); });
    if (image.posted) return;
    ReplyRecord reply;
    reply.reply = image.reply;
    reply.body.size = image.body_size;
    reply.body.data = image.body();
    out.Message(2, [&](auto& o) { EmitReply(o, reply, 0, 0); });
  }
  void Store();

  std::array<CallImage, kMaxPeriod> pattern_;
  size_t loaded_ = 0;
  size_t period_ = 0;  // 0: no run
  size_t next_ = 0;    // of the pattern: what the next request must be
  bool waiting_ = false;
  RepeatState state_;
  std::array<uint8_t*, 2> slots_ = {};
  size_t turn_ = 0;  // the slot to store into next
};

}  // namespace tg::trace
