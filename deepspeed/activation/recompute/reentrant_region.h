// Reentrant recomputation, DeepSpeed's CheckpointFunction. An autograd node runs the forward without
// gradients. In backward it runs the forward again with gradients, and then a backward of its own.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/activation/recompute/region.h"

namespace deepspeed::activation {

/// Runs a region whose outputs come from one autograd node, which cannot return undefined tensors.
class ReentrantRegion : public Region {
 public:
  using Region::Region;
  /// Runs the function. Returns its defined outputs.
  TensorList run_on(const TensorList& inputs);
  /// Inserts undefined tensors at the positions where the function returned them.
  TensorList with_undefined(TensorList defined) const;

 private:
  std::vector<bool> is_defined_;
};

/// Runs a region as one autograd node. forward() returns the defined outputs of the region's function.
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
