// Declares the functions of deepspeed.comm, which run collectives over a given group or the world's. An empty
// group stands for the world's. See docs/comm.md.
//
// Ranks named src or dst are global, as in torch.distributed. Tensors are dense and contiguous, and have the
// same size and dtype on all ranks. With async_op a call returns at once. Its tensors, including those in
// lists, must stay alive and unchanged until Work::wait() returns, and then hold the result. Without async_op
// the Work is already done. Objects are JSON values. All functions throw UsageError for arguments that do not
// fit, and CommError if a rank fails or calls something else.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/topology.h"

namespace deepspeed::comm {

/// Arranges the ranks of a world along named axes, with a group for each. Example:
/// `Mesh mesh(world, {{"pipe", 2}, {"data", 4}}); mesh.group("data").all_reduce(t);`
class DEEPSPEED_API Mesh {
 public:
  /// Makes the groups along each axis. Collective: every rank gives the same axes. Throws UsageError if the
  /// product of the sizes is not the size of the world.
  Mesh(const World& world, std::vector<MeshAxis> axes);
  /// Makes the groups like the constructor above. `all` is an existing group of all ranks of the world, which
  /// becomes the group of an axis that contains all ranks.
  Mesh(const World& world, const ProcessGroup& all, std::vector<MeshAxis> axes);

  const Topology& topology() const { return topology_; }
  /// Returns this rank's group along the axis: the ranks that differ only on that axis.
  const ProcessGroup& group(const std::string& axis) const;
  /// Returns this rank's position on the axis, its rank in group(axis).
  int coordinate(const std::string& axis) const;

  /// Makes this rank's group along several axes: the ranks that differ only on them. Collective.
  ProcessGroup new_group(const std::vector<std::string>& axes) const;

 private:
  World world_;
  Topology topology_;
  std::map<std::string, ProcessGroup> groups_;
};

/// Returns true: the collectives are part of this library.
DEEPSPEED_API bool is_available();
DEEPSPEED_API int get_rank(const ProcessGroup& group = {});
DEEPSPEED_API int get_world_size(const ProcessGroup& group = {});
DEEPSPEED_API int get_local_rank();
/// Returns the global rank of rank `group_rank` in `group`.
DEEPSPEED_API int get_global_rank(const ProcessGroup& group, int group_rank);
/// Returns the global ranks of the group, in its order.
DEEPSPEED_API std::vector<int> get_all_ranks_from_group(const ProcessGroup& group = {});
DEEPSPEED_API ProcessGroup get_world_group();
/// Makes a group. Every rank of the world calls it; ranks not in `ranks` get an empty group.
DEEPSPEED_API ProcessGroup new_group(const std::vector<int>& ranks);
/// Makes a mesh of the world with axes of these sizes and names. An example is {2, 4}, {"data_parallel",
/// "sequence_parallel"}. Collective.
DEEPSPEED_API Mesh initialize_mesh_device(const std::vector<int>& mesh_shape,
                                          const std::vector<std::string>& mesh_dim_names);

DEEPSPEED_API Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                              const ProcessGroup& group = {}, bool async_op = false);
/// Calls all_reduce(), under the name that DeepSpeed's tensor-parallel inference uses.
DEEPSPEED_API Work inference_all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                                        const ProcessGroup& group = {}, bool async_op = false);
/// Reduces every tensor in place. Tensors are packed by dtype and device, and need not be contiguous.
DEEPSPEED_API Work all_reduce_coalesced(const std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::kSum,
                                        const ProcessGroup& group = {}, bool async_op = false);
/// Reduces to rank `dst`. The tensors of the other ranks are unspecified afterwards.
DEEPSPEED_API Work reduce(const at::Tensor& tensor, int dst, ReduceOp op = ReduceOp::kSum,
                          const ProcessGroup& group = {}, bool async_op = false);
DEEPSPEED_API Work broadcast(const at::Tensor& tensor, int src, const ProcessGroup& group = {},
                             bool async_op = false);

/// Gathers each rank's `tensor` on every rank, into that rank's entry of `tensors`.
DEEPSPEED_API Work all_gather(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor,
                              const ProcessGroup& group = {}, bool async_op = false);
/// Gathers all ranks' `input`, (n), into every rank's `output`, (ranks * n).
DEEPSPEED_API Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                                          const ProcessGroup& group = {}, bool async_op = false);
/// Calls all_gather_into_tensor() for each pair of an output and an input.
DEEPSPEED_API Work all_gather_coalesced(const std::vector<at::Tensor>& outputs,
                                        const std::vector<at::Tensor>& inputs, const ProcessGroup& group = {},
                                        bool async_op = false);
