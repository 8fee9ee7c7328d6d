// An entry of a module's or an optimizer's state is a tensor, or a plain value beside the tensors.
#pragma once

#include <string>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Returns the tensor that an entry is; null for a plain value. Throws CheckpointError, naming the entry, for
/// an object: a sparse tensor for instance, which is not read as a tensor and shall not be passed over.
const at::Tensor* tensor_entry(const std::string& name, const Value& value);

}  // namespace deepspeed::checkpoint
