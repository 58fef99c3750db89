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

// By the card's own tables where they have it.
std::string NameOf(const Facts& facts, const wire::RequestHeader& header) {
  if (header.bar == 5 && facts.device.vendor() != model::Vendor::kNvidia) {
    const model::RegisterState* reg = facts.device.registers().Find(header.arg0);
    if (reg && reg->named()) return std::string(reg->name());
    return fmt::format("BAR5+{:#x}", header.arg0);
  }
  return facts.session.link.RegisterName(header, true);
}

// The last good read, what was written since, the first bad one.
void RunEvidence(const model::LinkWatch::Run& run, const model::LinkWatch& link,
                 const std::string& name, Finding& f) {
  const uint64_t good_latency = run.good ? run.good->latency_ns : 0;
  if (run.good)
    f.evidence.push_back(
        {run.good->seq, fmt::format("last good read of {}: {:#x}", name, run.good->value)});
  for (const model::LinkWatch::OnesRegister& r : link.ones()) {
    if (r.first.seq != run.first.seq) continue;
    for (const model::WriteSeen& w : r.writes)
      f.evidence.push_back({w.last_seq, "write between: " + model::WriteText(w)});
  }
  f.evidence.push_back(
      {run.first.seq, fmt::format("first all-ones read of {}, {} in all", name, run.count)});
  if (run.first.latency_ns > 100 * good_latency && good_latency > 0)
    f.evidence.push_back(
        {run.first.seq, fmt::format("reply time rose from {} to {}", Duration(good_latency),
                                    Duration(run.first.latency_ns))});
}

}  // namespace

void RuleAllOnes(const Facts& facts, Findings& out) {
  const model::LinkWatch& link = facts.session.link;
  const model::LinkState state = link.state();
  const model::LinkWatch::Run* run = link.run();
  if (!run && state != model::LinkState::kDeviceGone) return;
  if (run && run->read_back && state == model::LinkState::kAllOnes) return ReadBack(facts, out);
  const std::string name = run ? NameOf(facts, run->first.header) : "configuration space";
  Finding f;
  f.kind = "device_lost";
  switch (state) {
    case model::LinkState::kDeviceGone:
      f.rule = "device_gone";
      // Registers were not read since: it may still retry.
      f.confidence = run ? 97 : 80;
      f.summary =
          run ? fmt::format(
                    "the device is gone from the bus: configuration space and {} read all ones",
                    name)
              : "the device is gone from the bus: configuration space reads all ones";
      f.advice = Advice::kReboot;
      f.reason =
          "the card does not answer on the bus: replug or power-cycle it, then reboot if it stays "
          "away";
      if (!run) f.against.push_back({0, "no register was read since: not observed"});
      break;
    case model::LinkState::kMemoryOff:
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
    default:
      if (link.config_answers()) {
        f.rule = "bar_or_link";
        f.kind = "unreachable";  // it is there: not a lost device
        f.confidence = 88;
        f.summary = fmt::format(
            "{} reads all ones, PCI config still answers: BAR decode or link problem", name);
        f.advice = Advice::kReplug;
        f.reason =
            "the card is on the bus but its memory is not reached: replug it; a power-cycle if "
            "that does not help";
        break;
      }
      f.rule = "all_ones";
      // One register alone may hold all ones for reasons of its own.
      f.confidence = run->registers > 1 || run->count > 8 ? 85 : 55;
      f.summary = fmt::format("{} reads all ones since record {}: the device does not answer", name,
                              run->first.seq);
      f.advice = Advice::kReboot;
      f.reason =
          "reads do not reach the card: replug or power-cycle it, and reboot if it stays away";
      f.against.push_back({0, "configuration space was not read since: not observed"});
  }
  if (run) RunEvidence(*run, link, name, f);
  if (const auto config = facts.device.bars().config_all_ones())
    f.evidence.push_back({config->call, "configuration space reads all ones"});
  else if (facts.device.bars().last_config_ok())
    f.evidence.push_back(
        {facts.device.bars().last_config_ok().call, "configuration space answers"});
  out.push_back(std::move(f));
}

}  // namespace tg::explain
