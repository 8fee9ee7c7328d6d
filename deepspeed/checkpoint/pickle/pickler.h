// The pickler writes a value as Python's pickle does it, protocol 2, with tensors as torch.save writes them.
#pragma once

#include <string>

#include "deepspeed/checkpoint/pickle/storage_plan.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Makes the bytes of data.pkl. Tensors refer to the records of `plan` by number. Throws UsageError,
/// with the keys of dicts on the way there, for what a file cannot hold: text that is not UTF-8 (surrogates
/// may stand alone, as in Python), a dtype without a name, nesting deeper than a reader accepts.
std::string pickle(const Value& value, const StoragePlan& plan);

}  // namespace deepspeed::checkpoint
