// A loader as a program writes it for one process. prepare() shares it out among the ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "deepspeed/accelerate/accelerator/batch_order.h"
#include "deepspeed/accelerate/accelerator/gradient_state.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/export.h"
#include "deepspeed/engine/data/dataloader.h"

namespace deepspeed::accelerate {

/// Holds a loader's arguments, with the names of torch's DataLoader.
struct DataLoaderArguments {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;
  int num_workers = 0;                ///< threads that make batches ahead of use
  std::optional<uint64_t> seed = {};  ///< of the order; default: that of the CPU's default generator
};

/// Says how prepare() shares loaders out. The names are those of Accelerate's class.
struct DataLoaderConfiguration {
  bool split_batches =
      false;  ///< divide each batch among the ranks, instead of giving each rank another batch
  bool even_batches =
      true;  ///< fill the last batches from the first ones, so that all ranks get equally many
  std::optional<uint64_t> data_seed = {};  ///< of shuffled loaders without a seed
  bool non_blocking = false;               ///< accepted; batches are moved by the loader
  bool use_seedable_sampler = true;        ///< accepted; the order always follows from the seed and the epoch
};

/// Holds what a loader learns in prepare().
struct LoaderShare {
  int rank = 0;
  int world_size = 1;
  bool split_batches = false;
  bool even_batches = true;
  std::optional<uint64_t> data_seed = {};
  at::Device device = at::kCPU;
  std::shared_ptr<GradientState> gradient_state = nullptr;
};

/// Returns the seed from which the process's default CPU generator started.
DEEPSPEED_API uint64_t initial_seed();

/// Throws UsageError for a negative number of batches.
DEEPSPEED_API void require_skip(int64_t num_batches);
/// Throws UsageError, with Accelerate's words, for a batch that the ranks cannot divide.
DEEPSPEED_API void require_divisible_batch(int64_t batch_size, const LoaderShare& share);

/// Loads batches of a data set. `Dataset` and `Collate` are those of DeepSpeedDataLoader. `for (auto& batch :
/// *loader)` runs one epoch, each in another order if the loader shuffles.
template <class Dataset, class Collate = StackExamples>
class DataLoader {
 public:
  using Inner = DeepSpeedDataLoader<Dataset, Collate>;
  using Batch = typename Inner::Batch;

  explicit DataLoader(Dataset dataset, const DataLoaderArguments& arguments = {}, Collate collate = {})
      : arguments_(arguments), collate_(collate), order_(std::make_shared<Order>()) {
    make_inner(std::move(dataset));
  }

  /// Iterates over this rank's batches of one epoch.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    Iterator() = default;
    Iterator(DataLoader* loader, typename Inner::Iterator inner) : loader_(loader), inner_(std::move(inner)) {
      loader_->note_place(inner_ == loader_->inner_->end());
    }
    Batch& operator*() { return loader_->on_device(*inner_); }
    Batch* operator->() { return &**this; }
    Iterator& operator++() {
      ++inner_;
      loader_->note_place(inner_ == loader_->inner_->end());
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.inner_ == b.inner_; }

   private:
    DataLoader* loader_ = nullptr;
    typename Inner::Iterator inner_;
  };

  Iterator begin() {
    forget_used_skip();
    num_given_ = 0;
    is_in_epoch_ = true;
    progress_->at_end = false;
    const BatchOrder& order = order_->order;
    progress_->remainder = order.drop_last ? -1 : order.num_samples % order.total_batch_size();
    order_->skip_used = order_->skipped > 0;
    if (order_->skip_used && order_->skipped >= whole_size()) {  // nothing is left of this epoch
      ++position()->epoch;
      is_in_epoch_ = false;
      forget_used_skip();
      return end();
    }
    if (share_.gradient_state) share_.gradient_state->begin(progress_);
    typename Inner::Iterator first = inner_->begin();
    num_batches_ = inner_->size();
    return Iterator(this, std::move(first));
  }
  Iterator end() { return Iterator(); }

  /// Returns the number of batches of this rank in an epoch.
  int64_t size() const { return inner_->size(); }
  int64_t batch_size() const { return arguments_.batch_size; }
  int64_t total_batch_size() const { return order_->order.total_batch_size(); }
  int64_t total_dataset_length() const { return order_->order.num_samples; }
  Dataset& dataset() { return inner_->dataset(); }
  const std::shared_ptr<LoaderPosition>& position() const { return inner_->position(); }

