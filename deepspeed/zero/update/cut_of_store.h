// Reaches, over the ranks, the parameters of a group that stages 1 and 2 cut at partition borders. See
// cut_shards.h for stage 3.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/other_ranks.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Makes the CutParameters for a group's parameters that partition borders cut. all() lists them. Each rank
/// with a part makes the parameter whole for itself. `store` must outlive the result.
std::unique_ptr<optim::CutParameters> make_cut_parameters(const ParamStore& store, size_t group,
                                                          comm::ProcessGroup ranks);

/// Implements what CutParameters do alike at stages 1 and 2 and at stage 3. Derived classes fill cut_.
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
