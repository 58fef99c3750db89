// Turns a trace into steps, lazily: only a window of the file is in memory, and a Repeat stays one
// step however many calls it stands for.
//
// A window is needed because what belongs to a call comes after it: its reply, the chunks of large
// bodies, and what the proxy copied from shared memory (by a thread that may lag behind).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "replay/script/call.h"
#include "schemas/result.h"
#include "schemas/trace/reader.h"

namespace tinygpu::trace {
class BodyChunk;
class SessionEvent;
}  // namespace tinygpu::trace

namespace tg::replay {

class Script {
 public:
  // How far At() looks ahead for answers: past it a call counts as unanswered. A synchronous client
  // never has more than one waiting.
  static constexpr size_t kWindowSteps = 1u << 14;
  static constexpr uint64_t kWindowBytes = 256ull << 20;

  static Result<std::unique_ptr<Script>> FromFile(const std::string& path);
  explicit Script(std::unique_ptr<trace::TraceReader> reader);
  ~Script();

  // The i-th step from the front, or nullptr when the trace has no more (or i is past the window).
  Step* At(size_t i);
  Step Take();  // removes the front step; there must be one
  void Pop() { (void)Take(); }

  wire::Revision revision() const { return revision_; }  // of the steps read so far
  const trace::TraceReader& reader() const { return *reader_; }

 private:
  bool Fill();  // reads one record; false at the end
  bool Settled(size_t i) const;
  void OnRequest(const trace::Record& record);
  void OnReply(const trace::Record& record);
  void OnRepeat(const trace::Record& record);
  void OnPacket(const trace::Record& record);
  void OnChunk(const tinygpu::trace::BodyChunk& chunk, uint64_t newest);
  void OnEvent(const tinygpu::trace::SessionEvent& event, uint64_t newest);
  Call MakeCall(const trace::RequestView& request, uint64_t number, uint64_t time_ns);
  void SetReply(Call& call, const trace::ReplyView& reply);
  Step& Push(Step::Kind kind, uint64_t number);
  void Gap(std::string text, uint64_t number, bool breaks);
  Step* Open(uint64_t number);  // the step still waiting that has this number
  void Got(Step& step, uint8_t what);
  void CloseAll();

  std::unique_ptr<trace::TraceReader> reader_;
  std::deque<Step> steps_;
  uint64_t popped_ = 0;                          // steps dropped so far
  uint64_t bytes_ = 0;                           // bodies and memory held by steps_
  std::unordered_map<uint64_t, uint64_t> open_;  // call number -> step (counted from the first)
  uint64_t closed_before_ = 0;                   // steps before this one wait for nothing
  wire::Revision revision_ = wire::Revision::kUndecided;
  bool ended_ = false;
  size_t skipped_seen_ = 0;
  Call last_write_;
};

}  // namespace tg::replay
