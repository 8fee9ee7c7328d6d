// A tensor of a model under the name that the model gives it.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace deepspeed::zero
