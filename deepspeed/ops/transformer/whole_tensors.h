// Kernels that read a tensor by its address need its data there, which a parameter that ZeRO has partitioned
// lacks.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace deepspeed::ops {

/// Calls a function while the data of all `tensors` is whole. It is an operator of torch,
/// deepspeed::with_whole, which takes them as arguments: ZeRO makes partitioned ones whole around it, as
/// around any operator, in their order. The function runs below autograd. A call on ordinary tensors costs a
/// microsecond.
void with_whole(at::TensorList tensors, const std::function<void()>& function);

}  // namespace deepspeed::ops
