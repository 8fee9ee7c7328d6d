// The reentrant way of recomputation, DeepSpeed's CheckpointFunction: a node of autograd that runs a forward
// without gradients, and in backward runs it again with them and a backward of its own.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/activation/recompute/region.h"

namespace deepspeed::activation {

/// A region whose outputs are those of one node of autograd, which has no place for undefined ones.
class ReentrantRegion : public Region {
 public:
  using Region::Region;
  /// Runs the function. Returns its defined outputs.
  TensorList run_on(const TensorList& inputs);
  /// Puts undefined tensors where the function returned them.
  TensorList with_undefined(TensorList defined) const;

 private:
  std::vector<bool> is_defined_;
};

/// Takes a region and its inputs; returns the defined outputs of its function.
struct ReentrantNode : torch::autograd::Function<ReentrantNode> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                std::shared_ptr<ReentrantRegion> region,
                                                at::TensorList inputs);
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients);
};

/// Runs the function through a ReentrantNode; see RegionOptions::use_reentrant.
TensorList run_reentrant(TensorFunction function, const TensorList& inputs, RegionOptions options);

}  // namespace deepspeed::activation
