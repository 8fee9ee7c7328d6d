#include "deepspeed/comm/collectives.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;

c10d::ReduceOp::RedOpType c10d_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kSum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

bool is_gloo(const c10d::Backend& backend) { return backend.getBackendName() == "gloo"; }

// Gloo has no arithmetic for 16-bit integers. It has one for 16-bit floats, which rounds after every addition
// as NCCL does; a way through fp32 takes three times as long, and a caller who wants it passes an fp32
// tensor.
at::ScalarType gloo_reduction_type(at::ScalarType type) { return type == at::kShort ? at::kInt : type; }

c10::intrusive_ptr<c10d::Work> start_all_reduce(c10d::Backend& backend, const at::Tensor& tensor, ReduceOp op,
                                                milliseconds timeout) {
  c10d::AllreduceOptions options;
  options.reduceOp = c10d_op(op);
  options.timeout = timeout;
  std::vector<at::Tensor> tensors{tensor};
  return backend.allreduce(tensors, options);
}

c10::intrusive_ptr<c10d::Work> start_broadcast(c10d::Backend& backend, const at::Tensor& tensor, int root,
                                               milliseconds timeout) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = timeout;
  std::vector<at::Tensor> tensors{bytes_of(tensor)};
  return backend.broadcast(tensors, options);
}

at::Tensor block(const at::Tensor& whole, int rank, int size) {
  const auto numel = whole.numel() / size;
  return whole.view({-1}).narrow(0, rank * numel, numel);
}

// The input is not to be touched, so a copy of it is reduced. A caller that can give its input up saves the
// copy by an all-reduce in place and a slice: half the time at 64 MiB and 2 or 3 ranks.
Started gloo_reduce_scatter(c10d::Backend& backend, const at::Tensor& output, const at::Tensor& input,
                            ReduceOp op, milliseconds timeout) {
  const auto sum = input.to(gloo_reduction_type(input.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
  const int rank = backend.getRank();
  const int size = backend.getSize();
  return {{start_all_reduce(backend, sum, op, timeout)}, [=] {
            c10::NoGradGuard no_grad;
            output.view({-1}).copy_(block(sum, rank, size));
          }};
}

}  // namespace

at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.detach().view({-1}).view(at::kByte); }

Started all_reduce_on(c10d::Backend& backend, const at::Tensor& tensor, ReduceOp op, milliseconds timeout) {
  const auto wide = gloo_reduction_type(tensor.scalar_type());
  if (!is_gloo(backend) || wide == tensor.scalar_type()) {
    return {{start_all_reduce(backend, tensor.detach(), op, timeout)}, nullptr};
  }
  const auto sum = tensor.detach().to(wide);
  return {{start_all_reduce(backend, sum, op, timeout)}, [=] {
            c10::NoGradGuard no_grad;
            tensor.copy_(sum);
          }};
}

Started broadcast_on(c10d::Backend& backend, const at::Tensor& tensor, int root, milliseconds timeout) {
  return {{start_broadcast(backend, tensor, root, timeout)}, nullptr};
}

Started all_gather_on(c10d::Backend& backend, const at::Tensor& output, const at::Tensor& input,
                      milliseconds timeout) {
  c10::NoGradGuard no_grad;
  if (!is_gloo(backend)) {
    c10d::AllgatherOptions options;
    options.timeout = timeout;
    auto out = bytes_of(output);
    auto in = bytes_of(input);
    return {{backend._allgather_base(out, in, options)}, nullptr};
  }
  // One broadcast a rank, all under way together: at 64 MiB and 2 to 4 ranks 0.3 to 0.4 of Gloo's own
  // all-gather, which stages every block through a list of tensors.
  const int size = backend.getSize();
  const auto own = block(output, backend.getRank(), size);
  if (own.const_data_ptr() != input.const_data_ptr()) own.copy_(input.view({-1}));
  Started started;
  for (int root = 0; root < size; ++root) {
    started.works.push_back(start_broadcast(backend, block(output, root, size), root, timeout));
  }
  return started;
}

Started reduce_scatter_on(c10d::Backend& backend, const at::Tensor& output, const at::Tensor& input,
                          ReduceOp op, milliseconds timeout) {
  c10::NoGradGuard no_grad;
  if (is_gloo(backend)) return gloo_reduce_scatter(backend, output, input.detach(), op, timeout);
  c10d::ReduceScatterOptions options;
  options.reduceOp = c10d_op(op);
  options.timeout = timeout;
  auto out = output.detach().view({-1});
  auto in = input.detach().view({-1});
  return {{backend._reduce_scatter_base(out, in, options)}, nullptr};
}

Started all_to_all_on(c10d::Backend& backend, const at::Tensor& output, const at::Tensor& input,
                      milliseconds timeout) {
  c10d::AllToAllOptions options;
  options.timeout = timeout;
  auto out = bytes_of(output);
  auto in = bytes_of(input);
  std::vector<int64_t> equal_blocks;
  return {{backend.alltoall_base(out, in, equal_blocks, equal_blocks, options)}, nullptr};
}

}  // namespace deepspeed::comm
