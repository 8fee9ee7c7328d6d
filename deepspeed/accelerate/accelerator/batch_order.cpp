#include "deepspeed/accelerate/accelerator/batch_order.h"

#include <algorithm>
#include <numeric>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

namespace deepspeed::accelerate {

std::vector<int64_t> samples_of_epoch(const BatchOrder& order, int64_t epoch) {
  std::vector<int64_t> samples(static_cast<size_t>(order.num_samples));
  if (!order.shuffle) {
    std::iota(samples.begin(), samples.end(), 0);
    return samples;
  }
  const auto generator = at::detail::createCPUGenerator(order.seed + static_cast<uint64_t>(epoch));
  const at::Tensor permutation = at::randperm(order.num_samples, generator, at::kLong);
  std::copy_n(permutation.const_data_ptr<int64_t>(), samples.size(), samples.begin());
  return samples;
}

std::vector<int64_t> samples_of_rank(const BatchOrder& order, const std::vector<int64_t>& samples) {
  const auto batch = static_cast<size_t>(order.batch_size);
  const size_t full = samples.size() / batch * batch;
  if (order.world_size == 1)
    return order.drop_last ? std::vector<int64_t>(samples.begin(), samples.begin() + static_cast<long>(full))
                           : samples;
  // A round gives every rank one batch.
  const auto round = static_cast<size_t>(order.total_batch_size());
  std::vector<int64_t> all = samples;
  if (order.drop_last) {
    all.resize(samples.size() / round * round);
  } else if (order.even_batches && all.size() % round != 0) {
    const size_t wanted = (all.size() + round - 1) / round * round;
    // The first samples are repeated, those of one round; fewer are repeated several times.
    const size_t first = std::min(samples.size(), round);
    for (size_t i = 0; all.size() < wanted; ++i) all.push_back(samples[i % first]);
  }
  const auto own = static_cast<size_t>(order.batch_size_of_rank());
  std::vector<int64_t> of_rank;
  for (size_t begin = static_cast<size_t>(order.rank) * own; begin < all.size(); begin += round) {
    const size_t end = std::min(begin + own, all.size());
    of_rank.insert(of_rank.end(), all.begin() + static_cast<long>(begin),
                   all.begin() + static_cast<long>(end));
  }
  return of_rank;
}

}  // namespace deepspeed::accelerate
