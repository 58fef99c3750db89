// What a call is about, beside its bytes: for each line of the log the name of the register with
// its decoded fields, the queue that a doorbell belongs to, the address whose page-table entry is
// written, the message that the power controller gets.
//
//   MMIO_WRITE bar5+0x58a08 size=4 <- 0x0000001d   mmMP1_SMN_C2PMSG_66: SMU EnableAllSmuFeatures
//   MMIO_WRITE bar0+0x200a018 size=8 <- ...        PTB[3] VA 0x200001003000 -> sysmem 36 + 0x0
//
// It follows the trace with a device model of its own, so names are those of the card's discovery
// table once that was read, and accesses through index windows have their real target.
#pragma once

#include <memory>
#include <string>

#include "decoder/model/calls.h"
#include "schemas/trace/reader.h"

namespace tg::report {

class Annotator {
 public:
  Annotator();
  ~Annotator();
  Annotator(const Annotator&) = delete;
  Annotator& operator=(const Annotator&) = delete;

  // Every record of the trace, before the call that it ends is asked for.
  void Feed(const trace::Record& record);
  // Sets `extra->name` and `extra->about` of a call that was fed; nothing to say: untouched. What
  // was said of a call is forgotten some thousand calls later; then only its register has a name.
  void Describe(model::Call& call) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::report
