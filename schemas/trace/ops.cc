#include "schemas/trace/ops.h"

#include <array>

namespace tg::trace {
namespace {

constexpr uint32_t kBars = 6;

struct Row {
  uint32_t first;  // op of BAR 0; the other BARs follow
  wire::Command command;
  uint8_t size;
  bool sysmem;
  bool read;
};
constexpr std::array<Row, 8> kRows = {{
    {1, wire::Command::kMmioRead, 4, false, true},
    {7, wire::Command::kMmioWrite, 4, false, false},
    {13, wire::Command::kMmioRead, 8, false, true},
    {19, wire::Command::kMmioWrite, 8, false, false},
    {25, wire::Command::kSysmemRead, 4, true, true},
    {26, wire::Command::kSysmemWrite, 4, true, false},
    {27, wire::Command::kSysmemRead, 8, true, true},
    {28, wire::Command::kSysmemWrite, 8, true, false},
}};

constexpr std::array<OpShape, kOpCount> MakeShapes() {
  std::array<OpShape, kOpCount> shapes{};
  for (const Row& row : kRows) {
    for (uint32_t bar = 0; bar < (row.sysmem ? 1 : kBars); bar++)
      shapes[row.first + bar] = {row.command, row.size, static_cast<uint8_t>(bar), row.sysmem,
                                 row.read};
  }
  return shapes;
}
constexpr std::array<OpShape, kOpCount> kShapes = MakeShapes();

}  // namespace

const OpShape* FindOp(uint64_t op) {
  return op > 0 && op < kOpCount ? &kShapes[op] : nullptr;
}

uint32_t OpFor(const wire::RequestHeader& h) {
  if (h.dev != 0 || h.arg2 != 0 || (h.arg1 != 4 && h.arg1 != 8)) return 0;
  const bool wide = h.arg1 == 8;
  switch (static_cast<wire::Command>(h.command)) {
    case wire::Command::kMmioRead:
      return h.bar < kBars ? (wide ? 13 : 1) + h.bar : 0;
    case wire::Command::kMmioWrite:
      return h.bar < kBars ? (wide ? 19 : 7) + h.bar : 0;
    case wire::Command::kSysmemRead:
      return wide ? 27 : 25;
    case wire::Command::kSysmemWrite:
      return wide ? 28 : 26;
    default:
      return 0;
  }
}

}  // namespace tg::trace
