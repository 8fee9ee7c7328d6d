// Steps slices where their masters are: on the model's device or in host memory. Meanwhile, gradients and
// weights come from the device and new weights go back.
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
  /// `store`, `optimizer` and `slices` must outlive this object.
  SliceStepper(ParamStore& store, optim::Optimizer& optimizer, SliceSet& slices,
               const OptimizerOffload& offload);

  /// Lets the optimizer's steps average values over ranks by `ranks`, which must outlive this object.
  void reach_ranks_by(const optim::RankMean& ranks) { ranks_ = &ranks; }
  /// Updates the slices `indices` once by the reducer's gradients times `gradient_scale`. Writes the model's
  /// weights. Throws IoError if the disk fails; some slices are then updated and others are not.
  void step(const std::vector<size_t>& indices, const GradReducer& reducer,
            const GradientScale& gradient_scale);

  /// Makes `updated`, (n) in host memory, the slice's weights in the model. The caller must not change
  /// `updated` before finish_publishing().
  void publish(const Slice& slice, at::Tensor updated);
  /// Makes later work of the device wait for everything that was published.
  void finish_publishing() { transfers_.finish(); }

 private:
  void expect_transfers(const GradReducer& reducer, const std::vector<size_t>& order);
  at::Tensor gradient_of(const Slice& slice, const GradReducer& reducer);
  at::Tensor memory_for_weights(const Slice& slice, const SliceWeights& weights);
  /// Copies a step's new weights into the model. updated: the result of memory_for_weights().
  void pass_on_weights(const Slice& slice, const SliceWeights& weights, const at::Tensor& updated);
  void step_slice(Slice& slice, const GradReducer& reducer, const GradientScale& gradient_scale);

  ParamStore& store_;
  optim::Optimizer& optimizer_;
  SliceSet& slices_;
  HostTransfers transfers_;
  const optim::RankMean* ranks_ = nullptr;
};

}  // namespace deepspeed::zero
