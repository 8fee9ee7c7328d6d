// Steps whose ranks exchange momenta in place of gradients, compressed to one bit an element: 1-bit Adam's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/compressed/compressed_all_reduce.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed::zero {

/// At stages 0 and 1. Matrices are compressed; biases and the weights of norms, which are little of what is
/// sent, are averaged as they are.
class MomentumExchange {
 public:
  /// All arguments must outlive it. data: the ranks that average.
  MomentumExchange(const ParamStore& store, const optim::Optimizer& optimizer, const ZeroState& state,
                   const comm::ProcessGroup& data);

  /// Whether the next step is such a one: gradients then stay this rank's own.
  bool is_next() const { return optimizer_.takes_momentum(); }
  /// Makes of each group's own gradients, times gradient_scale, the mean of the ranks' momenta, which becomes
  /// the reducer's result. Collective. The gradients are finite.
  void exchange(GradReducer& reducer, double gradient_scale);
  /// The squares of the ranks' own gradients, on average: one double on their device. Collective.
  at::Tensor mean_square(const GradReducer& reducer) const;
  int64_t bytes() const;

 private:
  /// A group's parameters that travel in one way, and where they lie.
  struct Parts {
    std::vector<Interval> in_flat;
    int64_t numel = 0;
    void add(const Interval& place);
    at::Tensor collect(const at::Tensor& flat) const;
    void spread(const at::Tensor& values, const at::Tensor& flat) const;
  };
  struct Group {
    Parts matrices, rest;
    std::unique_ptr<comm::CompressedAllReduce> compressed;
    at::Tensor momentum;  // (padded numel) of all owners, at stage 1; undefined: not gathered yet
  };

  Group make_group(size_t index) const;
  /// Forgets what is kept beside the optimizer's states.
  void forget();
  /// The momentum before the step: (n), which is at least as long as the parameters. Collective at stage 1.
  at::Tensor momentum_of(size_t index);

  const ParamStore& store_;
  const optim::Optimizer& optimizer_;
  const ZeroState& state_;
  const comm::ProcessGroup& data_;
  int64_t num_loads_;  // of the states, when something was kept beside them
  std::vector<Group> groups_;
};

}  // namespace deepspeed::zero
