#include "tests/fuzz/packet_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tg;
  fuzz::Input input(data, size);
  amd::PacketFormat format{.format = amd::RingFormat::kSdma};
  format.sdma = static_cast<amd::SdmaGen>(input.Take<uint8_t>() % 4);
  fuzz::WalkAnything(input.Rest(), format);
  return 0;
}
