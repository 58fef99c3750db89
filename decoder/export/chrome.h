// The calls of a trace for a timeline viewer: Trace Event JSON, which Perfetto's UI and
// chrome://tracing open. One slice per call or folded run, one track per kind of call; time in
// microseconds, as that format wants it.
#pragma once

#include "decoder/report/output.h"
#include "schemas/trace/reader.h"

namespace tg::report {

// Streams: memory does not grow with the trace. `raw`: do not fold runs of equal calls.
void ExportChrome(trace::TraceReader& reader, bool raw, Output& out);

}  // namespace tg::report