  /// Makes the next epoch begin after this many of this rank's batches. Throws UsageError below 0.
  void skip_first_batches(int64_t num_batches) {
    require_skip(num_batches);
    order_->skipped = num_batches;
    order_->skip_used = false;
  }
  /// Makes the next loop run this epoch, counted from 0. Shuffled loaders have another order in each.
  void set_epoch(int64_t epoch) {
    position()->epoch = epoch - 1;
    is_in_epoch_ = false;
  }
  /// Returns the epoch to go on with: the one whose loop has not ended, otherwise the next one.
  int64_t epoch() const { return position()->epoch + (is_in_epoch_ ? 0 : 1); }
  /// Makes the loader give this rank's share. Called by prepare().
  void share_out(const LoaderShare& share) {
    require_divisible_batch(arguments_.batch_size, share);
    share_ = share;
    make_inner(std::move(inner_->dataset()));
  }

 private:
  /// What the inner loader's order is made of; it outlives a moved loader.
  struct Order {
    BatchOrder order;
    int64_t skipped = 0;     // batches of this rank that the next loop leaves out
    bool skip_used = false;  // by the loop that has begun
  };

  void forget_used_skip() {
    if (order_->skip_used) order_->skipped = 0;
    order_->skip_used = false;
  }
  /// Returns the batches of this rank in a whole epoch.
  int64_t whole_size() const {
    const auto samples =
        static_cast<int64_t>(samples_of_rank(order_->order, samples_of_epoch(order_->order, 0)).size());
    const int64_t batch = order_->order.batch_size_of_rank();
    return (samples + batch - 1) / batch;
  }

  void make_inner(Dataset dataset) {
    BatchOrder& order = order_->order;
    order = {.num_samples = loader_detail::dataset_size(dataset),
             .batch_size = arguments_.batch_size,
             .shuffle = arguments_.shuffle,
             .drop_last = arguments_.drop_last,
             .seed = arguments_.seed    ? *arguments_.seed
                     : share_.data_seed ? *share_.data_seed
                                        : initial_seed(),
             .rank = share_.rank,
             .world_size = share_.world_size,
             .split_batches = share_.split_batches,
             .even_batches = share_.even_batches};
    const auto sampler = [shared = order_](int64_t epoch) {
      std::vector<int64_t> samples = samples_of_rank(shared->order, samples_of_epoch(shared->order, epoch));
      const int64_t count = shared->skipped * shared->order.batch_size_of_rank();
      samples.erase(samples.begin(),
                    samples.begin() + std::min<int64_t>(count, static_cast<int64_t>(samples.size())));
      return samples;
    };
    inner_ = std::make_unique<Inner>(std::move(dataset),
                                     DataLoaderOptions{.batch_size = order.batch_size_of_rank(),
                                                       .rank = share_.rank,
                                                       .world_size = share_.world_size,
                                                       .shuffle = arguments_.shuffle,
                                                       .drop_last = arguments_.drop_last,
                                                       .seed = order.seed,
                                                       .device = share_.device,
                                                       .data_sampler = sampler,
                                                       .num_local_io_workers = arguments_.num_workers},
                                     collate_);
  }

  /// Moves the tensors of a program's own batch. stack_examples()'s are there already.
  Batch& on_device(Batch& batch) const {
    if constexpr (!std::is_same_v<Collate, StackExamples>) {
      if (!share_.device.is_cpu())
        visit_tensors(batch, [&](at::Tensor& tensor) { tensor = tensor.to(share_.device); });
    }
    return batch;
  }

  /// Counts a batch that was given, and tells the gradient state about the last one and the end.
  void note_place(bool is_over) {
    if (is_over) {
      is_in_epoch_ = false;
      forget_used_skip();
      if (share_.gradient_state) share_.gradient_state->end(progress_);
      return;
    }
    ++num_given_;
    progress_->at_end = num_given_ == num_batches_;
  }

  DataLoaderArguments arguments_;
  Collate collate_;
  LoaderShare share_;
  std::shared_ptr<Order> order_;
  std::shared_ptr<LoaderProgress> progress_ = std::make_shared<LoaderProgress>();
  std::unique_ptr<Inner> inner_;
  int64_t num_given_ = 0, num_batches_ = 0;  // in this epoch
  bool is_in_epoch_ = false;
};

/// Makes a loader, as torch's `DataLoader(dataset, batch_size=8, shuffle=True)`:
/// `make_data_loader(dataset, {.batch_size = 8, .shuffle = true})`.
template <class Dataset, class Collate = StackExamples>
std::shared_ptr<DataLoader<Dataset, Collate>> make_data_loader(Dataset dataset,
                                                               const DataLoaderArguments& arguments = {},
                                                               Collate collate = {}) {
  return std::make_shared<DataLoader<Dataset, Collate>>(std::move(dataset), arguments, std::move(collate));
}

/// Makes the loader's next epoch begin after `num_batches` of this rank's batches, and returns the loader.
template <class Loader>
std::shared_ptr<Loader> skip_first_batches(std::shared_ptr<Loader> loader, int64_t num_batches) {
  loader->skip_first_batches(num_batches);
  return loader;
}

}  // namespace deepspeed::accelerate
