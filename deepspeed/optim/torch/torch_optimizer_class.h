// Describes a class of torch::optim to the adapter, since C++ optimizers have no generic options or state
// dictionary.
#pragma once

#include <memory>
#include <string>

#include <torch/optim/optimizer.h>

#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::optim {

/// Describes a torch optimizer class by functions for its options and states. Names are those of torch in
/// Python. All these classes update each element independently.
struct TorchOptimizerClass {
  const char* name;
  bool (*matches)(const torch::optim::Optimizer& optimizer);
  void (*read_options)(const torch::optim::OptimizerOptions& from, Hyperparameters& to);
  void (*write_options)(const Hyperparameters& from, torch::optim::OptimizerOptions& to);
  /// Returns a state's tensors, shared, and its step; 0 if the class counts no steps.
  SliceState (*read_state)(const torch::optim::OptimizerParamState& from);
  /// Makes a state that shares the tensors. Throws UsageError for a tensor that is missing or unknown to the
  /// class.
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)(const SliceState& from);
  /// Makes the state that `parameter` needs before its first step; null if torch makes it.
  std::unique_ptr<torch::optim::OptimizerParamState> (*initial_state)(
      const torch::optim::OptimizerOptions& options, const at::Tensor& parameter);
};

/// Returns the description of the optimizer's exact class; null for an unknown one.
const TorchOptimizerClass* find_torch_optimizer_class(const torch::optim::Optimizer& optimizer);

}  // namespace deepspeed::optim
