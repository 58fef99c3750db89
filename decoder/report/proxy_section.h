// What the proxy itself did to the traffic, because options told it to.
//
//   proxy {guarded, injected, autopsy, entries[{kind, first_seq, last_seq, t_ns, count, command,
//          target, text, detail, answered}]}
// kind: guard (kept from the server), inject (a fault on demand), autopsy (read by the proxy).
// `detail` says what the server had answered, or what the autopsy read; null: nothing.
#pragma once

#include "decoder/model/interventions.h"
#include "decoder/report/json.h"
#include "decoder/report/output.h"

namespace tg::report {

Json ProxyJson(const model::Interventions& interventions);
// Nothing when it did nothing.
void ProxyText(const Json& proxy, Output& out);

}  // namespace tg::report
