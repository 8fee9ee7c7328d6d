// Where a data loader stands: what a checkpoint must carry so that a resumed run sees the same batches.
#pragma once

#include <cstdint>

namespace deepspeed {

struct LoaderPosition {
  uint64_t seed = 0;
  int64_t epoch = -1;            // of the current permutation; -1: none was begun
  int64_t samples_consumed = 0;  // of this epoch, over all ranks
  bool epoch_ended = true;
  bool resume = false;  // set by a restored checkpoint: go on here instead of starting an epoch
};

}  // namespace deepspeed
