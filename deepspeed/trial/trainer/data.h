// Data loaders of a trial: they give micro batches, and the trainer shares them out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "deepspeed/base/export.h"
#include "deepspeed/engine/data/collate.h"
#include "deepspeed/engine/data/dataloader.h"
#include "deepspeed/engine/data/sampler.h"
#include "deepspeed/pipe/engine/data_iterator.h"

namespace deepspeed::trial {

using pipe::DataIterator;
using pipe::MicroBatch;

/// Holds a loader's arguments.
struct DataLoaderArguments {
  int64_t batch_size = 1;  ///< samples of a micro batch
  bool shuffle = false;
  bool drop_last = false;
};

/// Gives the micro batches of all ranks by number. The trainer gives each rank every n-th.
class DEEPSPEED_API DataLoader {
 public:
  /// Makes the batch of these samples.
  using Make = std::function<MicroBatch(const std::vector<size_t>& samples)>;

  DataLoader(int64_t num_samples, const DataLoaderArguments& arguments, Make make)
      : num_samples_(num_samples), arguments_(arguments), make_(std::move(make)) {}
  /// Wraps data of another kind. `begin` returns an iterator for this rank, which must not end for training.
  /// The trainer takes it only after disable_dataset_reproducibility_checks().
  DataLoader(std::function<DataIterator()> begin, int64_t num_batches, int64_t batch_size)
      : arguments_{.batch_size = batch_size}, begin_(std::move(begin)), num_batches_(num_batches) {}

  bool is_custom() const { return begin_ != nullptr; }
  int64_t batch_size() const { return arguments_.batch_size; }
  /// Returns the number of batches of an epoch of a rank, of `world_size`.
  int64_t size_of_rank(int rank, int world_size) const;
  /// Returns a rank's batches, from its `skip`-th on. They go on for ever if `repeats`. Each epoch has another
  /// order if the loader shuffles, which follows from `seed`.
  DataIterator iterate(int rank, int world_size, bool repeats, int64_t skip, uint64_t seed) const;

 private:
  int64_t size() const;

  int64_t num_samples_ = 0;
  DataLoaderArguments arguments_;
  Make make_;
  std::function<DataIterator()> begin_;
  int64_t num_batches_ = 0;
};

/// Makes a loader of a data set. Its batches have two parts, inputs and labels (pipe/engine/data_iterator.h).
template <class Dataset, class Collate = StackExamples>
std::shared_ptr<DataLoader> make_data_loader(Dataset dataset, const DataLoaderArguments& arguments = {},
                                             Collate collate = {}) {
  const int64_t num_samples = loader_detail::dataset_size(dataset);
  const auto shared = std::make_shared<Dataset>(std::move(dataset));
  return std::make_shared<DataLoader>(
      num_samples, arguments, [shared, collate](const std::vector<size_t>& samples) {
        return pipe::micro_batch_of(loader_detail::get_batch(*shared, collate, samples));
      });
}

}  // namespace deepspeed::trial
