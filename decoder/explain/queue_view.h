// The state of one queue as the rules need it: the model's QueueState, and what only the page
// tables tell of the packet it stands at. A copy, since recovery and finish set the queues up
// afresh.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/device.h"
#include "decoder/model/queue_state.h"
#include "decoder/model/queues.h"

namespace tg::explain {

struct QueueView {
  const model::Queue* queue = nullptr;
  model::QueueState state;
  std::optional<model::Submission> open;  // the oldest whose fence is missing
  std::optional<size_t> head;             // in state.items: the packet that holds the queue
  std::optional<amd::WaitSpec> wait;      // of the head, when it waits for memory
  std::optional<uint64_t> unmapped;       // first address the head touches that is not mapped
  // Who must write what the head waits for: index of the queue, number of its submission.
  std::optional<size_t> producer;
  uint64_t producer_number = 0;
  uint64_t producer_end = 0;  // bytes: where that submission ends in its ring

  const model::QueueItem* head_item() const { return head ? &state.items[*head] : nullptr; }
  std::string head_text() const { return state.stuck ? state.stuck->text : std::string(); }
  bool waits_in_vain() const {
    return wait && !state.items[*head].holds && state.items[*head].memory;
  }
  bool idle() const { return state.outstanding_bytes == 0u; }
  bool stuck() const { return state.outstanding_bytes.value_or(0) > 0; }
  bool unfinished() const { return stuck() || open.has_value(); }
  const std::string& name() const { return queue->name; }
};

std::vector<QueueView> ViewQueues(const model::Device& device, const model::Queues& queues);

}  // namespace tg::explain
