// A checkpoint can be complete but belong to another model or optimizer.
#pragma once

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {

/// Reports that a complete checkpoint does not fit the model or optimizer. Other tags of the run do not fit
/// either, so the message does not suggest any.
class MisfitError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

}  // namespace deepspeed::checkpoint
