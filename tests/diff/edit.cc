#include "tests/diff/edit.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

#include "schemas/trace/writer.h"
#include "tests/decoder/wire_trace.h"
#include "tests/zoo/zoo_file.h"

namespace tg::diff::testing {
namespace {

using trace::Record;

Body BodyOf(const trace::BodyView& view) {
  return {view.size, {view.data.begin(), view.data.end()}, view.xxh3, view.all_zero, view.streamed};
}

trace::BodyRecord RecordOf(const Body& body) {
  return {body.size, body.data, body.xxh3, body.all_zero, body.streamed};
}

Step RequestStep(const trace::RequestView& view, uint64_t call, uint64_t time_ns) {
  Step step;
  step.kind = Step::Kind::kRequest;
  step.call = call;
  step.time_ns = time_ns;
  step.header = view.header;
  step.body = BodyOf(view.payload);
  step.truncated = view.truncated;
  step.received = view.received;
  return step;
}

Step ReplyStep(const trace::ReplyView& view, const wire::RequestHeader& header, uint64_t call,
               uint64_t time_ns) {
  Step step;
  step.kind = Step::Kind::kReply;
  step.call = call;
  step.time_ns = time_ns;
  step.header = header;
  step.reply = view.reply;
  step.descriptors = view.descriptors;
  step.body = BodyOf(view.body);
  return step;
}

}  // namespace

uint64_t Step::value() const {
  uint64_t value = 0;
  if (!body.data.empty())
    std::memcpy(&value, body.data.data(), std::min<size_t>(8, body.data.size()));
  return value;
}

void Step::set_value(uint64_t value) {
  body.all_zero = false;
  body.data.resize(std::min<uint64_t>(8, body.size));
  std::memcpy(body.data.data(), &value, body.data.size());
}

Trace Trace::Read(trace::TraceReader& reader) {
  Trace trace;
  Record record;
  std::map<uint64_t, wire::RequestHeader> open;
  while (reader.Next(record)) {
    switch (record.kind) {
      case Record::Kind::kRequest:
        open[record.call] = record.request.header;
        trace.steps.push_back(RequestStep(record.request, record.call, record.time_ns));
        break;
      case Record::Kind::kReply:
        trace.steps.push_back(
            ReplyStep(record.reply, open[record.call], record.call, record.time_ns));
        open.erase(record.call);
        break;
      case Record::Kind::kRepeat: {
        const uint64_t span = record.last_time_ns - record.time_ns;
        uint64_t answers = record.answered;
        for (uint64_t i = 0; i < record.issued; i++) {
          const trace::RepeatedCall& call = record.pattern[i % record.pattern.size()];
          const uint64_t time = record.time_ns + span * i / record.issued;
          trace.steps.push_back(RequestStep(call.request, record.call + i, time));
          open[record.call + i] = call.request.header;
          if (i >= 8) open.erase(record.call + i - 8);
          if (call.reply && answers > 0) {
            answers--;
            trace.steps.push_back(
                ReplyStep(*call.reply, call.request.header, record.call + i, time + 1));
          }
        }
        break;
      }
      case Record::Kind::kPacket: {
        if (record.packet->has_header() || record.packet->has_marker()) break;
        Step step;
        step.call = record.call;
        step.time_ns = record.time_ns;
        step.packet = *record.packet;
        trace.steps.push_back(std::move(step));
        break;
      }
    }
  }
  if (reader.header()) trace.header = *reader.header();
  return trace;
}

Trace Trace::FromZoo(const std::string& name) {
  auto bytes = zoo::LoadTrace(ZOO_TRACES, name);
  if (!bytes) throw std::runtime_error(bytes.error().message);
  auto reader = trace::TraceReader::FromBytes(std::move(*bytes));
  if (!reader) throw std::runtime_error(reader.error().message);
  return Read(**reader);
}

std::string Trace::Write(const std::string& name, bool closed, bool fold) const {
  const std::string path = tg::testing::TempFile(name);
  auto sink = trace::OpenFileSink(path, true);
  EXPECT_TRUE(sink.has_value());
  trace::WriterOptions options;
  options.fold = fold;
  auto writer = trace::TraceWriter::Create(std::move(*sink), options, header);
  EXPECT_TRUE(writer.has_value());
  std::map<uint64_t, uint64_t> now_called;  // call as it was -> as it is
  uint64_t newest = 0, time = 0;
  tinygpu::trace::End end;
  end.set_reason("client closed");
  for (const Step& step : steps) {
    time = std::max(time, step.time_ns);
    switch (step.kind) {
      case Step::Kind::kRequest: {
        trace::RequestRecord record;
        record.header = step.header;
        record.payload = RecordOf(step.body);
        record.truncated = step.truncated;
        record.received = step.received;
        newest = (*writer)->Request(record, time);
        if (step.call) now_called[step.call] = newest;
        break;
      }
      case Step::Kind::kReply: {
        trace::ReplyRecord record;
        record.call = step.call ? now_called[step.call] : newest;
        record.reply = step.reply;
        record.body = RecordOf(step.body);
        record.descriptors = step.descriptors;
        (*writer)->Reply(record, time);
        now_called.erase(step.call);
        break;
      }
      case Step::Kind::kPacket:
        if (step.packet.has_end()) {
          end = step.packet.end();
        } else {
          tinygpu::trace::Packet packet = step.packet;
          (*writer)->Append(packet, time);
        }
        break;
    }
  }
  if (closed) {
    EXPECT_TRUE((*writer)->Close(end, time).has_value());
  }
  return path;
}

void Trace::InsertWrite(size_t at, uint32_t bar, uint64_t offset, uint64_t value, uint64_t size) {
  Step step;
  step.kind = Step::Kind::kRequest;
  step.time_ns = at < steps.size() ? steps[at].time_ns : steps.back().time_ns;
  step.header = {static_cast<uint8_t>(wire::Command::kMmioWrite), 0, bar, offset, size, 0};
  step.body.size = size;
  step.set_value(value);
  steps.insert(steps.begin() + static_cast<ptrdiff_t>(at), std::move(step));
}

Step* Trace::AnswerOf(size_t at) {
  for (size_t i = at + 1; i < std::min(steps.size(), at + 64); i++)
    if (steps[i].kind == Step::Kind::kReply && steps[i].call == steps[at].call) return &steps[i];
  return nullptr;
}

void Trace::Drop(size_t at) {
  if (const Step* answer = AnswerOf(at)) steps.erase(steps.begin() + (answer - steps.data()));
  steps.erase(steps.begin() + static_cast<ptrdiff_t>(at));
}

}  // namespace tg::diff::testing
