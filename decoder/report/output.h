// Where text goes: buffered, told when nobody reads any more, coloured only on a terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tg::report {

enum class Style : uint8_t { kPlain, kBold, kDim, kGood, kBad, kWarn };

class Output {
 public:
  // Does not own `file`; nullptr collects everything in text().
  explicit Output(std::FILE* file, bool colour = false) : file_(file), colour_(colour) {}
  ~Output() { Flush(); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void Write(std::string_view text);
  void Line(std::string_view text = {}) {
    Write(text);
    Write("\n");
  }
  // A heading with an empty line before it, unless it is the first.
  void Heading(std::string_view title);
  // `text` between colour codes, or as it is.
  std::string Paint(Style style, std::string_view text) const;
  void Flush();
  // The reader went away or the disk is full: stop producing.
  bool failed() const { return failed_; }
  bool colour() const { return colour_; }
  const std::string& text() const { return buffer_; }

 private:
  std::FILE* file_;
  bool colour_;
  bool failed_ = false;
  bool any_ = false;
  std::string buffer_;
};

}  // namespace tg::report
