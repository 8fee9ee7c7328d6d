// A part of a forward that backward runs again: what it needs to run as it did.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/activation/keep/configuration.h"
#include "deepspeed/activation/recompute/autocast_state.h"
#include "deepspeed/activation/recompute/region_options.h"
#include "deepspeed/random/generator_state.h"

namespace deepspeed::activation {

/// Holds a function and the state in which its forward began.
struct Region {
  /// Reads the state in which the region begins.
  Region(TensorFunction function, const TensorList& inputs, RegionOptions options);

  /// Returns the saved inputs as leaves that need gradients as the forward's inputs did.
  TensorList leaves_of(const TensorList& saved) const;
  /// Returns the saved inputs for a function that runs again within the forward's graph: leaves stand for
  /// those that were results, and all others are themselves.
  TensorList inputs_of(const TensorList& saved) const;
  /// Returns those of inputs_of() that stand for results.
  TensorList stand_ins(const TensorList& inputs) const;

  /// Calls `work`, which runs the function again; what it throws says so, as RegionOptions::names_errors
  /// asks.
  void repeat(const std::function<void()>& work) const;

  TensorFunction function;
  RegionOptions options;
  std::shared_ptr<const Configuration> configuration;
  std::vector<bool> needs_grad;
  std::vector<bool> is_result;  // it needs a gradient and is no leaf
  GeneratorStates generators;
  AutocastState autocast;
  Meters meters;
};

/// Makes the thread's state that in which the region began, with gradients on, while it lives.
class RepeatRegion {
 public:
  explicit RepeatRegion(const Region& region);

 private:
  PreserveGenerators generators_;
  RepeatAutocast autocast_;
  at::AutoGradMode gradients_;
  MeterScope meter_;
};

/// Waits for the device at both ends and logs the time, where the configuration says so.
class RegionTimer {
 public:
  RegionTimer(const Region& region, const char* what);
  ~RegionTimer();
  RegionTimer(const RegionTimer&) = delete;
  RegionTimer& operator=(const RegionTimer&) = delete;

 private:
  const Region& region_;
  const char* what_;
  std::chrono::steady_clock::time_point start_;
};

/// Calls `apply` with hooks that keep the region's inputs as the configuration says; inside of an outer
/// region those of that one take them.
void save_inputs_through(const Region& region, const std::function<void()>& apply);

}  // namespace deepspeed::activation
