#include "decoder/model/interventions.h"

#include <fmt/format.h>

#include "decoder/model/words.h"
#include "schemas/wire/bytes.h"

namespace tg::model {
namespace {

constexpr size_t kMaxText = 1024;
// Stands in Reply.injected between what did it and what the server had said.
constexpr std::string_view kDetail = "; the server said ";

std::string ValueOf(const trace::ReplyView& reply) {
  if (reply.reply.status != 0) return fmt::format("status {}", reply.reply.status);
  if (reply.body.size == 4 && reply.body.whole())
    return fmt::format("{:#x}", LoadLe<uint32_t>(reply.body.data.data()));
  return Count(reply.body.size, "byte");
}

}  // namespace

std::string_view InterventionName(Intervention::Kind kind) {
  constexpr std::string_view kNames[] = {"guard", "inject", "autopsy"};
  return kNames[static_cast<size_t>(kind)];
}

void Interventions::Add(Intervention::Kind kind, std::string_view text, uint64_t call,
                        uint64_t time_ns, const wire::RequestHeader& header) {
  totals_[static_cast<size_t>(kind)]++;
  std::string detail;
  if (const size_t at = text.rfind(kDetail); at != std::string_view::npos) {
    detail = text.substr(at + 2).substr(0, kMaxText);
    text = text.substr(0, at);
  }
  text = text.substr(0, kMaxText);
  const std::string key = fmt::format("{} {} {}", static_cast<int>(kind), CallText(header), text);
  const auto [found, fresh] = index_.try_emplace(key, entries_.size());
  if (fresh) {
    if (entries_.size() >= kMaxEntries) {
      index_.erase(found);
      return;
    }
    Intervention& entry = entries_.emplace_back();
    entry.kind = kind;
    entry.first_seq = call;
    entry.first_ns = time_ns;
    entry.header = header;
    entry.text = text;
    entry.detail = std::move(detail);
  }
  Intervention& entry = entries_[found->second];
  // Request and answer of one call are one.
  if (entry.count == 0 || entry.last_seq != call)
    entry.count++;
  else
    totals_[static_cast<size_t>(kind)]--;
  entry.last_seq = call;
}

void Interventions::Feed(const trace::Record& record) {
  using Kind = Intervention::Kind;
  if (record.kind == trace::Record::Kind::kRequest) {
    const trace::RequestView& request = record.request;
    const wire::CommandInfo* info = wire::FindCommand(request.header.command);
    if (!info || info->reply) asked_[record.call % asked_.size()] = {record.call, request.header};
    if (request.injected.empty() && request.refused.empty()) return;
    if (request.injected.starts_with(trace::kAutopsyMark))
      Add(Kind::kAutopsy, request.injected, record.call, record.time_ns, request.header);
    else if (!request.injected.empty())
      Add(Kind::kInject, request.injected, record.call, record.time_ns, request.header);
    else if (!request.refused.empty())
      Add(Kind::kGuard, request.refused, record.call, record.time_ns, request.header);
    return;
  }
  if (record.kind != trace::Record::Kind::kReply) return;
  const std::string_view injected = record.reply.injected;
  if (injected.empty()) return;
  const Asked& asked = asked_[record.call % asked_.size()];
  const wire::RequestHeader header =
      asked.call == record.call ? asked.header : wire::RequestHeader{UINT8_MAX, 0, 0, 0, 0, 0};
  if (!injected.starts_with(trace::kAutopsyMark)) {
    // The guard's refusal of a request has been counted with it.
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
      if (entry->last_seq == record.call) return;
    Add(Kind::kInject, injected, record.call, record.time_ns, header);
    return;
  }
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->kind != Kind::kAutopsy || entry->last_seq != record.call) continue;
    entry->answered++;
    entry->detail = ValueOf(record.reply);
    return;
  }
}

const Intervention* Interventions::first_disturbance() const {
  for (const Intervention& entry : entries_)
    if (entry.kind != Intervention::Kind::kAutopsy) return &entry;
  return nullptr;
}

}  // namespace tg::model
