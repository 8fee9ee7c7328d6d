#include "deepspeed/comm/fake.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/backends/identical_ranks.h"
#include "deepspeed/comm/world.h"

namespace deepspeed::comm {

World make_fake_world(int size, int rank) {
  if (size < 1 || rank < 0 || rank >= size) {
    raise<UsageError>("rank ", rank, " of a world of ", size, ", expected a rank from 0 to below the size");
  }
  Job job;
  job.rank = rank;
  job.world_size = size;
  job.local_rank = rank;
  job.local_size = size;
  job.timeout = InitOptions().timeout;
  const auto make_group = [job](const GroupRequest& request) {
    const auto& ranks = request.global_ranks;
    const auto place = std::find(ranks.begin(), ranks.end(), job.rank) - ranks.begin();
    return ProcessGroup(std::make_shared<IdenticalRanksGroup>(
        GroupDescription{request.name, "fake", at::kCPU, static_cast<int>(place), ranks, job.timeout},
        nullptr));
  };
  return World(std::make_shared<WorldImpl>(job, make_group));
}

}  // namespace deepspeed::comm
