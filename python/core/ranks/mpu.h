// What a script's model parallel unit says, as the core asks it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/mpu.h"

namespace deepspeed::python {

/// Makes a group of the core's own of global ranks, ascending, which all of them call. what: begins its name.
/// Throws UsageError where there is no world.
comm::ProcessGroup group_of_ranks(const std::string& what, const std::vector<int>& ranks);

/// Says whether a parameter has the mark of Megatron's parallel layers, by which DeepSpeed knows a part of a
/// weight. The caller holds the interpreter's lock.
bool is_marked_parallel(const at::Tensor& param);

}  // namespace deepspeed::python
