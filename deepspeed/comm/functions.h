// The functions of deepspeed.comm: collectives over the world's group, or over the one that is given. An
// empty group stands for the world's.
//
// Ranks named src or dst are global ones, as in torch.distributed. Tensors are dense and contiguous, and the
// same in size and dtype on all ranks. With async_op the call returns at once, and the tensors must live,
// untouched, until the Work is done; else the Work is done already. Objects are JSON values. All functions
// throw UsageError for arguments that do not fit and CommError where a rank fails or calls something else.
#pragma once

#include <chrono>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/json.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/process_group.h"

namespace deepspeed::comm {

int get_rank(const ProcessGroup& group = {});
int get_world_size(const ProcessGroup& group = {});
int get_local_rank();
/// The global rank of the rank `group_rank` of `group`.
int get_global_rank(const ProcessGroup& group, int group_rank);
ProcessGroup get_world_group();
/// Collective: every rank of the world calls it; those that are not in `ranks` get an empty group.
ProcessGroup new_group(const std::vector<int>& ranks);

Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum, const ProcessGroup& group = {},
                bool async_op = false);
/// DeepSpeed's name of the all_reduce of tensor-parallel inference.
Work inference_all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                          const ProcessGroup& group = {}, bool async_op = false);
/// The sum goes to `dst`; the tensors of the other ranks are unspecified afterwards.
Work reduce(const at::Tensor& tensor, int dst, const ProcessGroup& group = {}, bool async_op = false);
Work broadcast(const at::Tensor& tensor, int src, const ProcessGroup& group = {}, bool async_op = false);

/// tensors: one a rank, overwritten with the `tensor` of each.
void all_gather(std::vector<at::Tensor>& tensors, const at::Tensor& tensor, const ProcessGroup& group = {});
/// output: (ranks * n), input: (n).
Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group = {},
                            bool async_op = false);
/// tensors: on `dst` one a rank, overwritten with the `tensor` of each; elsewhere empty.
void gather(const at::Tensor& tensor, std::vector<at::Tensor>& tensors, int dst,
            const ProcessGroup& group = {});
/// tensors: on `src` one a rank; elsewhere empty. Overwrites `tensor` with this rank's.
void scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& tensors, int src,
             const ProcessGroup& group = {});

/// tensors: one a rank. output is the reduction of this rank's over all ranks.
void reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& tensors,
                    ReduceOp op = ReduceOp::kSum, const ProcessGroup& group = {});
/// output: (n), input: (ranks * n).
Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum,
                           const ProcessGroup& group = {}, bool async_op = false);

/// Sends the i-th piece of input (along dimension 0) to rank i. The sizes of the pieces, one a rank, may
/// differ; empty: equal ones. Pieces that differ travel padded to the largest.
void all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<int64_t>& output_split_sizes = {},
                       const std::vector<int64_t>& input_split_sizes = {}, const ProcessGroup& group = {});
/// inputs: one a rank; outputs: one a rank, overwritten.
void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                const ProcessGroup& group = {});

void send(const at::Tensor& tensor, int dst, const ProcessGroup& group = {}, int tag = 0);
void recv(const at::Tensor& tensor, int src, const ProcessGroup& group = {}, int tag = 0);
void barrier(const ProcessGroup& group = {});
void monitored_barrier(const ProcessGroup& group = {},
                       std::chrono::milliseconds timeout = std::chrono::milliseconds(0),
                       bool wait_all_ranks = false);

/// Overwrites `objects` with those of `src`.
void broadcast_object_list(std::vector<Json>& objects, int src, const ProcessGroup& group = {});
/// The `object` of every rank, in rank order.
std::vector<Json> all_gather_object(const Json& object, const ProcessGroup& group = {});

}  // namespace deepspeed::comm
