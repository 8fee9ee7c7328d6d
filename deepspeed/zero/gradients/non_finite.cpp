#include "deepspeed/zero/gradients/non_finite.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/kernels/grad_stats.h"

namespace deepspeed::zero {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

int64_t position_of(const FlatLayout& layout, size_t index) {
  const auto& params = layout.params();
  const Interval place = layout.place(index);
  const auto found =
      std::lower_bound(params.begin(), params.end(), place.begin,
                       [](const PlacedParam& param, int64_t begin) { return param.in_flat.begin < begin; });
  // Parameters without elements begin at the same place as the next parameter.
  return std::find_if(found, params.end(),
                      [index](const PlacedParam& param) { return param.index == index; }) -
         params.begin();
}

/// Returns whether all elements are finite. gradient: contiguous, or (rows, n) of contiguous rows.
bool is_finite(const at::Tensor& gradient) {
  if (gradient.is_contiguous()) return kernels::grad_stats(gradient).finite;
  return std::ranges::all_of(gradient.unbind(0),
                             [](const at::Tensor& row) { return kernels::grad_stats(row).finite; });
}

}  // namespace

void NonFiniteGradients::make_room() {
  if (!largest_.empty()) return;
  for (const StoredGroup& stored : store_.groups()) {
    const auto numel = static_cast<int64_t>(stored.params.size());
    largest_.push_back(at::zeros({numel}, store_.options().dtype(at::kDouble)));
  }
}

void NonFiniteGradients::note(const Bucket& bucket, const std::vector<at::Tensor>& gradients) {
  make_room();
  const FlatLayout& layout = store_.groups()[bucket.group].layout;
  const at::Tensor& largest = largest_[bucket.group];
  if (largest.is_cpu()) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (is_finite(gradients[i])) continue;
      largest.data_ptr<double>()[position_of(layout, bucket.params[i])] = kInfinite;
    }
    return;
  }
  const int64_t first = position_of(layout, bucket.params.front());
  const int64_t last = position_of(layout, bucket.params.back());
  const at::Tensor norms = at::stack(at::_foreach_norm(gradients, kInfinite, at::kDouble));
  // Parameters without elements, which no bucket holds, may lie in between.
  if (last - first + 1 == norms.numel()) {
    at::Tensor noted = largest.narrow(0, first, norms.numel());
    at::maximum_out(noted, noted, norms);
    return;
  }
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    at::Tensor noted = largest[position_of(layout, bucket.params[i])];
    at::maximum_out(noted, noted, norms[static_cast<int64_t>(i)]);
  }
}

std::optional<ParamPlace> NonFiniteGradients::first() const {
  for (size_t group = largest_.size(); group-- > 0;) {
    const at::Tensor on_host = largest_[group].cpu();
    const auto& params = store_.groups()[group].layout.params();
    for (size_t position = params.size(); position-- > 0;) {
      if (!std::isfinite(on_host.const_data_ptr<double>()[position])) {
        return ParamPlace{group, params[position].index};
      }
    }
  }
  return std::nullopt;
}

}  // namespace deepspeed::zero
