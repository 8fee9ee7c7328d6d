// Gives every rank all partitions of a flat space again, after each has changed its own.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/layout/partition.h"

namespace deepspeed::zero {

struct GatherOptions {
  bool all_gather = true;              // false: a broadcast from every owner
  int64_t bucket_numel = 500'000'000;  // elements, of all ranks together, that are under way at once
};

/// flat: (layout.padded_numel()), whose own partition is up to date. Throws CommError.
void gather_partitions(const comm::ProcessGroup& group, const at::Tensor& flat, const FlatLayout& layout,
                       const GatherOptions& options);

}  // namespace deepspeed::zero
