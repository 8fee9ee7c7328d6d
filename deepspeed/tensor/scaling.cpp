#include "deepspeed/tensor/scaling.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/mul.h>

namespace deepspeed {

void scale(const at::Tensor& tensor, double factor) {
  if (factor != 1.0) copy_scaled(tensor, tensor, factor);
}

void copy_scaled(const at::Tensor& result, const at::Tensor& values, double factor) {
  if (factor == 1.0) {
    result.copy_(values);
  } else {
    at::Tensor out = result;
    at::mul_out(out, values, at::native::wrapped_scalar_tensor(factor));
  }
}

}  // namespace deepspeed
