// Reduces lists of tensors by packing small tensors into flat pieces.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Starts to reduce every tensor in place. Tensors hold the results after wait(). Tensors of one dtype and
/// device are packed in list order into flat pieces of at most `piece_bytes`; a single larger tensor is its
/// own piece. Tensors need not be contiguous. All ranks pass the same sizes and dtypes in the same order.
/// Throws UsageError for a piece size below 1, and CommError.
Work start_all_reduce_coalesced(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                                ReduceOp op = ReduceOp::kSum, int64_t piece_bytes = int64_t{32} << 20);

}  // namespace deepspeed::comm
