#include "tests/fuzz/packet_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tg;
  fuzz::Input input(data, size);
  amd::PacketFormat format{.format = amd::RingFormat::kPm4};
  format.pm4 = static_cast<amd::Pm4Gen>(input.Take<uint8_t>() % 3);
  fuzz::WalkAnything(input.Rest(), format);
  return 0;
}
