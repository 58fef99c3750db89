#include "decoder/report/output.h"

namespace tg::report {
namespace {

constexpr size_t kFlushAt = 64 * 1024;

std::string_view Code(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kGood:
      return "\033[32m";
    case Style::kBad:
      return "\033[1;31m";
    case Style::kWarn:
      return "\033[33m";
  }
  return "";
}

}  // namespace

void Output::Write(std::string_view text) {
  if (text.empty()) return;
  any_ = true;
  buffer_ += text;
  if (file_ && buffer_.size() >= kFlushAt) Flush();
}

void Output::Heading(std::string_view title) {
  if (any_) Write("\n");
  Line(Paint(Style::kBold, title));
}

std::string Output::Paint(Style style, std::string_view text) const {
  if (!colour_ || style == Style::kPlain) return std::string(text);
  std::string out(Code(style));
  out += text;
  out += "\033[0m";
  return out;
}

void Output::Flush() {
  if (!file_ || buffer_.empty()) return;
  if (!failed_ && (std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size() ||
                   std::fflush(file_) != 0))
    failed_ = true;
  buffer_.clear();
}

}  // namespace tg::report
