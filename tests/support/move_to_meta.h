// Modules on the meta device, which torch::nn::Module::to() does not know.
#pragma once

#include <ATen/ops/empty_like.h>
#include <torch/nn/module.h>

namespace deepspeed::testing {

/// The parameters stay the same tensors, without values.
inline void move_to_meta(torch::nn::Module& module) {
  for (const at::Tensor& param : module.parameters()) {
    const at::Tensor shape = at::empty_like(param.detach(), param.options().device(at::kMeta));
    param.unsafeGetTensorImpl()->shallow_copy_from(shape.getIntrusivePtr());
  }
}

}  // namespace deepspeed::testing
