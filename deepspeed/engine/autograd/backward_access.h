// Opens an access window of stage 3 when a backward reaches a model's outputs, so that a direct
// `loss.backward()` may use the parameters as `engine.backward(loss)` does.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace deepspeed {

namespace zero {
class GatherPool;
}

/// `output` behind a node that opens a window of `pool` when the gradient arrives; it closes with the
/// backward, however that ends. The values are shared. Tensors that need no gradient come back as they are.
at::Tensor open_access_in_backward(const at::Tensor& output, std::shared_ptr<zero::GatherPool> pool);

}  // namespace deepspeed
