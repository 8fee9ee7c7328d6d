// Parameters of a group whose values and gradients identify every element, for tests of single parts of ZeRO.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>

#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed::testing {

using Shapes = std::vector<std::vector<int64_t>>;

inline int64_t numel_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// Returns (100 * (index + 1) + 0, 1, 2, ...) times `factor`. These are integers, exact in fp32 and all
/// different.
inline at::Tensor marked_values(const Shapes& shapes, size_t index, double factor = 1.0) {
  return at::arange(numel_of(shapes[index]), at::kFloat)
      .add(100.0 * double(index + 1))
      .mul(factor)
      .view(shapes[index]);
}

/// Returns parameters "p0", "p1", ... of these shapes, with these values.
inline NamedTensors marked_params(const Shapes& shapes) {
  NamedTensors params;
  for (size_t index = 0; index < shapes.size(); ++index)
    params.push_back({"p" + std::to_string(index), marked_values(shapes, index).requires_grad_()});
  return params;
}

inline std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kFloat).contiguous().view({-1});
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

}  // namespace deepspeed::testing
