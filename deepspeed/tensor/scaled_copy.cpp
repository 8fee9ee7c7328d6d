#include "deepspeed/tensor/scaled_copy.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/mul.h>

namespace deepspeed {

void copy_scaled(const at::Tensor& result, const at::Tensor& values, double factor) {
  if (factor == 1.0) {
    result.copy_(values);
  } else {
    at::Tensor out = result;
    // A tensor of 16 bits would round the factor.
    at::mul_out(out, values, at::native::wrapped_scalar_tensor(factor));
  }
}

}  // namespace deepspeed
