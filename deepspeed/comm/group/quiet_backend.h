// Keeps c10d's messages out of standard error when this library reports the failure itself. Internal to this
// folder.
#pragma once

namespace deepspeed::comm {

/// Silences c10d's warnings, errors and stack traces in all threads while an instance exists. It surrounds
/// calls that may fail, for example because the rank that serves a store is gone, and whose failure becomes
/// an error of this library. Messages are still written at the log level debug, or if TORCH_CPP_LOG_LEVEL is
/// set.
class QuietBackend {
 public:
  QuietBackend();
  ~QuietBackend();
  QuietBackend(const QuietBackend&) = delete;
  QuietBackend& operator=(const QuietBackend&) = delete;
};

}  // namespace deepspeed::comm
