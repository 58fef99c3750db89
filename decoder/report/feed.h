// A device model as the trace shows it after some record.
#pragma once

#include <cstdint>

#include "decoder/model/device.h"
#include "schemas/trace/reader.h"

namespace tg::report {

// Feeds what happened up to and with call `at`, its answer included although that may stand behind
// posted writes that came later. Reads the trace to its end, so that the reader knows how it ends.
inline void FeedUpTo(trace::TraceReader& reader, model::Device& device, uint64_t at = UINT64_MAX) {
  trace::Record record;
  while (reader.Next(record)) {
    if (record.call <= at) device.Feed(record);
  }
}

}  // namespace tg::report
