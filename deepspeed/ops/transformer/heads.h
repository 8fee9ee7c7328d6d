// The layout of an attention's heads in a layer's tokens.
#pragma once

#include <cmath>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/ops/transformer/attention.h"

namespace deepspeed::ops {

struct HeadSizes {
  HeadSizes(const AttentionCall& call, int64_t hidden)
      : batch(call.batch), sequence(call.sequence), heads(call.heads), width(hidden / call.heads) {}
  double scale() const { return 1 / std::sqrt(static_cast<double>(width)); }

  int64_t batch, sequence, heads, width;
};

/// Views [T, n H] as [n, batch, heads, sequence, d].
inline at::Tensor by_heads(const at::Tensor& tokens, const HeadSizes& sizes) {
  return tokens.view({sizes.batch, sizes.sequence, -1, sizes.heads, sizes.width}).permute({2, 0, 3, 1, 4});
}

}  // namespace deepspeed::ops
