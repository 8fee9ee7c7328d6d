// Opens a stage 3 access window when a backward reaches the model's outputs. A direct `loss.backward()` may
// then use the parameters as `engine.backward(loss)` does.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace deepspeed {

namespace zero {
class GatherPool;
}

/// Returns `output` through an autograd node that opens an access window when its gradient arrives. The
/// window, a zero::ParameterAccess of `pool`, closes when the backward ends, even by an error. The result
/// shares memory with `output`. A tensor that needs no gradient is returned unchanged.
at::Tensor open_access_in_backward(const at::Tensor& output, std::shared_ptr<zero::GatherPool> pool);

}  // namespace deepspeed
