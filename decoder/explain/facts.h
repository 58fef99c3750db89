// All that the rules look at, after a whole trace went through the models. Rules read, never
// change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decoder/explain/finding.h"
#include "decoder/explain/poll_watch.h"
#include "decoder/explain/queue_view.h"
#include "decoder/explain/ras_watch.h"
#include "decoder/explain/read_watch.h"
#include "decoder/explain/shift_watch.h"
#include "decoder/model/device.h"
#include "decoder/model/queue_device.h"
#include "decoder/model/session.h"
#include "decoder/model/words.h"

namespace tg::explain {

using model::Duration;
using model::Hex;

// What an earlier connection of the trace came to.
struct Earlier {
  uint32_t connection = 0;
  uint64_t last_call = 0;
  bool small = false;  // a few calls, no work: a look at the card, not a run
  Finding verdict;
  std::string noticed, recovery, next_start;
};

// A time in which the client did nothing, or nothing but read one word (`run.reads` > 0).
struct Quiet {
  uint64_t ns = 0;
  uint64_t since = 0, until = 0;  // calls
  ReadRun run;
};

struct Facts {
  Facts(const model::Device& the_device, const model::Session& the_session,
        const PollWatch& the_polls, const ShiftWatch& the_shift, const RasError& the_ras,
        const ReadRun& the_reads, const model::DeviceQueues& the_queues,
        std::vector<QueueView> the_views)
      : device(the_device),
        session(the_session),
        polls(the_polls),
        shift(the_shift),
        ras(the_ras),
        reads(the_reads),
        all_queues(the_queues.queues()),
        copies(the_queues.copies()),
        queues(std::move(the_views)) {}

  const model::Device& device;
  const model::Session& session;
  const PollWatch& polls;
  const ShiftWatch& shift;
  const RasError& ras;
  const ReadRun& reads;  // that the trace ends in
  ReadRun turn;          // likewise, with other words read between
  Quiet silence;         // the newest one of the trace that ended
  ReadRun ended_reads;   // likewise
  const model::Queues& all_queues;
  const model::Copies& copies;
  std::vector<model::Warning> warnings;  // of the session (rules B01..T10)
  // In the order they were set up; as they stood when the newest session began to recover, else at
  // the end.
  std::vector<QueueView> queues;

  uint64_t survived = 0;  // recoveries of the newest session, with work done in good order since

  std::vector<Earlier> earlier;  // the latest 32, oldest first

  // The file.
  bool whole = true;         // closed cleanly, nothing skipped
  std::string file_problem;  // "truncated at byte 1234", else empty
  uint64_t lost_calls = 0;   // calls and packets that the proxy could not record
  uint64_t last_call = 0;
  uint64_t last_time_ns = 0;

  uint64_t last_call_ns = 0;  // time of the newest call; last_time_ns is that of the last packet

  // ---- derived once, see facts.cc ----
  // The newest connection, which is the one the verdict is about.
  uint64_t first_call = 0;
  bool small = false;                         // see Earlier
  std::vector<model::Unanswered> unanswered;  // of its requests
  std::vector<model::Refusal> refusals;       // that hurt
  const model::BootSession* boot = nullptr;   // the newest start of the driver
  bool joined = false;                        // ... of which the trace has not the beginning
  bool finished = false;                      // the driver's finish was seen
  bool error_state = false;                   // ... with the error flag set
  bool recovered = false;                     // the hang handler ran in the newest start
  bool hung_again = false;                    // ... and the client waits again since
  bool server_closed_first = false;
  bool client_closed_first = false;
  // The client waited (interrupt rounds) and the trace shows no end of that wait.
  bool waiting_at_end = false;
  uint64_t wait_ns = 0;  // length of the newest run of rounds, 200 ms before it included
  model::Stamp wait_first{}, wait_last{};
  // Nothing came for that long between the newest call and the end, though no call was open.
  uint64_t silence_ns = 0;
  // The client was interrupted while it waited or spun for an SDMA engine that does not get on.
  bool interrupted_stuck = false;
  // ... or nothing but reads of one word of shared memory (TCP).
  uint64_t spin_ns = 0;
  // The newest such time that ended, with no work submitted after it: the client was interrupted in
  // it, or did something else.
  Quiet quiet;
  // The newest doorbell. An event with one behind it was survived; one with none may be what ended
  // the client, however orderly it left: an uncaught exception ends in the driver's finish, too.
  uint64_t last_doorbell = 0;
  bool WentOn(uint64_t call) const { return last_doorbell > call; }
  // A register poll of the driver that the trace ends in, or that ran out (10 s) with no work
  // after.
  std::optional<PollRun> fatal_poll;
  bool fatal_poll_open = false;
  // Refusals that ended the client, or may have.
  bool refused_at_end = false;
  std::vector<model::Interrupt> interrupts;  // the first and the latest ones, in order
  // The first interrupt since the boot that sets the driver's error state.
  std::optional<model::Interrupt> error_interrupt;
  // Submitted work that nothing retired.
  bool work_outstanding = false;
  // Some queue state is known (pointers or content) that could prove the opposite.
  bool queues_observed = false;

  const QueueView* FindQueue(bool sdma) const;
  // The call after which faults count: what was before the boot or a survived recovery is over.
  uint64_t Since() const;
  // The staging slot that was taken and never submitted, where it is the next in turn.
  const model::StagingSkip* LeakedSlot() const;
  // How sure it is that the client was hung when the trace ended: 0 (it was not) to 100 (its own
  // hang handler ran). Says so in `evidence`.
  int HangCertainty(std::vector<Evidence>* evidence = nullptr) const;
};

// Fills what is derived.
void Derive(Facts& facts);

}  // namespace tg::explain
