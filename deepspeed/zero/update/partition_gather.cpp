#include "deepspeed/zero/update/partition_gather.h"

#include <algorithm>
#include <vector>

namespace deepspeed::zero {

void gather_partitions(const comm::ProcessGroup& group, const at::Tensor& flat, const FlatLayout& layout,
                       const config::PartitionGatherConfig& keys) {
  const int64_t numel = layout.partition_numel();
  if (group.size() == 1 || numel == 0) return;
  if (keys.allgather_partitions && flat.numel() <= keys.allgather_bucket_size) {
    const Interval own = layout.partition(group.rank());
    group.all_gather(flat, flat.narrow(0, own.begin, own.numel()));
    return;
  }
  // A piece of every partition at a time. Pieces of different partitions do not lie side by side, so each is
  // a broadcast of its own.
  const int64_t most = std::max<int64_t>(keys.allgather_bucket_size / group.size(), 1);
  for (int64_t begin = 0; begin < numel; begin += most) {
    std::vector<comm::Work> works;
    for (int owner = 0; owner < group.size(); ++owner) {
      const int64_t first = layout.partition(owner).begin + begin;
      works.push_back(group.start_broadcast(flat.narrow(0, first, std::min(most, numel - begin)), owner));
    }
    for (comm::Work& work : works) work.wait();
  }
}

}  // namespace deepspeed::zero
