// A loader makes batches of a data set for one rank. `for (auto& batch : *loader)` runs one epoch. The order
// of the samples depends only on the seed and the epoch. After a checkpoint was loaded in mid-epoch, the loop
// runs the rest of that epoch.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/export.h"
#include "deepspeed/engine/data/collate.h"
#include "deepspeed/engine/data/loader_options.h"
#include "deepspeed/engine/data/sampler.h"
#include "deepspeed/tensor/visit_tensors.h"

namespace deepspeed {

namespace device {
class WorkerThreads;
}

/// Runs tasks that make batches, on threads of its own. Throws UsageError for a count below 1.
class DEEPSPEED_API BatchThreads {
 public:
  explicit BatchThreads(int count);
  /// Waits for the batches that are being made.
  ~BatchThreads();
  BatchThreads(const BatchThreads&) = delete;
  BatchThreads& operator=(const BatchThreads&) = delete;
  void add(std::function<void()> task);

 private:
  std::unique_ptr<device::WorkerThreads> threads_;
};

template <class Batch>
class BatchQueue {
 public:
  /// Starts the threads. The queue holds at most two batches per thread.
  explicit BatchQueue(int num_threads)
      : capacity_(2 * static_cast<size_t>(num_threads)), threads_(num_threads) {}

  bool is_full() const { return ahead_.size() >= capacity_; }
  bool is_empty() const { return ahead_.empty(); }

  void add(std::function<std::shared_ptr<Batch>()> make) {
    auto task = std::make_shared<std::packaged_task<std::shared_ptr<Batch>()>>(std::move(make));
    ahead_.push_back(task->get_future());
    threads_.add([task] { (*task)(); });
  }

  /// Waits for the oldest batch and returns it. Throws what making it threw.
  std::shared_ptr<Batch> take() {
    std::future<std::shared_ptr<Batch>> first = std::move(ahead_.front());
    ahead_.pop_front();
    return first.get();
  }

  /// Discards the batches that were not taken.
  void clear() { ahead_.clear(); }

 private:
  size_t capacity_;
  std::deque<std::future<std::shared_ptr<Batch>>> ahead_;
  BatchThreads threads_;
};

namespace loader_detail {

// A torch::data data set returns one example by get(index), or a whole batch by get_batch(indices).
template <class Dataset>
concept GivesExamples = requires(Dataset& dataset) {
  dataset.get(size_t{0});
};

template <class Dataset>
int64_t dataset_size(const Dataset& dataset) {
  const auto size = dataset.size();
  if constexpr (requires { size.has_value(); }) {
    if (!size.has_value()) {
      raise<UsageError>(
          "the data set does not know its size, which distributed sampling needs; return the number of "
          "samples from its size()");
    }
    return static_cast<int64_t>(*size);
  } else {
    return static_cast<int64_t>(size);
  }
}

template <class Dataset, class Collate>
auto get_batch(Dataset& dataset, const Collate& collate, const std::vector<size_t>& indices) {
  if constexpr (GivesExamples<Dataset>) {
    std::vector<std::decay_t<decltype(dataset.get(size_t{0}))>> examples;
    examples.reserve(indices.size());
    for (const size_t index : indices) examples.push_back(dataset.get(index));
    return collate(std::move(examples));
  } else if constexpr (std::same_as<Collate, StackExamples>) {
    return dataset.get_batch(indices);
  } else {
    return collate(dataset.get_batch(indices));
  }
}

}  // namespace loader_detail

/// Loads batches. `Dataset`: a torch::data data set, or any type with size() and get(index). `Collate` makes
/// a batch of any type from a vector of examples, or from the result of a data set's get_batch(indices).
template <class Dataset, class Collate = StackExamples>
class DeepSpeedDataLoader {
 public:
  using Batch = decltype(loader_detail::get_batch(std::declval<Dataset&>(), std::declval<const Collate&>(),
                                                  std::declval<std::vector<size_t>>()));

  DeepSpeedDataLoader(Dataset dataset, const DataLoaderOptions& options, Collate collate = {})
      : dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        options_(options),
        position_(std::make_shared<LoaderPosition>()) {
    if (options.batch_size < 1) {
      raise<UsageError>("batch_size is ", options.batch_size,
                        ", expected at least 1: the samples of this rank in a micro batch");
    }
    if (options.num_local_io_workers < 0) {
      raise<UsageError>("num_local_io_workers is ", options.num_local_io_workers, ", expected 0 or more");
    }
    position_->seed = options.seed;
    sampler_.dataset_size = loader_detail::dataset_size(dataset_);
    sampler_.rank = options.rank;
    sampler_.world_size = options.world_size;
    sampler_.shuffle = options.shuffle;
    sampler_.drop_last = options.drop_last;
    if (size() == 0) {
      raise<UsageError>("a data set of ", sampler_.dataset_size, " samples gives no batch of ",
                        options.batch_size, " on ", options.world_size,
                        " ranks with drop_last; leave that off, or take a smaller batch");
    }
    if (options.num_local_io_workers > 0) {
      queue_ = std::make_unique<BatchQueue<Batch>>(options.num_local_io_workers);
    }
  }
  DeepSpeedDataLoader(const DeepSpeedDataLoader&) = delete;
  DeepSpeedDataLoader& operator=(const DeepSpeedDataLoader&) = delete;

  /// Returns the number of batches in an epoch, which is equal on all ranks.
  int64_t size() const {
    const int64_t world = options_.world_size;
    const int64_t samples = options_.data_sampler ? num_sampled()
                            : options_.drop_last && sampler_.dataset_size >= world
                                ? sampler_.dataset_size / world
                                : (sampler_.dataset_size + world - 1) / world;
    return options_.drop_last ? samples / options_.batch_size
                              : (samples + options_.batch_size - 1) / options_.batch_size;
  }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    Iterator() = default;
    explicit Iterator(DeepSpeedDataLoader* loader) : loader_(loader) { advance(); }
    Batch& operator*() { return *batch_; }
    Batch* operator->() { return &*batch_; }
    Iterator& operator++() {
      advance();
      return *this;
    }
    void operator++(int) { advance(); }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.loader_ == b.loader_; }

