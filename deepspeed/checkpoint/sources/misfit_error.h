// A checkpoint can be whole and not fit: it is of another model or another optimizer.
#pragma once

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {

/// Says that a whole checkpoint does not fit. Other tags of the training do not fit either, so its text names
/// none of them as a way out.
class MisfitError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

}  // namespace deepspeed::checkpoint
