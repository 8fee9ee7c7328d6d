#include "deepspeed/accelerate/accelerator/data_loader.h"

#include <ATen/CPUGeneratorImpl.h>

namespace deepspeed::accelerate {

uint64_t initial_seed() { return at::detail::getDefaultCPUGenerator().current_seed(); }

void require_skip(int64_t num_batches) {
  if (num_batches < 0) raise<UsageError>("skip_first_batches() got ", num_batches, ", expected 0 or more");
}

void require_divisible_batch(int64_t batch_size, const LoaderShare& share) {
  if (!share.split_batches || batch_size % share.world_size == 0) return;
  raise<UsageError>("To use a `DataLoader` in `split_batches` mode, the batch size (", batch_size,
                    ") needs to be a round multiple of the number of processes (", share.world_size, ").");
}

}  // namespace deepspeed::accelerate
