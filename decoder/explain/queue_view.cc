#include "decoder/explain/queue_view.h"

#include "decoder/model/queue_text.h"

namespace tg::explain {
namespace {

// The first address of [va, va + bytes) that the page tables say is not mapped.
std::optional<uint64_t> Unmapped(const model::Gpuvm& gpuvm, uint64_t va, uint64_t bytes) {
  // A copy is 1 GiB at most; big mappings are skipped in one step, 4 KiB ones one by one.
  constexpr int kSteps = 65536;
  uint64_t done = 0;
  for (int i = 0; i < kSteps && done < bytes; i++) {
    const model::Walk walk = gpuvm.WalkVa(va + done);
    if (walk.end == model::Walk::End::kNotValid || walk.end == model::Walk::End::kOutOfRange)
      return va + done;
    if (walk.end != model::Walk::End::kMapped || walk.target.contiguous == 0) return std::nullopt;
    done += walk.target.contiguous;
  }
  return std::nullopt;
}

std::optional<uint64_t> UnmappedBy(const model::Gpuvm& gpuvm, const amd::DecodedPacket& packet) {
  if (const auto copy = amd::CopyOf(packet)) {
    const auto source = Unmapped(gpuvm, copy->src, copy->bytes);
    return source ? source : Unmapped(gpuvm, copy->dst, copy->bytes);
  }
  if (const auto wait = amd::WaitOf(packet))
    return wait->memory ? Unmapped(gpuvm, wait->address, 4) : std::nullopt;
  if (const auto fence = amd::FenceOf(packet)) return Unmapped(gpuvm, fence->address, fence->bytes);
  return std::nullopt;
}

}  // namespace

std::vector<QueueView> ViewQueues(const model::Device& device, const model::Queues& queues) {
  std::vector<QueueView> views;
  for (size_t i = 0; i < queues.queues().size(); i++) {
    QueueView view;
    view.queue = &queues.queues()[i];
    view.state = model::StateOf(queues, i);
    if (view.state.missing) {
      for (const model::Submission& s : view.queue->submissions)
        if (s.number == view.state.missing->submission) view.open = s;
    }
    for (size_t k = 0; view.state.stuck && k < view.state.items.size() && !view.head; k++) {
      const model::QueueItem& item = view.state.items[k];
      if (item.kind == amd::WalkItem::Kind::kPacket &&
          model::PacketText(item.packet) == view.state.stuck->text)
        view.head = k;
    }
    if (const model::QueueItem* head = view.head_item()) {
      const auto wait = amd::WaitOf(head->packet);
      if (wait && wait->memory) {
        view.wait = wait;
        const auto producer = queues.FindProducer(wait->address, wait->reference);
        if (producer.queue) view.producer = producer.queue->index;
        if (producer.submission) {
          view.producer_number = producer.submission->number;
          view.producer_end = producer.submission->end;
        }
      }
      // Without a page table in the trace nothing is known of what is mapped.
      if (!device.gpuvm().root_assumed()) view.unmapped = UnmappedBy(device.gpuvm(), head->packet);
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace tg::explain
