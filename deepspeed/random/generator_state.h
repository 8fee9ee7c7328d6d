// Saves and restores the random state that a forward depends on, for code that runs again.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Holds the states of the default CPU and CUDA generators and of the tracker (cuda_rng_tracker.h).
struct DEEPSPEED_API GeneratorStates {
  /// Reads the current states.
  static GeneratorStates now();
  /// Sets the generators and the tracker to these states.
  void set() const;
  /// Compares the default generators, not the tracker's streams.
  bool operator==(const GeneratorStates& other) const;

  at::Tensor cpu;
  at::Tensor cuda;  // undefined without a CUDA device
  std::map<std::string, at::Tensor> tracker;
};

/// Restores the generators' states at the end of the scope, even after an error.
class DEEPSPEED_API PreserveGenerators {
 public:
  PreserveGenerators() : before_(GeneratorStates::now()) {}
  /// Sets other states for the scope.
  explicit PreserveGenerators(const GeneratorStates& inside);
  ~PreserveGenerators();
  PreserveGenerators(const PreserveGenerators&) = delete;
  PreserveGenerators& operator=(const PreserveGenerators&) = delete;

 private:
  GeneratorStates before_;
};

}  // namespace deepspeed
