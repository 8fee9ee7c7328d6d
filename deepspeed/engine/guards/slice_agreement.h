// Ranks that divide a layer (its slices) keep separate copies of some parameters and train them with equal
// gradients. Once copies differ they stay different, and no training metric shows it.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {

/// Names the ranks whose copies are compared.
struct SliceRanks {
  const comm::ProcessGroup& model;  // ranks that together hold one copy of the model
  const std::vector<int>& slices;   // global ranks among them that divide this rank's layers
  bool compares_whole = true;       // false: compare only partitioned parameters
};

/// Compares `alike`, the parameters that slices hold in common; at stage 3, this rank's shards. Names that a
/// slice does not have are skipped. Collective. Returns on all ranks a part of a message that names the first
/// differing parameter and the ranks; "" if there is none.
std::string difference_of_slices(const SliceRanks& ranks, const std::vector<NamedTensor>& alike);

}  // namespace deepspeed
