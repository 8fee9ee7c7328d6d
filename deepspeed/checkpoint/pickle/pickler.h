// Writes a value as Python's pickle does (protocol 2), with tensors as torch.save writes them.
#pragma once

#include <string>

#include "deepspeed/checkpoint/pickle/storage_plan.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Returns the bytes of data.pkl. Tensors refer to the records of `plan` by number. Throws UsageError, naming
/// the dict keys that lead to the value, for what a file cannot hold. That is text that is not UTF-8 (lone
/// surrogates are allowed, as in Python), a dtype without a name, or nesting deeper than readers accept.
std::string pickle(const Value& value, const StoragePlan& plan);

}  // namespace deepspeed::checkpoint
