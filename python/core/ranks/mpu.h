// Gives the core the answers of a script's model parallel unit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/mpu.h"

namespace deepspeed::python {

/// Makes a process group of the core from global ranks, in ascending order. All these ranks must call it. The
/// group's name begins with `what`. Throws UsageError if there is no world.
comm::ProcessGroup group_of_ranks(const std::string& what, const std::vector<int>& ranks);

/// Returns whether a parameter has the mark of Megatron's parallel layers. DeepSpeed recognizes parts of a
/// weight by this mark. The caller holds the interpreter's lock.
bool is_marked_parallel(const at::Tensor& param);

}  // namespace deepspeed::python
