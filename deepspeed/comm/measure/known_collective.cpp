#include "deepspeed/comm/measure/known_collective.h"

#include <algorithm>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/making/buffer.h"

namespace deepspeed::comm {
namespace {

// Returns small numbers, whose sums over up to 25 ranks are exact in 16-bit types.
at::Tensor known_values(int64_t numel, int rank, const at::TensorOptions& options) {
  return (at::arange(numel, options.dtype(at::kFloat)).remainder(7) + rank % 5).to(options.dtype());
}

at::Tensor sum_of_known_values(int64_t numel, int num_ranks, const at::TensorOptions& options) {
  auto sum = at::zeros({numel}, options.dtype(at::kFloat));
  for (int rank = 0; rank < num_ranks; ++rank) sum += known_values(numel, rank, options.dtype(at::kFloat));
  return sum.to(options.dtype());
}

}  // namespace

KnownCollective known_collective(const ProcessGroup& group, const std::string& operation, int64_t bytes,
                                 const at::TensorOptions& options, bool in_buffers) {
  const int n = group.size(), rank = group.rank();
  const int64_t part = std::max<int64_t>(1, bytes / int64_t(options.dtype().itemsize()) / n),
                numel = part * n;
  const auto place = [&](const at::Tensor& values) {
    const auto tensor = in_buffers ? buffer(values.numel(), options) : at::empty_like(values);
    return tensor.copy_(values);
  };
  const auto values_of = [&](int of_rank) { return known_values(numel, of_rank, options); };
  KnownCollective known;
  known.bytes = numel * int64_t(options.dtype().itemsize());
  const auto set = [&](const at::Tensor& input, const at::Tensor& expected) {
    known.input = place(input);
    known.output = place(at::zeros_like(expected));
    known.expected = expected;
  };
  const auto in_place = [&](const at::Tensor& input, const at::Tensor& expected) {
    known.input = known.output = place(input);
    known.expected = expected;
  };
  if (operation == "all_reduce") {
    in_place(values_of(rank), sum_of_known_values(numel, n, options));
    known.run = [group, tensor = known.output] { group.all_reduce(tensor); };
  } else if (operation == "broadcast") {
    in_place(values_of(rank), values_of(0));
    known.run = [group, tensor = known.output] { group.broadcast(tensor, 0); };
  } else if (operation == "all_gather") {
    std::vector<at::Tensor> parts;
    for (int from = 0; from < n; ++from) parts.push_back(values_of(from).narrow(0, 0, part));
    set(parts[size_t(rank)], at::cat(parts));
    known.run = [group, known] { group.all_gather(known.output, known.input); };
  } else if (operation == "reduce_scatter") {
    set(values_of(rank), sum_of_known_values(numel, n, options).narrow(0, rank * part, part));
    known.run = [group, known] { group.reduce_scatter(known.output, known.input); };
  } else if (operation == "all_to_all") {
    std::vector<at::Tensor> parts;
    for (int from = 0; from < n; ++from) parts.push_back(values_of(from).narrow(0, rank * part, part));
    set(values_of(rank), at::cat(parts));
    known.run = [group, known] { group.all_to_all(known.output, known.input); };
  } else if (operation == "pt2pt") {
    in_place(values_of(rank), rank == 1 ? values_of(0) : at::Tensor());
    known.run = [group, rank, tensor = known.output] {
      if (rank == 0) group.send(tensor, 1);
      if (rank == 1) group.recv(tensor, 0);
    };
  } else {
    raise<UsageError>("no collective '", operation, "' is measured, expected one of measured_operations()");
  }
  return known;
}

}  // namespace deepspeed::comm
