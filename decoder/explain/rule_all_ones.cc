// The card does not answer any more: row 3, field report B03.
#include <fmt/format.h>

#include "decoder/explain/rules.h"
#include "decoder/model/words.h"

namespace tg::explain {

namespace {

// Memory of the card that reads back all ones right after something else was written there.
void ReadBack(const Facts& facts, Findings& out) {
  const model::LinkWatch& watch = facts.session.link;
  const model::LinkWatch::Run* run = watch.run();
  if (!run || !run->read_back) return;
  Finding f;
  f.rule = "all_ones";
  f.kind = "device_lost";
  f.confidence = run->count > 8 || run->registers > 1 ? 88 : 80;
  f.summary = fmt::format("{} reads back all ones since record {}: the device does not answer",
                          model::TargetText(run->first.header), run->first.seq);
  if (run->last_write)
    f.evidence.push_back(
        {run->last_write->last_seq, "last write before: " + model::WriteText(*run->last_write)});
  f.evidence.push_back({run->first.seq, fmt::format("first all-ones read, {} in all", run->count)});
  f.advice = Advice::kReboot;
  f.reason = "reads do not reach the card: replug or power-cycle it, and reboot if it stays away";
  f.against.push_back({0, watch.config_answers() ? "configuration space still answers"
                                                 : "configuration space was not read since: not "
                                                   "observed"});
  out.push_back(std::move(f));
}

}  // namespace

void RuleAllOnes(const Facts& facts, Findings& out) {
  const model::Link& link = facts.device.link();
  const model::LinkVerdict verdict = link.verdict();
  const model::AllOnes* first = nullptr;
  size_t bad = 0;
  for (const model::AllOnes& t : link.transitions()) {
    if (t.good_again) continue;
    bad++;
    if (!first || t.first_bad.call < first->first_bad.call) first = &t;
  }
  if (verdict == model::LinkVerdict::kUnknown ||
      (!first && verdict != model::LinkVerdict::kDeviceGone))
    return ReadBack(facts, out);
  const std::string name = !first ? "configuration space"
                           : first->name.empty()
                               ? fmt::format("BAR{}+{:#x}", first->bar, first->address)
                               : first->name;
  Finding f;
  f.kind = "device_lost";
  switch (verdict) {
    case model::LinkVerdict::kDeviceGone:
      f.rule = "device_gone";
      f.confidence = 97;
      f.summary = fmt::format(
          "the device is gone from the bus: configuration space and {} read all ones", name);
      f.advice = Advice::kReboot;
      f.reason =
          "the card does not answer on the bus: replug or power-cycle it, then reboot if it stays "
          "away";
      break;
    case model::LinkVerdict::kMemoryOff:
      f.rule = "memory_off";
      f.kind = "unreachable";  // it is there: not a lost device
      f.confidence = 90;
      f.summary = fmt::format(
          "{} reads all ones as expected: memory decode is off in the command register", name);
      f.advice = Advice::kReplug;
      f.reason =
          "the card is there but its BARs are switched off: replug it, so that the system assigns "
          "them again";
      break;
    case model::LinkVerdict::kBarOrLink:
      f.rule = "bar_or_link";
      f.kind = "unreachable";  // it is there: not a lost device
      f.confidence = 88;
      f.summary = fmt::format(
          "{} reads all ones, PCI config still answers: BAR decode or link problem", name);
      f.advice = Advice::kReplug;
      f.reason =
          "the card is on the bus but its memory is not reached: replug it; a power-cycle if that "
          "does not help";
      break;
    default:
      f.rule = "all_ones";
      // One register alone may hold all ones for reasons of its own.
      f.confidence = bad > 1 || first->count > 8 ? 85 : 55;
      f.summary = fmt::format("{} reads all ones since record {}: the device does not answer", name,
                              first->first_bad.call);
      f.advice = Advice::kReboot;
      f.reason =
          "reads do not reach the card: replug or power-cycle it, and reboot if it stays away";
      f.against.push_back({0, "configuration space was not read since: not observed"});
  }
  if (first) {
    if (first->last_good)
      f.evidence.push_back({first->last_good.call, fmt::format("last good read of {}: {:#x}", name,
                                                               first->last_good_value)});
    for (const model::PostedWrite& w : first->writes_between)
      f.evidence.push_back({w.at.call, fmt::format("write between: bar{}+{:#x} = {:#x} ({} bytes)",
                                                   w.bar, w.offset, w.value, w.size)});
    f.evidence.push_back({first->first_bad.call, fmt::format("first all-ones read of {}, {} in all",
                                                             name, link.all_ones_reads())});
    if (first->bad_latency_ns > 100 * first->good_latency_ns && first->good_latency_ns > 0)
      f.evidence.push_back({first->first_bad.call, fmt::format("reply time rose from {} to {}",
                                                               Duration(first->good_latency_ns),
                                                               Duration(first->bad_latency_ns))});
  }
  if (const auto config = facts.device.bars().config_all_ones())
    f.evidence.push_back({config->call, "configuration space reads all ones"});
  else if (facts.device.bars().last_config_ok())
    f.evidence.push_back(
        {facts.device.bars().last_config_ok().call, "configuration space answers"});
  out.push_back(std::move(f));
}

}  // namespace tg::explain
