#include "deepspeed/comm/functions.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"

namespace deepspeed::comm {
namespace {

ProcessGroup or_world(const ProcessGroup& group) { return group ? group : world().group(); }

int rank_in(const ProcessGroup& group, const char* call, const char* what, int global_rank) {
  const auto& ranks = group.global_ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  if (found == ranks.end()) {
    raise<UsageError>("comm", call, ": ", what, " is rank ", global_rank, ", which is not in group '",
                      group.name(), "'");
  }
  return static_cast<int>(found - ranks.begin());
}

Work finish(Work work, bool async_op) {
  if (!async_op) work.wait();
  return work;
}

void check_list(const ProcessGroup& group, const char* call, const std::vector<at::Tensor>& tensors,
                const at::Tensor& like) {
  const bool fits = std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.numel() == like.numel() && tensor.scalar_type() == like.scalar_type() &&
           tensor.device() == like.device();
  });
  if (!fits || static_cast<int>(tensors.size()) != group.size()) {
    raise<UsageError>("comm", call, ": expected a list of ", group.size(), " tensors, one a rank, of ",
                      like.numel(), " elements of ", like.scalar_type(), ", got ", tensors.size(),
                      fits ? "" : " of other sizes, dtypes or devices");
  }
}

at::Tensor buffer_for(const ProcessGroup& group, const at::Tensor& like) {
  return at::empty({group.size(), like.numel()}, like.options());
}

at::Tensor packed(const ProcessGroup& group, const std::vector<at::Tensor>& tensors) {
  auto buffer = buffer_for(group, tensors.front());
  for (size_t i = 0; i < tensors.size(); ++i) buffer[static_cast<int64_t>(i)].copy_(tensors[i].reshape({-1}));
  return buffer;
}

void unpack(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].copy_(buffer[static_cast<int64_t>(i)].view(tensors[i].sizes()));
  }
}

// The sizes of the pieces of dimension 0, checked.
std::vector<int64_t> split_sizes(const ProcessGroup& group, const at::Tensor& tensor, const char* name,
                                 std::vector<int64_t> sizes) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  const int64_t ranks = group.size();
  if (sizes.empty() && rows % ranks == 0) sizes.assign(ranks, rows / ranks);
  const bool fits = static_cast<int64_t>(sizes.size()) == ranks &&
                    std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size >= 0; }) &&
                    std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == rows;
  if (!fits) {
    raise<UsageError>("comm", "all_to_all_single: ", name, " has ", rows, " rows, expected ", ranks,
                      " pieces that make them up");
  }
  return sizes;
}

std::string to_text(const Json& object) {
  const auto bytes = Json::to_cbor(object);
  return {bytes.begin(), bytes.end()};
}

Json from_text(const std::string& text) { return Json::from_cbor(text); }

}  // namespace

int get_rank(const ProcessGroup& group) { return or_world(group).rank(); }
int get_world_size(const ProcessGroup& group) { return or_world(group).size(); }
int get_local_rank() { return world().local_rank(); }

int get_global_rank(const ProcessGroup& group, int group_rank) {
  const auto& ranks = or_world(group).global_ranks();
  if (group_rank < 0 || group_rank >= static_cast<int>(ranks.size())) {
    raise<UsageError>("comm", "get_global_rank: rank ", group_rank, " of a group of ", ranks.size());
  }
  return ranks[group_rank];
}

ProcessGroup get_world_group() { return world().group(); }

ProcessGroup new_group(const std::vector<int>& ranks) {
  std::string name = "ranks";
  for (const int rank : ranks) name += "_" + std::to_string(rank);
  return world().new_group(ranks, name);
}

Work all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group, bool async_op) {
  return finish(or_world(group).start_all_reduce(tensor, op), async_op);
}

Work inference_all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group, bool async_op) {
  return all_reduce(tensor, op, group, async_op);
}

Work reduce(const at::Tensor& tensor, int dst, const ProcessGroup& group, bool async_op) {
  const auto chosen = or_world(group);
  std::vector<Interval> owned(chosen.size());
  owned[rank_in(chosen, "reduce", "dst", dst)] = {0, tensor.defined() ? tensor.numel() : 0};
  return finish(chosen.start_reduce_to_owners(tensor, owned), async_op);
}

Work broadcast(const at::Tensor& tensor, int src, const ProcessGroup& group, bool async_op) {
  const auto chosen = or_world(group);
  return finish(chosen.start_broadcast(tensor, rank_in(chosen, "broadcast", "src", src)), async_op);
}

