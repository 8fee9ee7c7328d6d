// The parameters of a group that stages 1 and 2 cut where partitions meet, reached over the ranks. Stage 3:
// cut_shards.h.
#pragma once

#include <cstddef>
#include <memory>

#include "deepspeed/comm/process_group.h"
#include "deepspeed/optim/cut_parameters.h"
#include "deepspeed/zero/param_store.h"

namespace deepspeed::zero {

/// all(): those of which several ranks have a part, two as a rule; each of these makes them whole for itself.
/// `store` must outlive it.
std::unique_ptr<optim::CutParameters> make_cut_parameters(const ParamStore& store, size_t group,
                                                          comm::ProcessGroup ranks);

/// sum() for values that may lie elsewhere than on the ranks' device.
void sum_over_ranks(const comm::ProcessGroup& ranks, at::Device device, const at::Tensor& values);

}  // namespace deepspeed::zero
