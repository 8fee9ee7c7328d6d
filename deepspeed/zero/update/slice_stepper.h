// Steps slices where their masters are: on the model's device, or in host memory, with what the step needs of
// the device coming in and new weights going back meanwhile.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/offload/host_transfers.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/update/gradient_scale.h"
#include "deepspeed/zero/update/slice_set.h"
#include "deepspeed/zero/update/step_options.h"

namespace deepspeed::zero {

class SliceStepper {
 public:
  /// `store`, `optimizer` and `slices` must outlive it.
  SliceStepper(ParamStore& store, optim::Optimizer& optimizer, SliceSet& slices,
               const OptimizerOffload& offload);

  /// Gives the optimizer's steps means over the ranks, which must outlive it.
  void reach_ranks_by(const optim::RankMean& ranks) { ranks_ = &ranks; }
  /// One update of these slices by the reducer's gradients, which are multiplied by `gradient_scale` first;
  /// writes the weights of the model. Throws IoError where the disk fails: then some slices are updated and
  /// others are not.
  void step(const std::vector<size_t>& indices, const GradReducer& reducer,
            const GradientScale& gradient_scale);

  /// Makes `updated` the slice's weights in the model: (n) in host memory, which stays as it is until
  /// finish_publishing().
  void publish(const Slice& slice, at::Tensor updated);
  /// What the device is given from here on comes after all that was published.
  void finish_publishing() { transfers_.finish(); }

 private:
  void expect_transfers(const GradReducer& reducer, const std::vector<size_t>& order);
  at::Tensor gradient_of(const Slice& slice, const GradReducer& reducer);
  at::Tensor memory_for_weights(const Slice& slice, const SliceWeights& weights);
  /// Brings a step's new weights to where the model's are. updated: what memory_for_weights() gave.
  void pass_on_weights(const Slice& slice, const SliceWeights& weights, const at::Tensor& updated);
  void step_slice(Slice& slice, const GradReducer& reducer, const GradientScale& gradient_scale);

  ParamStore& store_;
  optim::Optimizer& optimizer_;
  SliceSet& slices_;
  HostTransfers transfers_;
  const optim::RankMean* ranks_ = nullptr;
};

}  // namespace deepspeed::zero
