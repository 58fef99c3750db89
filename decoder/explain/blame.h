// Which queue holds up the others, told from what each waits for: shared by the rules about queues.
#pragma once

#include <string>

#include "decoder/explain/facts.h"
#include "decoder/explain/finding.h"

namespace tg::explain {

// Who must act for a queue to go on.
struct Blame {
  const QueueView* culprit = nullptr;
  bool nobody = false;  // waits for a value that no submission writes
  bool circle = false;  // ... since the queues wait for each other: `waiter` for `next`
  bool passed = false;  // the culprit read past the fence, yet memory has the old value
  const QueueView* waiter = nullptr;
  const QueueView* next = nullptr;
  const amd::WaitSpec* wait = nullptr;
};

// The queue with the oldest unfinished submission: where the chain of waits begins. nullptr: all
// are done.
const QueueView* Stuck(const Facts& facts);
// Follows unsatisfied waits from `from` to the queue that must act.
Blame Follow(const Facts& facts, const QueueView* from);

// The read pointer stands at the very beginning of the submission, though its first packet could be
// executed: from the memory's side a lost doorbell and a halted engine look the same.
bool NeverBegan(const QueueView& view);
// The submission has a kernel to run (or what it has was not observed).
bool MayRunKernel(const QueueView& view);

// Confidence: `full` if the client surely hangs and the ring's content was seen.
void Certainty(const Facts& facts, const QueueView* view, Finding& f, int full);
// Where each queue stands, and what was not seen of it.
void AddQueueEvidence(const Facts& facts, Finding& f);
// ", fence 4 not seen"
std::string FenceText(const QueueView& view);
// A stuck SDMA engine: what the driver can still do about it, and what it did in vain.
void AdviseOnEngine(const Facts& facts, const QueueView& view, Finding& f);

}  // namespace tg::explain
