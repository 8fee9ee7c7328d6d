// The parameters of a group that stages 1 and 2 cut where partitions meet, reached over the ranks. Stage 3:
// cut_shards.h.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/other_ranks.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// all(): those of which several ranks have a part, two as a rule; each of these makes them whole for itself.
/// `store` must outlive it.
std::unique_ptr<optim::CutParameters> make_cut_parameters(const ParamStore& store, size_t group,
                                                          comm::ProcessGroup ranks);

/// Of a store's parameters: what both kinds of cuts have in common.
class CutOfStore : public optim::CutParameters {
 public:
  const std::vector<optim::CutParameter>& all() const override { return cut_; }
  at::Device device() const override { return store_.options().device(); }
  void sum(const at::Tensor& values) const override { reduce(values, comm::ReduceOp::kSum); }
  void max(const at::Tensor& values) const override { reduce(values, comm::ReduceOp::kMax); }

 protected:
  CutOfStore(const ParamStore& store, comm::ProcessGroup ranks) : store_(store), ranks_(std::move(ranks)) {}

  const ParamStore& store_;
  const comm::ProcessGroup ranks_;
  std::vector<optim::CutParameter> cut_;

 private:
  void reduce(const at::Tensor& values, comm::ReduceOp op) const;
};

}  // namespace deepspeed::zero
