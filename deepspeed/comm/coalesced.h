// Runs collectives over lists of tensors by packing small tensors into flat pieces.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

constexpr int64_t kDefaultPieceBytes = int64_t{32} << 20;

/// Reduces every tensor in place. Tensors of one dtype and device are packed in list order into flat pieces
/// of at most `piece_bytes`; a single larger tensor is its own piece. Tensors need not be contiguous. All
/// ranks pass the same sizes and dtypes in the same order. Throws UsageError for a piece size below 1, and
/// CommError.
void all_reduce_coalesced(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                          ReduceOp op = ReduceOp::kSum, int64_t piece_bytes = kDefaultPieceBytes);

/// Starts all_reduce_coalesced() with pieces of the default size, all at once. The tensors hold the sums
/// after wait().
Work start_all_reduce_coalesced(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                                ReduceOp op = ReduceOp::kSum);

/// Overwrites every tensor with that of `root`, packed like in all_reduce_coalesced().
void broadcast_coalesced(const ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root,
                         int64_t piece_bytes = kDefaultPieceBytes);

}  // namespace deepspeed::comm
