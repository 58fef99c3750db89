// Answers from what the recording shows of registers and memory, in whatever order the client asks:
// for looking at a card as it stood, without its client's whole story.
//
// A place holds what was last written to it or read from it. It is not a device: nothing happens
// because of a write, and data read through an index register is whatever was last read there. What
// the recording never showed is refused with an error text, never answered with zero.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "replay/script/history.h"
#include "replay/script/script.h"
#include "replay/script/shared.h"
#include "replay/script/sparse.h"
#include "replay/serve/answer.h"

namespace tg::replay {

class ShadowServer : public Responder {
 public:
  // State right after call `at` (0: at the end). Reads the whole script up to there.
  ShadowServer(Script& script, uint64_t at);

  bool Connect() override;
  Answer OnRequest(const Received& received) override;
  bool OnSilence() override { return false; }
  bool HangsUp() override { return false; }
  Verdict Disconnect() override { return {}; }
  std::vector<std::string> History() const override { return history_.Lines(); }
  uint64_t played() const override { return played_; }
  uint64_t refused() const { return refused_; }
  uint64_t last_call() const { return last_call_; }

 private:
  using Place = std::pair<uint32_t, uint32_t>;  // device, BAR or handle
  struct RecordedRegion {
    uint64_t granted = 0;
    std::vector<DmaRange> ranges;
    std::vector<Memory> contents;  // as they came; the last ones win
  };
  void Learn(const Call& call);
  void LearnBytes(SparseMemory& memory, uint64_t offset, const Bytes& bytes);
  Answer Respond(const Received& received);
  Answer Fixed(const wire::RequestHeader& request);
  Answer Read(const wire::RequestHeader& request, SparseMemory& memory);
  Answer Region();
  Answer Error(std::string text);
  Answer Ok(uint64_t resp0, uint64_t resp1 = 0);

  wire::Revision revision_;
  std::map<Place, SparseMemory> bars_, sysmem_;
  std::map<uint32_t, SparseMemory> config_;
  std::map<Place, wire::ReplyHeader> mapped_;
  std::unordered_map<uint64_t, std::pair<wire::ReplyHeader, std::vector<uint8_t>>> fixed_;
  std::vector<std::pair<wire::ReplyHeader, std::vector<uint8_t>>> sysmem_maps_;
  std::vector<RecordedRegion> regions_;
  std::vector<SharedMemory> shared_;
  size_t next_region_ = 0, next_sysmem_ = 0;
  std::vector<uint8_t> body_;
  tg::replay::History history_;
  uint64_t played_ = 0, refused_ = 0, last_call_ = 0;
};

}  // namespace tg::replay