void all_gather(std::vector<at::Tensor>& tensors, const at::Tensor& tensor, const ProcessGroup& group) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  check_list(chosen, "all_gather", tensors, tensor);
  const auto buffer = buffer_for(chosen, tensor);
  chosen.all_gather(buffer, tensor);
  unpack(buffer, tensors);
}

Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                            bool async_op) {
  return finish(or_world(group).start_all_gather(output, input), async_op);
}

void gather(const at::Tensor& tensor, std::vector<at::Tensor>& tensors, int dst, const ProcessGroup& group) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  const bool receives = chosen.rank() == rank_in(chosen, "gather", "dst", dst);
  if (receives) check_list(chosen, "gather", tensors, tensor);
  const auto buffer = buffer_for(chosen, tensor);
  chosen.all_gather(buffer, tensor);
  if (receives) unpack(buffer, tensors);
}

void scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& tensors, int src,
             const ProcessGroup& group) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  const int root = rank_in(chosen, "scatter", "src", src);
  if (chosen.rank() == root) check_list(chosen, "scatter", tensors, tensor);
  const auto buffer = chosen.rank() == root ? packed(chosen, tensors) : buffer_for(chosen, tensor);
  chosen.broadcast(buffer, root);
  tensor.copy_(buffer[chosen.rank()].view(tensor.sizes()));
}

void reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& tensors, ReduceOp op,
                    const ProcessGroup& group) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  check_list(chosen, "reduce_scatter", tensors, output);
  chosen.reduce_scatter(output, packed(chosen, tensors), op);
}

Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                           const ProcessGroup& group, bool async_op) {
  return finish(or_world(group).start_reduce_scatter(output, input, op), async_op);
}

void all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<int64_t>& output_split_sizes,
                       const std::vector<int64_t>& input_split_sizes, const ProcessGroup& group) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  if (output_split_sizes.empty() && input_split_sizes.empty()) return chosen.all_to_all(output, input);
  const auto sends = split_sizes(chosen, input, "input", input_split_sizes);
  const auto receives = split_sizes(chosen, output, "output", output_split_sizes);
  const int64_t own = std::max(*std::max_element(sends.begin(), sends.end()),
                               *std::max_element(receives.begin(), receives.end()));
  const auto largest =
      static_cast<int64_t>(chosen.all_reduce_scalar(static_cast<double>(own), ReduceOp::kMax));
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[0] = chosen.size() * largest;
  const auto padded_input = at::zeros(sizes, input.options());
  const auto padded_output = at::empty(sizes, input.options());
  int64_t begin = 0;
  for (int rank = 0; rank < chosen.size(); ++rank) {
    padded_input.narrow(0, rank * largest, sends[rank]).copy_(input.narrow(0, begin, sends[rank]));
    begin += sends[rank];
  }
  chosen.all_to_all(padded_output, padded_input);
  begin = 0;
  for (int rank = 0; rank < chosen.size(); ++rank) {
    output.narrow(0, begin, receives[rank]).copy_(padded_output.narrow(0, rank * largest, receives[rank]));
    begin += receives[rank];
  }
}

void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                const ProcessGroup& group) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  if (inputs.empty()) raise<UsageError>("comm", "all_to_all: the list of inputs is empty");
  check_list(chosen, "all_to_all", inputs, inputs.front());
  check_list(chosen, "all_to_all", outputs, inputs.front());
  const auto buffer = buffer_for(chosen, inputs.front());
  chosen.all_to_all(buffer, packed(chosen, inputs));
  unpack(buffer, outputs);
}

void send(const at::Tensor& tensor, int dst, const ProcessGroup& group, int tag) {
  const auto chosen = or_world(group);
  chosen.send(tensor, rank_in(chosen, "send", "dst", dst), tag);
}

void recv(const at::Tensor& tensor, int src, const ProcessGroup& group, int tag) {
  const auto chosen = or_world(group);
  chosen.recv(tensor, rank_in(chosen, "recv", "src", src), tag);
}

void barrier(const ProcessGroup& group) { or_world(group).barrier(); }

void monitored_barrier(const ProcessGroup& group, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  or_world(group).monitored_barrier(timeout, wait_all_ranks);
}

void broadcast_object_list(std::vector<Json>& objects, int src, const ProcessGroup& group) {
  const auto chosen = or_world(group);
  const int root = rank_in(chosen, "broadcast_object_list", "src", src);
  const auto received = from_text(chosen.broadcast_text(to_text(Json(objects)), root));
  objects = received.get<std::vector<Json>>();
}

std::vector<Json> all_gather_object(const Json& object, const ProcessGroup& group) {
  std::vector<Json> objects;
  for (const auto& text : or_world(group).all_gather_text(to_text(object)))
    objects.push_back(from_text(text));
  return objects;
}

}  // namespace deepspeed::comm
