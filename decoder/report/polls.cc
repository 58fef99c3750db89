#include "decoder/report/polls.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/model/words.h"

namespace tg::report {

using model::CallRun;

PollTable::PollTable() : folder_(*this), assembler_(folder_) {}

void PollTable::OnRun(CallRun&& run) {
  if (run.count < kLeastPollCalls) return;
  total_++;
  if (runs_.size() < kMaxPolls) {
    runs_.push_back(std::move(run));
    return;
  }
  const auto least =
      std::min_element(runs_.begin(), runs_.end(),
                       [](const CallRun& a, const CallRun& b) { return a.count < b.count; });
  if (least->count < run.count) *least = std::move(run);
}

void PollTable::Finish() {
  assembler_.Flush();
  folder_.Flush();
  std::sort(runs_.begin(), runs_.end(),
            [](const CallRun& a, const CallRun& b) { return a.first_seq < b.first_seq; });
}

std::string PollText(const CallRun& run) {
  using wire::Command;
  const std::string span = model::Duration(run.last_ns - run.first_ns);
  const model::Call& first = run.pattern.front();
  if (run.pattern.size() > 1) {
    std::string calls;
    for (const model::Call& call : run.pattern) {
      if (!calls.empty()) calls += ", ";
      calls += model::CallText(call.header);
    }
    return fmt::format("{} calls ({}) in a round, {}, {}", run.pattern.size(), calls,
                       model::Count(run.rounds(), "round"), span);
  }
  const auto command = static_cast<Command>(first.header.command);
  const bool read = command == Command::kMmioRead || command == Command::kSysmemRead;
  const bool write = command == Command::kMmioWrite || command == Command::kSysmemWrite;
  std::string target = model::TargetText(first.header);
  if (target.starts_with("bar")) target.replace(0, 3, "BAR");
  if (read && first.answered && first.reply.status == 0) {
    return fmt::format("{} read {} times, value constant {}, {}", target,
                       model::Thousands(run.count),
                       model::ValueText(first.body.data(), first.body.size), span);
  }
  if (write) {
    return fmt::format("{} written {} times, value constant {}, {}", target,
                       model::Thousands(run.count),
                       model::ValueText(first.payload.data(), first.payload.size), span);
  }
  return fmt::format("{} called {} times{}, {}", model::CallText(first.header),
                     model::Thousands(run.count),
                     first.answered && first.reply.status != 0 ? ", refused each time" : "", span);
}

std::string PollNames(const CallRun& run, const model::Device& device) {
  std::string out;
  for (size_t i = 0; i < run.pattern.size(); i++) {
    const wire::RequestHeader& header = run.pattern[i].header;
    const auto command = static_cast<wire::Command>(header.command);
    if (command != wire::Command::kMmioRead && command != wire::Command::kMmioWrite) continue;
    if (header.bar != 5 || device.vendor() != model::Vendor::kAmd) continue;
    const model::RegisterState* state = device.registers().Find(header.arg0);
    if (!state || !state->named()) continue;
    bool before = false;
    for (size_t j = 0; j < i; j++) {
      const wire::RequestHeader& other = run.pattern[j].header;
      before = before || (other.bar == header.bar && other.arg0 == header.arg0);
    }
    if (before) continue;
    if (!out.empty()) out += ", ";
    out += state->name();
  }
  return out;
}

}  // namespace tg::report
