// The errors that the library throws. Every message reads `[where] what, got, expected`, so that a log line
// alone says which part complained and what it saw. Misuse (UsageError, ConfigError) is apart from failures
// of the environment (IoError, CommError, CheckpointError), which a caller may want to retry or survive.
#pragma once

#include <stdexcept>
#include <string>

#include "deepspeed/base/message.h"

namespace deepspeed {

/// Base of all errors of the library.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A call that the documentation forbids: wrong argument, wrong order, wrong state.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A key of the JSON config that is unknown, has a wrong value or contradicts another one.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A feature that a config or an argument asks for and that does not exist yet.
class NotSupportedError : public Error {
 public:
  using Error::Error;
};

/// A file or device that cannot be read or written.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A checkpoint that is missing, torn, altered or does not fit.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// A collective or a rendezvous that failed or timed out. The state of the group is unknown afterwards.
class CommError : public Error {
 public:
  using Error::Error;
};

/// Throws `ErrorType` with the text `[where] parts...`.
template <class ErrorType, class... Parts>
[[noreturn]] void raise(const char* where, const Parts&... parts) {
  throw ErrorType(message("[", where, "] ", parts...));
}

}  // namespace deepspeed
