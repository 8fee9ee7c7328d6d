// Parameters and gradients for the tests of the optimizer classes.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "tests/optim/slices/slices.h"

namespace deepspeed {

using Params = std::vector<at::Tensor>;

/// Two parameters, one of them transposed: its elements do not lie in the order of its shape.
inline Params make_params(at::ScalarType dtype = at::kFloat) {
  const auto values = optim::test_gradients(2, {5, 7});
  return {values[0].to(dtype).clone().requires_grad_(), values[1].to(dtype).t().clone().t().requires_grad_()};
}

inline void set_gradients(const Params& params, int step) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(100 + step));
  for (const at::Tensor& p : params) {
    p.mutable_grad() = at::randn(p.sizes(), generator, at::kFloat).to(p.scalar_type());
  }
}

}  // namespace deepspeed
