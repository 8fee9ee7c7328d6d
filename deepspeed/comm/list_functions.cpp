// Implements the functions of functions.h that take one tensor per rank. The tensors are sent as one buffer.
#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/comm/group/joined_work.h"
#include "deepspeed/comm/group_arguments.h"

namespace deepspeed::comm {
namespace {

void check_list(const ProcessGroup& group, const char* call, const std::vector<at::Tensor>& tensors,
                const at::Tensor& like) {
  const bool fits = std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.numel() == like.numel() && tensor.scalar_type() == like.scalar_type() &&
           tensor.device() == like.device();
  });
  if (!fits || static_cast<int>(tensors.size()) != group.size()) {
    raise<UsageError>(call, ": expected a list of ", group.size(), " tensors, one a rank, of ", like.numel(),
                      " elements of ", like.scalar_type(), ", got ", tensors.size(),
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

// Returns the checked sizes of the pieces along dimension 0.
std::vector<int64_t> split_sizes(const ProcessGroup& group, const at::Tensor& tensor, const char* name,
                                 std::vector<int64_t> sizes) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  const int64_t ranks = group.size();
  if (sizes.empty() && rows % ranks == 0) sizes.assign(ranks, rows / ranks);
  const bool fits = static_cast<int64_t>(sizes.size()) == ranks &&
                    std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size >= 0; }) &&
                    std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == rows;
  if (!fits) {
    raise<UsageError>("all_to_all_single: ", name, " has ", rows, " rows, expected ", ranks,
                      " pieces that make them up");
  }
  return sizes;
}

// Copies pieces between `rows` and `padded`, which has `largest` rows per rank.
void copy_pieces(const at::Tensor& rows, const at::Tensor& padded, const std::vector<int64_t>& sizes,
                 int64_t largest, bool into_padded) {
  int64_t begin = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto piece = rows.narrow(0, begin, sizes[rank]);
    const auto place = padded.narrow(0, static_cast<int64_t>(rank) * largest, sizes[rank]);
    into_padded ? place.copy_(piece) : piece.copy_(place);
    begin += sizes[rank];
  }
}

}  // namespace

Work all_gather(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor, const ProcessGroup& group,
                bool async_op) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  check_list(chosen, "all_gather", tensors, tensor);
  const auto buffer = buffer_for(chosen, tensor);
  return finish_unless_async(
      joined_work({chosen.start_all_gather(buffer, tensor)}, [=] { unpack(buffer, tensors); }), async_op);
}

Work gather(const at::Tensor& tensor, const std::vector<at::Tensor>& tensors, int dst,
            const ProcessGroup& group, bool async_op) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  const bool receives = chosen.rank() == rank_in(chosen, "gather", "dst", dst);
  if (receives) check_list(chosen, "gather", tensors, tensor);
  const auto buffer = buffer_for(chosen, tensor);
  return finish_unless_async(joined_work({chosen.start_all_gather(buffer, tensor)},
                                         [=] {
                                           if (receives) unpack(buffer, tensors);
                                         }),
                             async_op);
}

Work scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& tensors, int src,
             const ProcessGroup& group, bool async_op) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  const int root = rank_in(chosen, "scatter", "src", src);
  const bool sends = chosen.rank() == root;
  if (sends) check_list(chosen, "scatter", tensors, tensor);
  const auto buffer = sends ? packed(chosen, tensors) : buffer_for(chosen, tensor);
  const auto own = buffer[chosen.rank()];
  return finish_unless_async(joined_work({chosen.start_broadcast(buffer, root)},
                                         [buffer, tensor, own] { tensor.copy_(own.view(tensor.sizes())); }),
                             async_op);
}

Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& tensors, ReduceOp op,
                    const ProcessGroup& group, bool async_op) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  check_list(chosen, "reduce_scatter", tensors, output);
  const auto input = packed(chosen, tensors);
  // The Work keeps the input alive.
  return finish_unless_async(joined_work({chosen.start_reduce_scatter(output, input, op)}, [input] {}),
                             async_op);
}

Work all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<int64_t>& output_split_sizes,
                       const std::vector<int64_t>& input_split_sizes, const ProcessGroup& group,
                       bool async_op) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  if (output_split_sizes.empty() && input_split_sizes.empty()) {
    return finish_unless_async(chosen.start_all_to_all(output, input), async_op);
  }
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
  copy_pieces(input, padded_input, sends, largest, /*into_padded=*/true);
  return finish_unless_async(
      joined_work({chosen.start_all_to_all(padded_output, padded_input)},
                  [=] { copy_pieces(output, padded_output, receives, largest, /*into_padded=*/false); }),
      async_op);
}

Work all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                const ProcessGroup& group, bool async_op) {
  const c10::NoGradGuard no_grad;
  const auto chosen = or_world(group);
  if (inputs.empty()) raise<UsageError>("all_to_all: the list of inputs is empty");
  check_list(chosen, "all_to_all", inputs, inputs.front());
  check_list(chosen, "all_to_all", outputs, inputs.front());
  const auto buffer = buffer_for(chosen, inputs.front());
  const auto input = packed(chosen, inputs);
  return finish_unless_async(
      joined_work({chosen.start_all_to_all(buffer, input)}, [=] { unpack(buffer, outputs); }), async_op);
}

}  // namespace deepspeed::comm
