// The report is one JSON document with keys in a fixed order: `--format json` prints it, the text
// report is rendered from it, so both have the same content. A section of the report is a pair of
// functions, one that makes its part of the document from a model, one that renders that part:
//
//   Json BarsJson(const ...& model);
//   void BarsText(const Json& bars, Output& out);
//
// What was not observed is null. Strings may hold any bytes (they come from traces): render them
// through model::Printable().
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tg::report {

using Json = nlohmann::ordered_json;

// One line, or indented; broken UTF-8 becomes U+FFFD.
std::string Dump(const Json& json, bool pretty);

}  // namespace tg::report
