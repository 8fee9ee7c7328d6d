// An entry of a module's or optimizer's state is a tensor or a plain value.
#pragma once

#include <string>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Returns the tensor in an entry, or null for a plain value. Throws CheckpointError, naming the entry, for
/// an object such as a sparse tensor: it cannot be read as a tensor and must not be skipped.
const at::Tensor* tensor_entry(const std::string& name, const Value& value);

}  // namespace deepspeed::checkpoint
