// Models as the trace shows them after some record.
#pragma once

#include <cstdint>

#include "decoder/model/device.h"
#include "schemas/trace/reader.h"

namespace tg::report {

// Feeds what happened up to and with call `at`, its answer included although that may stand behind
// posted writes that came later. Reads the trace to its end, so that the reader knows how it ends.
template <typename Feed>
void FeedUpTo(trace::TraceReader& reader, uint64_t at, const Feed& feed) {
  trace::Record record;
  while (reader.Next(record)) {
    if (record.call <= at) feed(record);
  }
}
inline void FeedUpTo(trace::TraceReader& reader, model::Device& device, uint64_t at = UINT64_MAX) {
  FeedUpTo(reader, at, [&](const trace::Record& record) { device.Feed(record); });
}

}  // namespace tg::report
