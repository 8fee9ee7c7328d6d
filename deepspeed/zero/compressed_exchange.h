// Steps whose ranks exchange compressed values in place of gradients: those of 1-bit Adam, 1-bit Lamb and 0/1
// Adam.
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

/// Holds what a rank alone has of a run whose exchanges are compressed.
struct RankState {
  int64_t num_ranks = 0;  // of the run; 0: nobody has noted any
  std::vector<std::pair<std::string, at::Tensor>> tensors;
};

/// Serves stages 0 and 1, and decides what gradients become before a step.
class CompressedExchange {
 public:
  /// All arguments must outlive it. data: the ranks that average.
  CompressedExchange(const ParamStore& store, optim::Optimizer& optimizer, ZeroState& state,
                     const comm::ProcessGroup& data);

  /// Says whether gradients stay this rank's own in the next step.
  bool keeps_gradients() const { return optimizer_.next_gradient() != optim::GradientUse::kMean; }
  /// Gives the means by which an optimizer exchanges what it wants.
  const optim::RankMean& means() const { return means_; }
  /// Makes the reducer's result of its own gradients, times gradient_scale, where the next step takes
  /// momenta. Returns the scale that is left for the step. Collective. The gradients are finite.
  double exchange(GradReducer& reducer, double gradient_scale);
  /// Returns the squares of the ranks' own gradients, on average: one double on their device. Collective.
  at::Tensor mean_square(const GradReducer& reducer) const;

  /// Returns what this rank alone has; tensors are shared with the optimizer.
  RankState rank_state() const;
  /// Takes over a rank's own state, after the optimizer's states were loaded. Returns whether it fits; where
  /// not, errors begin at zero, and ranks with the weights that were loaded. Talks to no rank.
  bool load_rank_state(const RankState& own);
  /// Returns the bytes that are kept beside the optimizer's states.
  int64_t bytes() const;

 private:
  /// Returns the momentum before the step: (n), which is at least as long as the parameters. Collective at
  /// stage 1.
  at::Tensor momentum_of(size_t index);
  void forget();
  /// Forgets what is kept beside states that were loaded since.
  void follow_loads();

  const ParamStore& store_;
  optim::Optimizer& optimizer_;
  ZeroState& state_;
  const comm::ProcessGroup& data_;
  CompressedMeans means_;
  int64_t num_loads_;  // of the states, when something was kept beside them
  std::vector<at::Tensor>
      momenta_;  // [group] (padded numel) of all owners, at stage 1; undefined: not gathered
};

}  // namespace deepspeed::zero
