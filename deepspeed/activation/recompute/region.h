// A part of a forward that backward runs again, with everything needed to repeat it.
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
#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/random/generator_state.h"

namespace deepspeed::activation {

/// Holds a function and the state in which its forward began (random numbers, autocast).
struct Region {
  /// Records the state in which the region begins.
  Region(TensorFunction function, const TensorList& inputs, RegionOptions options);

  /// Returns the saved inputs as leaves, which need gradients if the forward's inputs did. A reentrant
  /// recomputation runs on them.
  TensorList leaves_of(const TensorList& saved) const;
  /// Returns the saved inputs for a recomputation that is not reentrant. A leaf replaces each input that was
  /// a result of operators; all other inputs are unchanged.
  TensorList inputs_of(const TensorList& saved) const;
  /// Returns the leaves among `inputs` with which inputs_of() has replaced results of operators.
  TensorList stand_ins(const TensorList& inputs) const;

  /// Calls `work`, which runs the function again. With RegionOptions::names_errors, errors of `work` name the
  /// region.
  void repeat(const std::function<void()>& work) const;

  TensorFunction function;
  RegionOptions options;
  std::shared_ptr<const Configuration> configuration;
  std::vector<bool> needs_grad;
  std::vector<bool> is_result;  // needs a gradient and is not a leaf
  GeneratorStates generators;
  AutocastState autocast;
  Meters meters;
};

/// Restores the state in which the region began, with gradients on, while it exists.
class RepeatRegion {
 public:
  explicit RepeatRegion(const Region& region);

 private:
  PreserveGenerators generators_;
  RepeatAutocast autocast_;
  at::AutoGradMode gradients_;
  MeterScope meter_;
};

/// Waits for the device at both ends if CheckpointOptions::synchronize or profile is set. `profile` also logs
/// the time.
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

/// Serves as base of the hooks of a region that recomputes. Such hooks keep no value, or only the one that
/// backward needs now.
struct RegionHooks : autograd::SavedTensorHooks {
  bool takes_leaf(const at::TensorImpl*) override { return false; }
};

/// Calls `apply`, which saves the region's inputs through autograd, with hooks that keep them. Inside an
/// outer region, the hooks of that region take the inputs. Hooks of any other kind also take them, unless the
/// configuration partitions inputs or moves them to the host.
void save_inputs_through(const Region& region, const std::function<void()>& apply);

}  // namespace deepspeed::activation
