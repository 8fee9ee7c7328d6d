// Runs a backward in two halves, for any module: the gradients of the inputs at once, those of the parameters
// later. A pipeline's earlier stage waits for the first half alone (Qi et al., "Zero Bubble Pipeline
// Parallelism", 2023: B and W).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::autograd {

/// Holds the second half of one or several backwards. It keeps the inputs and the gradients of the outputs of
/// all products of matrices and convolutions, so nearly all of the activations of what it belongs to.
class DEEPSPEED_API WeightBackward {
 public:
  WeightBackward();
  ~WeightBackward();
  WeightBackward(WeightBackward&&) noexcept;
  WeightBackward& operator=(WeightBackward&&) noexcept;

  /// Accumulates the gradients of all parameters, and calls their hooks, once a parameter. Nothing is left
  /// afterwards: a second run does nothing, also where the first one threw.
  void run();
  /// Says whether there is nothing to run.
  bool empty() const;
  /// Counts the nodes whose gradients of the weights are still to be computed.
  size_t num_halves() const;

  class Parts;

 private:
  friend std::vector<at::Tensor> backward_inputs(const std::vector<at::Tensor>& outputs,
                                                 const std::vector<at::Tensor>& output_grads,
                                                 const std::vector<at::Tensor>& inputs,
                                                 WeightBackward& later);
  std::unique_ptr<Parts> parts_;
};

/// Runs the half of a backward from `outputs` that computes the gradients of `inputs`, and adds the rest to
/// `later`. Returns a gradient an input, undefined for those that need none or that no output depends on.
///
/// output_grads: one an output, of its sizes; nothing flows from an output whose gradient is undefined or
/// that needs none. inputs: leaves, `detach().requires_grad_()` makes one. All outputs of a forward must be
/// given at once, since the graph is used up; drop them afterwards to free what `later` does not need. The
/// results are those of an ordinary backward bit for bit, but where a weight is shared by operators of
/// different kinds, whose gradients are then summed in another order. A hook on a tensor runs once; a hook on
/// a node that splits sees no gradient of the weight. Throws UsageError where the lists do not fit, or an
/// input is no leaf. Where an operator throws, nothing is added to `later`.
DEEPSPEED_API std::vector<at::Tensor> backward_inputs(const std::vector<at::Tensor>& outputs,
                                                      const std::vector<at::Tensor>& output_grads,
                                                      const std::vector<at::Tensor>& inputs,
                                                      WeightBackward& later);

/// Returns where the backward that runs in this thread puts its second half, for a node that runs a backward
/// of its own inside of it; null where the backward is an ordinary one.
WeightBackward* current_weight_backward();

/// Lists the nodes that may run twice, each time for other gradients: products of matrices and convolutions,
/// as torch names them. A test fails when torch renames one.
const std::unordered_set<std::string>& splitting_nodes();

}  // namespace deepspeed::autograd
