// The factor of a step's gradients, for clipping and against the loss scale.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

struct GradientScale {
  GradientScale(double number) : value(number) {}
  explicit GradientScale(at::Tensor scale) : on_device(std::move(scale)) {}

  double value = 1.0;
  at::Tensor on_device =
      {};  // one fp64 on the gradients' device, used instead of value; undefined: value is used
};

}  // namespace deepspeed::zero
