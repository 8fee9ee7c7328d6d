#include "deepspeed/zero/gradients/row_exchange.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/any.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>

namespace deepspeed::zero {
namespace {

void sum_whole(const comm::ProcessGroup& group, const at::Tensor& values, at::ScalarType dtype) {
  const at::Tensor travelling = values.to(dtype).contiguous();
  group.all_reduce(travelling);
  if (!travelling.is_alias_of(values)) values.copy_(travelling);
}

}  // namespace

void sum_rows(const comm::ProcessGroup& group, const at::Tensor& values, at::ScalarType dtype) {
  const int64_t ranks = group.size(), columns = values.size(1);
  const at::Tensor touched = at::nonzero(at::any(at::ne(values, 0), 1)).view({-1});  // NaN is not 0
  const std::vector<double> counts = group.all_gather_scalar(static_cast<double>(touched.numel()));
  const auto most = static_cast<int64_t>(*std::max_element(counts.begin(), counts.end()));
  // All ranks see the same counts, so they make the same choice.
  if (most * ranks >= values.size(0)) return sum_whole(group, values, dtype);
  if (most == 0) return;

  const at::Tensor indices = at::zeros({most}, touched.options());
  const at::Tensor rows = at::zeros({most, columns}, values.options().dtype(dtype));
  indices.narrow(0, 0, touched.numel()).copy_(touched);
  rows.narrow(0, 0, touched.numel()).copy_(values.index_select(0, touched));
  const at::Tensor all_indices = at::empty({ranks * most}, indices.options());
  const at::Tensor all_rows = at::empty({ranks * most, columns}, rows.options());
  group.all_gather(all_indices, indices);
  group.all_gather(all_rows.view({-1}), rows.view({-1}));

  values.index_fill_(0, touched, 0.0);
  for (int64_t rank = 0; rank < ranks; ++rank) {  // in rank order: equal sums on all ranks
    const auto count = static_cast<int64_t>(counts[static_cast<size_t>(rank)]);
    if (count == 0) continue;
    values.index_add_(0, all_indices.narrow(0, rank * most, count),
                      all_rows.narrow(0, rank * most, count).to(values.scalar_type()));
  }
}

}  // namespace deepspeed::zero
