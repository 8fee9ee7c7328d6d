// What a script's model parallel unit says, as the core asks it.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/engine/ranks/mpu.h"

namespace deepspeed::python {

/// Says whether a parameter has the mark of Megatron's parallel layers, by which DeepSpeed knows a part of a
/// weight. The caller holds the interpreter's lock.
bool is_marked_parallel(const at::Tensor& param);

}  // namespace deepspeed::python
