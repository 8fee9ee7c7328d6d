// The random state on which a forward depends: saved, and put back for a part of the program that runs again.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Returns the state of the default generator of the device that computes: the current CUDA device's, the
/// CPU's where the process uses none. A byte tensor on the CPU.
DEEPSPEED_API at::Tensor accelerator_rng_state();
/// Sets that state. Throws UsageError where `state` is none.
DEEPSPEED_API void set_accelerator_rng_state(const at::Tensor& state);

/// Holds the states of the CPU's default generator, of the current CUDA device's and of the tracker
/// (cuda_rng_tracker.h).
struct DEEPSPEED_API GeneratorStates {
  /// Reads the states as they are now.
  static GeneratorStates now();
  /// Makes these the current ones.
  void set() const;
  /// Compares the default generators, not the tracker's.
  bool operator==(const GeneratorStates& other) const;

  at::Tensor cpu;
  at::Tensor cuda;  // undefined without a CUDA device
  std::map<std::string, at::Tensor> tracker;
};

/// Puts the generators' states back at the end of the scope, also where it ends by an error.
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
