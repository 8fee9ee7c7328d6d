// Gives every rank all partitions of a flat space again, after each has changed its own.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/layout/partition.h"

namespace deepspeed::zero {

/// flat: (layout.padded_numel()), whose own partition is up to date. With keys.allgather_partitions false
/// every owner broadcasts; keys.allgather_bucket_size elements of all ranks together are under way at once.
/// Throws CommError.
void gather_partitions(const comm::ProcessGroup& group, const at::Tensor& flat, const FlatLayout& layout,
                       const config::PartitionGatherConfig& keys);

}  // namespace deepspeed::zero