/// Gathers each rank's `tensor` on rank `dst`, into that rank's entry of `tensors`. On other ranks `tensors`
/// is empty.
DEEPSPEED_API Work gather(const at::Tensor& tensor, const std::vector<at::Tensor>& tensors, int dst,
                          const ProcessGroup& group = {}, bool async_op = false);
/// Overwrites `tensor` with this rank's entry in `tensors` of `src`. `tensors` has one entry per rank on
/// `src` and is empty elsewhere.
DEEPSPEED_API Work scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& tensors, int src,
                           const ProcessGroup& group = {}, bool async_op = false);

/// Reduces each entry of `tensors`, one per rank, over the ranks. Rank r's `output` receives the result of
/// entry r.
DEEPSPEED_API Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& tensors,
                                  ReduceOp op = ReduceOp::kSum, const ProcessGroup& group = {},
                                  bool async_op = false);
/// Reduces `input`, (ranks * n), over the ranks. Block r of the result, (n), goes to rank r's `output`.
DEEPSPEED_API Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input,
                                         ReduceOp op = ReduceOp::kSum, const ProcessGroup& group = {},
                                         bool async_op = false);

// DeepSpeed's code uses these names because torch may lack the functions. This library always has them.
DEEPSPEED_API Work allgather_fn(const at::Tensor& output, const at::Tensor& input,
                                const ProcessGroup& group = {}, bool async_op = false);
DEEPSPEED_API Work reduce_scatter_fn(const at::Tensor& output, const at::Tensor& input,
                                     ReduceOp op = ReduceOp::kSum, const ProcessGroup& group = {},
                                     bool async_op = false);
DEEPSPEED_API bool has_all_gather_into_tensor();
DEEPSPEED_API bool has_reduce_scatter_tensor();

/// Sends the i-th piece of `input` (along dimension 0) to rank i. `output` receives this rank's pieces in
/// rank order. The split sizes are rows per rank, and may differ; empty: equal sizes. If sizes are given,
/// pieces are padded to the largest one. The call then blocks until the ranks have agreed on this largest
/// size, even with async_op.
DEEPSPEED_API Work all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<int64_t>& output_split_sizes = {},
                                     const std::vector<int64_t>& input_split_sizes = {},
                                     const ProcessGroup& group = {}, bool async_op = false);
/// Sends the i-th of `inputs` to rank i, and overwrites the i-th of `outputs` with what rank i sent. Both
/// lists have one tensor per rank.
DEEPSPEED_API Work all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                              const ProcessGroup& group = {}, bool async_op = false);

/// Sends a message to a receive with the same tag (0 to 2^30 - 1). NCCL ignores tags.
DEEPSPEED_API void send(const at::Tensor& tensor, int dst, const ProcessGroup& group = {}, int tag = 0);
DEEPSPEED_API void recv(const at::Tensor& tensor, int src, const ProcessGroup& group = {}, int tag = 0);
DEEPSPEED_API Work isend(const at::Tensor& tensor, int dst, const ProcessGroup& group = {}, int tag = 0);
DEEPSPEED_API Work irecv(const at::Tensor& tensor, int src, const ProcessGroup& group = {}, int tag = 0);
DEEPSPEED_API Work barrier(const ProcessGroup& group = {}, bool async_op = false);
/// Waits like ProcessGroup::monitored_barrier().
DEEPSPEED_API void monitored_barrier(const ProcessGroup& group = {},
                                     std::chrono::milliseconds timeout = std::chrono::milliseconds(0),
                                     bool wait_all_ranks = false);

/// Overwrites `objects` with rank `src`'s `objects`.
DEEPSPEED_API void broadcast_object_list(std::vector<Json>& objects, int src, const ProcessGroup& group = {});
/// Returns the `object` of every rank, in rank order.
DEEPSPEED_API std::vector<Json> all_gather_object(const Json& object, const ProcessGroup& group = {});
/// Returns the reduction of one number per rank, in double. all_gather_scalar() returns all these numbers in
/// rank order.
DEEPSPEED_API double all_reduce_scalar(double value, ReduceOp op = ReduceOp::kSum,
                                       const ProcessGroup& group = {});
DEEPSPEED_API std::vector<double> all_gather_scalar(double value, const ProcessGroup& group = {});

/// Returns this rank's table of communication times (log/comms_logger.h), and logs it on rank 0. With
/// show_straggler, which all ranks must set, the table includes the time that this rank waited for slower
/// ones.
DEEPSPEED_API std::string log_summary(bool show_straggler = false);

}  // namespace deepspeed::comm
