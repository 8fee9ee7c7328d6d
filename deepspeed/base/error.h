// The errors that the library throws. Every message reads `[folder.file] what, got, expected`, so that a
// single log line says which part complained and what it saw. Misuse (UsageError, ConfigError) is separate
// from failures of the environment (IoError, CommError, CheckpointError), which a caller may want to retry or
// survive.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "deepspeed/base/export.h"
#include "deepspeed/base/message.h"

namespace deepspeed {

/// Serves as the base of all errors of the library.
class DEEPSPEED_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reports a call that the documentation forbids: wrong argument, order or state.
class DEEPSPEED_API UsageError : public Error {
 public:
  using Error::Error;
};

/// Reports a key of the JSON config that is unknown, wrong or contradicts another.
class DEEPSPEED_API ConfigError : public Error {
 public:
  using Error::Error;
};

/// Reports a requested feature that does not exist yet.
class DEEPSPEED_API NotSupportedError : public Error {
 public:
  using Error::Error;
};

/// Reports a file or device that cannot be read or written.
class DEEPSPEED_API IoError : public Error {
 public:
  using Error::Error;
};

/// Reports a checkpoint that is missing, torn, altered or does not fit.
class DEEPSPEED_API CheckpointError : public Error {
 public:
  using Error::Error;
};

/// Reports a collective or rendezvous that failed or timed out. The state of the group is unknown afterwards.
class DEEPSPEED_API CommError : public Error {
 public:
  using Error::Error;
};

/// Returns the part of the library that a source file belongs to, as `folder.file`. Examples:
/// "zero.slice_set" for deepspeed/zero/update/slice_set.cpp, "engine" for deepspeed/engine/engine.cpp.
DEEPSPEED_API std::string part_of_file(const char* path);

/// Holds the first part of a message, and the source location of the call that passes it.
struct FirstPart {
  template <class Part>
  FirstPart(const Part& part, const std::source_location& called = std::source_location::current())
      : text(message(part)), where(called) {}

  std::string text;
  std::source_location where;
};

/// Makes the text of an error that is thrown later or logged: `[folder.file] parts...`. The file is the
/// caller's.
template <class... Parts>
std::string located(const FirstPart& first, const Parts&... parts) {
  return message("[", part_of_file(first.where.file_name()), "] ", first.text, parts...);
}

/// Throws `ErrorType` with the text `[folder.file] parts...`, for the caller's file. A ConfigError reads
/// `[config] parts...` for any file. Its first part is the key, which is what a user looks for.
template <class ErrorType, class... Parts>
[[noreturn]] void raise(const FirstPart& first, const Parts&... parts) {
  if constexpr (std::is_same_v<ErrorType, ConfigError>)
    throw ConfigError(message("[config] ", first.text, parts...));
  throw ErrorType(located(first, parts...));
}

/// Throws like raise(), but names the file of `where`. It is for functions that check on behalf of a caller
/// at `where`.
template <class ErrorType, class... Parts>
[[noreturn]] void raise_at(const std::source_location& where, const Parts&... parts) {
  throw ErrorType(message("[", part_of_file(where.file_name()), "] ", parts...));
}

}  // namespace deepspeed
