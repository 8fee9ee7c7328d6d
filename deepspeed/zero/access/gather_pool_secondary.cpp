// The part of GatherPool that keeps what was gathered once more, among ranks that are near each other: the
// secondary partition of ZeRO++ (hpZ). A gather over all ranks fills it, and until the shards change every
// other gather of the parameter goes over the near ranks alone: that of backward, and those of the further
// forwards before the step. It lies on the parameter's device and takes its bytes divided by the near ranks.
#include <ATen/ops/empty.h>

#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {

bool GatherPool::has_secondary(const PartitionedStorage& storage) {
  return storage.secondary_ && storage.secondary_version_ == storage.version_;
}

void GatherPool::keep_secondary(PartitionedStorage& storage) const {
  // What is persistent is gathered once for each change of the shards anyway.
  const comm::ProcessGroup& near = options_.secondary_group;
  if (!near || storage.persistent_ || has_secondary(storage)) return;
  const int64_t numel = storage.whole_.numel() / near.size();
  if (!storage.secondary_) {
    storage.secondary_ = std::make_shared<MemoryShard>(at::empty({numel}, storage.whole_.options()));
  }
  storage.secondary_->write(storage.whole_.narrow(0, near.rank() * numel, numel));
  storage.secondary_version_ = storage.version_;
  storage.is_secondary_rounded_ = storage.is_rounded_;
}

}  // namespace deepspeed::zero
