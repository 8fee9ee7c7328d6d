// Steps in which ranks exchange compressed values instead of gradients: 1-bit Adam, 1-bit Lamb and 0/1 Adam.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/compressed_means.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed::zero {

/// Holds state that each rank keeps for itself. It consists of errors of compression or quantization, and of
/// 0/1 Adam's local steps since its last exchange.
struct RankState {
  int64_t num_ranks = 0;  // number of ranks in the run; 0: unknown
  std::vector<std::pair<std::string, at::Tensor>> tensors;
};

/// Replaces gradients by exchanged momenta before a step. Used at stages 0 and 1.
class CompressedExchange {
 public:
  /// Prepares exchanges over the ranks `data`. All arguments must outlive this object.
  CompressedExchange(const ParamStore& store, optim::Optimizer& optimizer, ZeroState& state,
                     const comm::ProcessGroup& data);

  /// Returns whether gradients stay local to this rank until the next step.
  bool keeps_gradients() const { return optimizer_.next_gradient() != optim::GradientUse::kMean; }
  /// Returns the object by which the optimizer averages values over the ranks.
  const optim::RankMean& means() const { return means_; }
  /// Turns local gradients into the ranks' mean momenta, if the next step takes momenta. `reducer` then has
  /// the momenta as its gradients, made from local gradients times gradient_scale. For other steps changes
  /// nothing. Returns the factor by which the step must still multiply the reducer's gradients: 1 for
  /// momenta, otherwise gradient_scale. Gradients must be finite. Collective.
  double exchange(GradReducer& reducer, double gradient_scale);
  /// Returns the ranks' average sum of squared local gradients: one double on the model's device. Collective.
  at::Tensor mean_square(const GradReducer& reducer) const;

  /// Returns the state that only this rank has, such as errors of compression. Its tensors are shared with
  /// the optimizer.
  RankState rank_state() const;
  /// Loads what rank_state() returned, after the optimizer's states were loaded. Returns false if `own` comes
  /// from another number of ranks or has other sizes. Errors then start at zero, and the weights that were
  /// loaded for all ranks stay. Does not communicate.
  bool load_rank_state(const RankState& own);
  /// Returns the bytes of errors and gathered momenta, kept besides the optimizer's states.
  int64_t bytes() const;

 private:
  /// Returns the state exp_avg of group `index` before the step, in flat order. It is at least as long as the
  /// group's parameters together. At stage 1 it is gathered from all owners (collective). Throws UsageError
  /// if there is no such state.
  at::Tensor momentum_of(size_t index);
  void forget();
  /// Forgets the errors and momenta if states were loaded since they were made.
  void follow_loads();

  const ParamStore& store_;
  optim::Optimizer& optimizer_;
  ZeroState& state_;
  const comm::ProcessGroup& data_;
  CompressedMeans means_;
  int64_t num_loads_;  // state_.num_loads() when errors or momenta were last made
  std::vector<at::Tensor>
      momenta_;  // [group] (padded numel), gathered from all owners at stage 1; undefined: not gathered
};

}  // namespace deepspeed::zero
