// Runs a backward in two halves, for any module: the gradients of inputs now, those of parameters later. The
// previous stage of a pipeline only waits for the first half (Qi et al., "Zero Bubble Pipeline Parallelism",
// 2023: B and W).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::autograd {

/// Holds the second half of one or several backwards. It keeps the inputs and output gradients of all matrix
/// products and convolutions. These are nearly all activations of the forwards.
class DEEPSPEED_API WeightBackward {
 public:
  WeightBackward();
  ~WeightBackward();
  WeightBackward(WeightBackward&&) noexcept;
  WeightBackward& operator=(WeightBackward&&) noexcept;

  /// Accumulates the gradients of all parameters and calls their hooks, once per parameter. Afterwards
  /// nothing is left: a second run does nothing, even if the first one threw.
  void run();
  /// Returns whether there is nothing to run.
  bool empty() const;
  /// Returns how many nodes still have weight gradients to compute.
  size_t num_halves() const;

  class Parts;

 private:
  friend std::vector<at::Tensor> backward_inputs(const std::vector<at::Tensor>& outputs,
                                                 const std::vector<at::Tensor>& output_grads,
                                                 const std::vector<at::Tensor>& inputs,
                                                 WeightBackward& later);
  std::unique_ptr<Parts> parts_;
};

/// Runs the half of a backward that computes gradients of `inputs`. Adds the rest to `later`. Returns one
/// gradient per input, undefined for those that need none or that no output depends on.
///
/// output_grads: one per output, of its sizes. Nothing flows from an output whose gradient is undefined, or
/// that needs no gradient. inputs: leaves, made by `detach().requires_grad_()`. All outputs of a forward must
/// be given at once, since the graph is used up. Drop the outputs afterwards to free what `later` does not
/// need. The results equal those of an ordinary backward bit for bit, with one exception: if operators of
/// different kinds share a weight, its gradients are summed in another order. A hook on a tensor runs once. A
/// hook on a node of splitting_nodes() sees no weight gradient. Throws UsageError if the lists do not match
/// or an input is not a leaf. If an operator throws, nothing is added to `later`.
DEEPSPEED_API std::vector<at::Tensor> backward_inputs(const std::vector<at::Tensor>& outputs,
                                                      const std::vector<at::Tensor>& output_grads,
                                                      const std::vector<at::Tensor>& inputs,
                                                      WeightBackward& later);

/// Returns the second half that this thread's running backward adds to. It is null in an ordinary backward. A
/// node that runs a backward of its own, such as a recomputed region, adds its second half there.
WeightBackward* current_weight_backward();

/// Lists the nodes that may run twice, for gradients of inputs and then of weights. They are matrix products
/// and convolutions, under torch's names. A test fails if torch renames one.
const std::unordered_set<std::string>& splitting_nodes();

}  // namespace deepspeed::autograd
