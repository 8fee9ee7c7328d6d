#include "deepspeed/trial/trainer/data.h"

#include <algorithm>
#include <optional>

namespace deepspeed::trial {

int64_t DataLoader::size() const {
  if (is_custom()) return num_batches_;
  const int64_t batch = arguments_.batch_size;
  return arguments_.drop_last ? num_samples_ / batch : (num_samples_ + batch - 1) / batch;
}

int64_t DataLoader::size_of_rank(int rank, int world_size) const {
  if (is_custom()) return num_batches_;
  return size() / world_size + (rank < size() % world_size ? 1 : 0);
}

DataIterator DataLoader::iterate(int rank, int world_size, bool repeats, int64_t skip, uint64_t seed) const {
  if (is_custom()) {
    DataIterator iterator = begin_();
    for (int64_t i = 0; i < skip; ++i) iterator.next();
    return iterator;
  }
  struct Place {
    int64_t batch = 0;  // among those of all ranks and epochs
    int64_t epoch = -1;
    std::vector<int64_t> order;
  };
  auto place = std::make_shared<Place>();
  place->batch = rank + skip * world_size;
  const int64_t in_epoch = size();
  return DataIterator(DataIterator::Next([=, *this]() -> std::optional<MicroBatch> {
    const int64_t epoch = place->batch / in_epoch;
    if (in_epoch == 0 || (!repeats && epoch > 0)) return std::nullopt;
    if (epoch != place->epoch) {
      const SamplerOptions options{.dataset_size = num_samples_, .shuffle = arguments_.shuffle, .seed = seed};
      place->order = epoch_order(options, epoch);
      place->epoch = epoch;
    }
    const int64_t begin = place->batch % in_epoch * arguments_.batch_size;
    const int64_t end = std::min(begin + arguments_.batch_size, num_samples_);
    place->batch += world_size;
    return make_(std::vector<size_t>(place->order.begin() + begin, place->order.begin() + end));
  }));
}

}  // namespace deepspeed::trial
