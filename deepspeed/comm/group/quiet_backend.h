// This class keeps c10d's own words out of standard error where this library tells the failure itself.
// Internal to this folder.
#pragma once

namespace deepspeed::comm {

/// Silences c10d while one lives, in any thread: its warnings and errors with their stack traces are not
/// written, for calls that are made although they may fail, e.g. of a store whose rank may be gone, and whose
/// failure ends in an error of this library. They are still written at the log level debug, and where
/// TORCH_CPP_LOG_LEVEL is set.
class QuietBackend {
 public:
  QuietBackend();
  ~QuietBackend();
  QuietBackend(const QuietBackend&) = delete;
  QuietBackend& operator=(const QuietBackend&) = delete;
};

}  // namespace deepspeed::comm
