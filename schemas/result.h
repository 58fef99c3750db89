// Result<T>: what functions at module borders return instead of throwing.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace tg {

// An error a person can act on: what went wrong, where, and what to do about it.
struct Error {
  enum class Code {
    kUsage,        // the caller asked for something impossible
    kNotFound,     // file, socket or process is not there
    kIo,           // the operating system refused; `message` carries its reason
    kNoSpace,      // the disk, a quota or a file size limit is full
    kBadInput,     // bytes that are not what they should be
    kUnsupported,  // understood, but not possible on this system
  };
  Code code = Code::kIo;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> Fail(Error::Code code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace tg
