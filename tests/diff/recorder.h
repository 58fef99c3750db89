// A synthetic session (tests/explain/scene.h) as a trace file.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "schemas/trace/writer.h"
#include "tests/decoder/wire_trace.h"
#include "tests/explain/scene.h"

namespace tg::diff::testing {

class Recorder : public explain::Scene {
 public:
  explicit Recorder(const std::string& name) : path_(tg::testing::TempFile(name)) {
    auto sink = trace::OpenFileSink(path_, true);
    if (!sink) throw std::runtime_error(sink.error().message);
    trace::WriterOptions options;
    auto writer = trace::TraceWriter::Create(std::move(*sink), options, tinygpu::trace::Header());
    if (!writer) throw std::runtime_error(writer.error().message);
    writer_ = std::move(*writer);
  }

  void Emit(const trace::Record& record) override {
    Scene::Emit(record);
    switch (record.kind) {
      case trace::Record::Kind::kRequest: {
        trace::RequestRecord out;
        out.header = record.request.header;
        out.payload = {record.request.payload.size, record.request.payload.data, std::nullopt,
                       record.request.payload.all_zero, false};
        writer_->Request(out, record.time_ns);
        return;
      }
      case trace::Record::Kind::kReply: {
        trace::ReplyRecord out;
        out.call = record.call;
        out.reply = record.reply.reply;
        out.body.size = record.reply.body.size;
        out.body.data = record.reply.body.data;
        writer_->Reply(out, record.time_ns);
        return;
      }
      default:
        if (record.packet->has_end()) return;
        tinygpu::trace::Packet packet = *record.packet;
        writer_->Append(packet, record.time_ns);
    }
  }

  // Closed by the client, as a run that ended by itself.
  std::string Done() {
    Closed();
    tinygpu::trace::End end;
    end.set_reason("client closed");
    if (!writer_->Close(end, now_ns)) throw std::runtime_error("cannot close the trace");
    return path_;
  }
  // As after a kill -9 of the proxy.
  std::string Killed() {
    writer_.reset();
    return path_;
  }

 private:
  std::string path_;
  std::unique_ptr<trace::TraceWriter> writer_;
};

}  // namespace tg::diff::testing
