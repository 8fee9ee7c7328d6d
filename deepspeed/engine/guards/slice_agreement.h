// Slices of a layer train what they hold alike by equal gradients, each its own copy: copies that differ once
// stay apart, and no number of the training shows it.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {

/// Says whose copies are compared.
struct SliceRanks {
  const comm::ProcessGroup& model;  // ranks that hold one copy of the model together
  const std::vector<int>& slices;   // global ranks of them that share this rank's layers out
  bool compares_whole = true;       // false: partitioned parameters alone
};

/// Compares the parameters that slices hold alike, at stage 3 this rank's shards of them. Names that a slice
/// does not have are passed over. All ranks of the group call it. Returns, on all of them, the first
/// parameter that differs, with the ranks, as a part of a message; "" where there is none.
std::string difference_of_slices(const SliceRanks& ranks, const std::vector<NamedTensor>& alike);

}  // namespace deepspeed
