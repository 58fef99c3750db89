// The log: one line per call, like strace; waits folded into one line.
//
//        1    0.000123  MAP_BAR 0 = size 0x10000000, addr 0x7f0000000000  <45 us>
//        2    0.000301  MMIO_READ bar5+0x4b8c size=4 = 0x00002480  <41 us>
//        3    0.000350  MMIO_WRITE bar2+0x800 size=8 <- 0x0000000000002480
//        4    0.000410  MMIO_READ bar5+0x4b8c size=4 = 0x00002480  x5000000 over 212 s
//
// Behind a line stands what the call is about (annotate.h): register and fields, doorbell, page
// table entry.
//
// Memory is bounded whatever the trace's length.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decoder/model/calls.h"
#include "decoder/report/annotate.h"
#include "decoder/report/output.h"
#include "schemas/trace/reader.h"

namespace tg::report {

struct LogOptions {
  bool raw = false;     // do not fold (runs folded while recording stay runs: their calls are gone)
  bool json = false;    // one JSON object per line
  bool errors = false;  // only refused, unanswered and cut calls
  bool follow = false;
  std::vector<uint8_t> commands;  // empty: all
  std::optional<uint32_t> bar;
  uint64_t seq_first = 0, seq_last = UINT64_MAX;
  uint64_t time_first_ns = 0, time_last_ns = UINT64_MAX;
  bool names = true;  // say what each call is about, see annotate.h
};

// Prints the records of a trace in order.
class LogPrinter : private model::CallSink {
 public:
  LogPrinter(const LogOptions& options, Output& out);
  void Add(const trace::Record& record);
  void Skipped(const trace::SkippedRange& range);
  // Everything held back to fold or to await an answer, now.
  void Flush();
  // The lines of finished calls, without giving up on those that still wait.
  void FlushFolded() { folder_.Flush(); }
  bool waiting() const { return assembler_.waiting(); }

 private:
  bool Wanted(const model::Call& call, uint64_t last_seq, uint64_t last_ns, bool unanswered) const;
  void OnCall(model::Call&& call) override;
  void OnRun(model::CallRun&& run) override;
  // `run`: nullptr for a single call.
  void Print(const model::Call& first, const model::CallRun* run);
  void PrintJson(const model::Call& first, const model::CallRun* run);
  // What the folder lets out is to be printed.
  class Printer : public model::CallSink {
   public:
    explicit Printer(LogPrinter& log) : log_(log) {}
    void OnCall(model::Call&& call) override { log_.Print(call, nullptr); }
    void OnRun(model::CallRun&& run) override { log_.Print(run.pattern.front(), &run); }

   private:
    LogPrinter& log_;
  };
  struct PendingNote {
    uint64_t seq = 0;
    uint64_t time_ns = 0;
    std::string kind;
    std::string text;
  };
  // `in_order`: after all calls before it, which ends a run; else at once.
  void Note(const trace::Record& record, std::string kind, std::string text, bool in_order = true);
  void PrintNotes();
  void PrintNote(const PendingNote& note);

  const LogOptions& options_;
  Output& out_;
  wire::Revision revision_ = wire::Revision::kUndecided;
  std::vector<PendingNote> notes_;
  Printer printer_;
  model::CallFolder folder_;
  model::CallSink& behind_filter_;  // the folder, or with --raw the printer
  model::CallAssembler assembler_;
  std::unique_ptr<Annotator> annotator_;  // nullptr: names were not asked for
};

// The part of a line between time and latency: "MMIO_READ bar5+0x4b8c size=4 = 0x00002480".
std::string CallLine(const model::Call& call, wire::Revision revision);

// The whole log of a reader; with `follow` until the trace is closed or nobody reads `out`.
void PrintLog(trace::TraceReader& reader, const LogOptions& options, Output& out);

// "A..B", "A..", "..B", "A" with `scale` units per 1 (fractions allowed). False: not a range.
bool ParseRange(const std::string& text, double scale, uint64_t& first, uint64_t& last);

}  // namespace tg::report
