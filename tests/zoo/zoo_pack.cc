// zoo_pack pack TRACE.pb FOLDER/NAME.zst     stores a trace as the zoo commits it
// zoo_pack unpack FOLDER/NAME.zst TRACE.pb   gives it back, for rpcdecode
// FOLDER has to hold boot.zst, against which the others are compressed, or the BASE that is named
// as a fourth argument.
#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/zoo/zoo_file.h"

namespace {

tg::Result<void> Main(const std::string& verb, const std::string& from, const std::string& to,
                      const std::string& base) {
  const std::filesystem::path packed = verb == "pack" ? to : from;
  const std::string folder = packed.has_parent_path() ? packed.parent_path().string() : ".";
  const std::string name = packed.stem().string();
  if (verb == "unpack") {
    const auto trace = tg::zoo::LoadTrace(folder, name, base);
    if (!trace) return tl::unexpected<tg::Error>(trace.error());
    return tg::zoo::WriteFile(to, *trace);
  }
  if (verb != "pack") return tg::Fail(tg::Error::Code::kUsage, "pack or unpack, not " + verb);
  const auto trace = tg::zoo::ReadFile(from);
  if (!trace) return tl::unexpected<tg::Error>(trace.error());
  return tg::zoo::StoreTrace(folder, name, *trace, base);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "zoo_pack pack TRACE.pb NAME.zst | unpack NAME.zst TRACE.pb, [BASE]\n");
    return 2;
  }
  const auto done = Main(argv[1], argv[2], argv[3], argc == 5 ? argv[4] : tg::zoo::kBase);
  if (!done) std::fprintf(stderr, "zoo_pack: %s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
