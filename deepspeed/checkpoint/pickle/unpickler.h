// Reads what Python's pickle and torch.save write (protocols 2 to 5), without executing anything.
#pragma once

#include <string_view>

#include "deepspeed/checkpoint/pickle/pickle_calls.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Returns the value of a pickle; `load` provides the storages of its tensors. Calls of unknown names become
/// an Object. Throws CheckpointError for data that is torn, altered or nested too deeply.
Value unpickle(std::string_view bytes, const StorageLoader& load);

}  // namespace deepspeed::checkpoint
