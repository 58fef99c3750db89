#include "replay/serve/shadow.h"

#include <fmt/format.h>

#include <algorithm>

#include "replay/script/format.h"
#include "schemas/wire/bytes.h"

namespace tg::replay {
namespace {

using wire::Command;

// A trace may name any number of places; so many are remembered.
constexpr size_t kMaxPlaces = 4096;

template <typename Map, typename Key>
typename Map::mapped_type* Slot(Map& map, const Key& key) {
  const auto found = map.find(key);
  if (found != map.end()) return &found->second;
  return map.size() < kMaxPlaces ? &map[key] : nullptr;
}

}  // namespace

ShadowServer::ShadowServer(Script& script, uint64_t at) {
  while (const Step* step = script.At(0)) {
    if (at != 0 && step->number > at) break;
    switch (step->kind) {
      case Step::Kind::kCall:
        Learn(step->call);
        break;
      case Step::Kind::kRun:
        for (const Call& call : step->run->pattern) Learn(call);
        last_call_ = step->run->first + step->run->issued - 1;
        break;
      case Step::Kind::kConnect:
        regions_.clear();  // TinyGPU.app numbers them anew
        break;
      case Step::Kind::kRegion:
        if (step->region.index < regions_.size() && regions_[step->region.index].ranges.empty())
          regions_[step->region.index].ranges = step->region.ranges;
        break;
      case Step::Kind::kMemory:
        if (step->memory.region < regions_.size())
          regions_[step->memory.region].contents.push_back(step->memory);
        break;
      default:
        break;
    }
    script.Pop();
  }
  revision_ = script.revision();
}

void ShadowServer::LearnBytes(SparseMemory& memory, uint64_t offset, const Bytes& bytes) {
  if (bytes.all_zero)
    memory.Zero(offset, bytes.size);
  else
    memory.Write(offset, bytes.data);
}

void ShadowServer::Learn(const Call& call) {
  last_call_ = call.number;
  const wire::RequestHeader& r = call.request;
  const wire::CommandInfo* info = wire::FindCommand(r.command);
  if (!info || (info->reply && (!call.answered || call.reply.status != 0))) return;
  const Place place{r.dev, r.bar};
  switch (info->command) {
    case Command::kMapBar:
      if (auto* slot = Slot(mapped_, place)) *slot = call.reply;
      break;
    case Command::kMmioRead:
    case Command::kMmioWrite:
      if (SparseMemory* memory = Slot(bars_, place))
        LearnBytes(*memory, r.arg0, info->payload ? call.payload : call.body);
      break;
    case Command::kSysmemRead:
    case Command::kSysmemWrite:
      if (SparseMemory* memory = Slot(sysmem_, place))
        LearnBytes(*memory, r.arg0, info->payload ? call.payload : call.body);
      break;
    case Command::kCfgRead:
    case Command::kCfgWrite: {
      if (r.arg1 != 1 && r.arg1 != 2 && r.arg1 != 4) break;
      const uint64_t value = info->command == Command::kCfgRead ? call.reply.resp0 : r.arg2;
      uint8_t bytes[8];
      StoreLe(bytes, value);
      if (SparseMemory* memory = Slot(config_, r.dev))
        memory->Write(r.arg0, std::span(bytes).first(static_cast<size_t>(r.arg1)));
      break;
    }
    case Command::kMapSysmemFd:
      if (call.reply.resp1 < kMaxPlaces) {
        const size_t index = static_cast<size_t>(call.reply.resp1);
        if (index >= regions_.size()) regions_.resize(index + 1);
        regions_[index] = {call.reply.resp0, {}, {}};
      }
      break;
    case Command::kMapSysmem:
      if (sysmem_maps_.size() < kMaxPlaces && call.body.known())
        sysmem_maps_.emplace_back(call.reply, call.body.data);
      break;
    case Command::kProbe:
    case Command::kReset:
    case Command::kResizeBar:
    case Command::kPing:
      if (call.body.known())
        if (auto* slot = Slot(fixed_, RequestKey(r))) *slot = {call.reply, call.body.data};
      break;
  }
}

bool ShadowServer::Connect() {
  shared_.clear();
  next_region_ = 0;
  return true;
}

Answer ShadowServer::Error(std::string text) {
  refused_++;
  text = "rpcreplay: " + text;
  body_.assign(text.begin(), text.end());
  Answer answer;
  answer.kind = Answer::Kind::kReply;
  answer.reply = {1, body_.size(), 0};
  answer.body = body_;
  return answer;
}

Answer ShadowServer::Ok(uint64_t resp0, uint64_t resp1) {
  Answer answer;
  answer.kind = Answer::Kind::kReply;
  answer.reply = {0, resp0, resp1};
  return answer;
}

Answer ShadowServer::OnRequest(const Received& received) {
  played_++;
  std::string line = FormatRequest(received.request, received.payload);
  Answer answer = Respond(received);
  if (answer.kind == Answer::Kind::kReply)
    line += " -> " + FormatReply(received.request, answer.reply, answer.body, revision_);
  history_.Add(0, std::move(line));
  return answer;
}

Answer ShadowServer::Read(const wire::RequestHeader& r, SparseMemory& memory) {
  if (r.arg1 > wire::kAppBulkLimit) return Error("reads are limited to 64 MiB");
  if (!memory.Known(r.arg0, r.arg1))
    return Error(fmt::format("{}: not all of it was observed in the trace", FormatRequest(r, {})));
  body_.resize(static_cast<size_t>(r.arg1));
  memory.Read(r.arg0, body_);
  Answer answer = Ok(r.arg1);
  answer.body = body_;
  return answer;
}

Answer ShadowServer::Region() {
  if (next_region_ >= regions_.size() || regions_[next_region_].granted == 0)
    return Error(fmt::format("only {} regions of shared memory are recorded", regions_.size()));
  const RecordedRegion& region = regions_[next_region_];
  Result<SharedMemory> made = SharedMemory::Create(region.granted);
  if (!made) return Error(made.error().message);
  made->StoreTable(region.ranges);
  for (const Memory& contents : region.contents) made->Apply(contents, Merge::kAll);
  Answer answer = Ok(region.granted, next_region_++);
  answer.descriptor = made->fd();
  shared_.push_back(std::move(*made));
  return answer;
}

Answer ShadowServer::Respond(const Received& received) {
  const wire::RequestHeader& r = received.request;
  const wire::CommandInfo* info = wire::FindCommand(r.command);
  if (!info) return Error(fmt::format("unknown command {}", r.command));
  const Place place{r.dev, r.bar};
  switch (info->command) {
    case Command::kMapBar:
      if (const auto found = mapped_.find(place); found != mapped_.end())
        return Ok(found->second.resp0, found->second.resp1);
      return Error(fmt::format("bar{} is not mapped in the trace", r.bar));
    case Command::kMmioRead:
      return Read(r, bars_[place]);
    case Command::kSysmemRead:
      return Read(r, sysmem_[place]);
    case Command::kMmioWrite:
    case Command::kSysmemWrite: {
      SparseMemory* memory = Slot(info->bar_is_handle ? sysmem_ : bars_, place);
      if (memory) memory->Write(r.arg0, received.payload);
      return {};
    }
    case Command::kCfgRead: {
      const uint64_t size = std::min<uint64_t>(r.arg1, 4);
      if (!config_[r.dev].Known(r.arg0, size))
        return Error(fmt::format("{}: not observed in the trace", FormatRequest(r, {})));
      uint8_t bytes[8] = {};
      config_[r.dev].Read(r.arg0, std::span(bytes).first(static_cast<size_t>(size)));
      return Ok(LoadLe<uint64_t>(bytes));
    }
    case Command::kCfgWrite: {
      uint8_t bytes[8];
      StoreLe(bytes, r.arg2);
      if (SparseMemory* memory = Slot(config_, r.dev))
        memory->Write(r.arg0,
                      std::span(bytes).first(static_cast<size_t>(std::min<uint64_t>(r.arg1, 4))));
      return Ok(0);
    }
    case Command::kMapSysmemFd:
      return Region();
    case Command::kMapSysmem: {
      if (next_sysmem_ == sysmem_maps_.size())
        return Error(fmt::format("only {} regions of memory are recorded", sysmem_maps_.size()));
      const auto& [reply, addresses] = sysmem_maps_[next_sysmem_++];
      Answer answer = Ok(reply.resp0, reply.resp1);
      answer.body = addresses;
      return answer;
    }
    case Command::kProbe:
    case Command::kReset:
    case Command::kResizeBar:
    case Command::kPing:
      break;
  }
  if (const auto found = fixed_.find(RequestKey(r)); found != fixed_.end()) {
    Answer answer = Ok(found->second.first.resp0, found->second.first.resp1);
    answer.body = found->second.second;
    return answer;
  }
  if (info->command == Command::kProbe || info->command == Command::kReset)
    return Error(fmt::format("{} does not occur in the trace", info->name));
  return Ok(0);
}

}  // namespace tg::replay
