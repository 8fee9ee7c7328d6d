// Trackers keep what a program logs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::accelerate {

/// Is the base of trackers. A program may derive its own.
class DEEPSPEED_API GeneralTracker {
 public:
  virtual ~GeneralTracker() = default;
  /// Keeps the run's configuration.
  virtual void store_init_configuration(const Json& /*values*/) {}
  virtual void log(const std::map<std::string, double>& values, std::optional<int64_t> step) = 0;
  /// Ends the run.
  virtual void finish() {}
};

/// Makes a tracker by name: "csv" writes one file a value into `logging_dir/project_name`. Throws
/// NotSupportedError for another of Accelerate's names, with the way out, and UsageError for an unknown one.
DEEPSPEED_API std::shared_ptr<GeneralTracker> make_tracker(const std::string& name,
                                                           const std::string& project_name,
                                                           const std::string& logging_dir);

}  // namespace deepspeed::accelerate