   private:
    void advance() {
      batch_ = loader_->next();
      if (!batch_) loader_ = nullptr;
    }
    DeepSpeedDataLoader* loader_ = nullptr;  // null: the end
    std::shared_ptr<Batch> batch_;
  };

  /// Starts the next epoch, or resumes the epoch of a loaded checkpoint.
  Iterator begin() {
    if (!position_->resume) {
      ++position_->epoch;
      position_->samples_consumed = 0;
      position_->epoch_ended = false;
      order_samples();
    }
    return Iterator(this);
  }
  Iterator end() { return Iterator(); }

  Dataset& dataset() { return dataset_; }
  /// Returns the loader's position in its samples. The engine shares it, saves it and restores it.
  const std::shared_ptr<LoaderPosition>& position() const { return position_; }

 private:
  int64_t num_sampled() const {
    const auto indices = options_.data_sampler(std::max<int64_t>(position_->epoch, 0));
    return static_cast<int64_t>(indices.size());
  }

  void order_samples() {
    sampler_.seed = position_->seed;
    indices_ = options_.data_sampler ? options_.data_sampler(position_->epoch)
                                     : rank_indices(sampler_, position_->epoch);
    for (const int64_t index : indices_) {
      if (index < 0 || index >= sampler_.dataset_size) {
        raise<UsageError>("the data_sampler gives sample ", index, ", expected 0 to ",
                          sampler_.dataset_size - 1);
      }
    }
    const size_t needed = options_.drop_last ? static_cast<size_t>(options_.batch_size) : 1;
    if (indices_.size() < needed) {
      raise<UsageError>("the data_sampler gives ", indices_.size(), " samples in epoch ", position_->epoch,
                        ", which make no batch; expected at least ", needed);
    }
    ask_from_position();
  }

  void ask_from_position() {
    num_asked_ = static_cast<size_t>(position_->samples_consumed / options_.world_size);
    if (queue_) queue_->clear();
  }

  /// Returns the samples of the next batch to request. Empty at the end of the epoch.
  std::vector<size_t> ask() {
    std::vector<size_t> batch;
    const size_t size = static_cast<size_t>(options_.batch_size);
    const size_t last = std::min(indices_.size(), num_asked_ + size);
    if (options_.drop_last && last < num_asked_ + size) return batch;
    while (num_asked_ < last) batch.push_back(static_cast<size_t>(indices_[num_asked_++]));
    return batch;
  }

  std::shared_ptr<Batch> make(const std::vector<size_t>& indices) {
    auto batch = std::make_shared<Batch>(loader_detail::get_batch(dataset_, collate_, indices));
    if constexpr (std::same_as<Collate, StackExamples>) {
      if (options_.pin_memory)
        visit_tensors(*batch, [](at::Tensor& tensor) { tensor = tensor.pin_memory(); });
    }
    return batch;
  }

  void move_to_device(Batch& batch) const {
    if constexpr (std::same_as<Collate, StackExamples>) {
      if (options_.device.is_cpu()) return;
      visit_tensors(batch, [this](at::Tensor& tensor) {
        tensor = tensor.to(options_.device, /*non_blocking=*/options_.pin_memory);
      });
    }
  }

  /// Returns the next batch and its number of samples. Null at the end of the epoch.
  std::shared_ptr<Batch> take(size_t& num_samples) {
    if (!queue_) {
      const auto indices = ask();
      num_samples = indices.size();
      return indices.empty() ? nullptr : make(indices);
    }
    while (!queue_->is_full()) {
      auto indices = ask();
      if (indices.empty()) break;
      queue_->add([this, indices = std::move(indices)] { return make(indices); });
    }
    if (queue_->is_empty()) return nullptr;
    const size_t first = static_cast<size_t>(position_->samples_consumed / options_.world_size);
    num_samples = std::min(indices_.size() - first, static_cast<size_t>(options_.batch_size));
    return queue_->take();
  }

  std::shared_ptr<Batch> next() {
    if (std::exchange(position_->resume, false)) order_samples();
    try {
      size_t num_samples = 0;
      auto batch = take(num_samples);
      if (batch == nullptr) {
        position_->epoch_ended = true;
      } else {
        move_to_device(*batch);
      }
      position_->samples_consumed += static_cast<int64_t>(num_samples) * options_.world_size;
      return batch;
    } catch (...) {
      ask_from_position();  // the batch that failed is still the next one
      throw;
    }
  }

  Dataset dataset_;
  Collate collate_;
  DataLoaderOptions options_;
  SamplerOptions sampler_;
  std::shared_ptr<LoaderPosition> position_;
  std::vector<int64_t> indices_;
  size_t num_asked_ = 0;  // of indices_: samples in batches already returned or being made
  std::unique_ptr<BatchQueue<Batch>> queue_;  // last member: its threads must end before what they use
};

/// Returns batches without end: restarts the loader when its data ends.
template <class Loader>
class RepeatingLoader {
 public:
  explicit RepeatingLoader(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}

  /// Returns the next batch, valid until the next call.
  typename Loader::Batch& next() {
    if (iterator_ != loader_->end()) ++iterator_;
    while (iterator_ == loader_->end()) iterator_ = loader_->begin();
    return *iterator_;
  }

 private:
  std::shared_ptr<Loader> loader_;
  typename Loader::Iterator iterator_;
};

}  // namespace deepspeed
