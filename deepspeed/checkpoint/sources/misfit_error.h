// A checkpoint that is whole and does not fit: it is of another model or another optimizer.
#pragma once

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {

/// Other tags of the same training do not fit either, so that none of them is a way out.
class MisfitError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

}  // namespace deepspeed::checkpoint
