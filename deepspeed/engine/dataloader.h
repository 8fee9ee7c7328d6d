// Batches of a data set for one rank. `for (auto& batch : *loader)` is one epoch, in an order that follows
// from the seed and the epoch alone; after a checkpoint was loaded in the middle of an epoch it is the rest
// of that epoch.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/collate.h"
#include "deepspeed/engine/loader_position.h"
#include "deepspeed/engine/sampler.h"

namespace deepspeed {

struct DataLoaderOptions {
  int64_t batch_size = 1;  // of this rank: the micro batch
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  bool drop_last = false;  // drop the last batch of an epoch where it is smaller
  uint64_t seed = 0;
};

namespace loader_detail {

// A torch::data data set gives one example by get(index), or a whole batch by get_batch(indices).
template <class Dataset>
concept GivesExamples = requires(Dataset& dataset) {
  dataset.get(size_t{0});
};

template <class Dataset>
int64_t dataset_size(const Dataset& dataset) {
  const auto size = dataset.size();
  if constexpr (requires { size.has_value(); }) {
    if (!size.has_value()) {
      raise<UsageError>("dataloader",
                        "the data set does not know its size, which distributed sampling needs");
    }
    return static_cast<int64_t>(*size);
  } else {
    return static_cast<int64_t>(size);
  }
}

template <class Dataset>
auto get_batch(Dataset& dataset, const std::vector<size_t>& indices) {
  if constexpr (GivesExamples<Dataset>) {
    std::vector<std::decay_t<decltype(dataset.get(size_t{0}))>> examples;
    examples.reserve(indices.size());
    for (const size_t index : indices) examples.push_back(dataset.get(index));
    return stack_examples(std::move(examples));
  } else {
    return dataset.get_batch(indices);
  }
}

}  // namespace loader_detail

/// `Dataset`: a torch::data data set, or any type with size() and get(index).
template <class Dataset>
class DeepSpeedDataLoader {
 public:
  using Batch =
      decltype(loader_detail::get_batch(std::declval<Dataset&>(), std::declval<std::vector<size_t>>()));

  DeepSpeedDataLoader(Dataset dataset, const DataLoaderOptions& options)
      : dataset_(std::move(dataset)), options_(options), position_(std::make_shared<LoaderPosition>()) {
    if (options.batch_size < 1) raise<UsageError>("dataloader", "batch size ", options.batch_size);
    position_->seed = options.seed;
    sampler_.dataset_size = loader_detail::dataset_size(dataset_);
    sampler_.rank = options.rank;
    sampler_.world_size = options.world_size;
    sampler_.shuffle = options.shuffle;
    sampler_.drop_last = options.drop_last;
    if (size() == 0) {
      raise<UsageError>("dataloader", "a data set of ", sampler_.dataset_size, " samples gives no batch of ",
                        options.batch_size, " on ", options.world_size, " ranks with drop_last");
    }
  }

  /// Batches of an epoch, the same on every rank.
  int64_t size() const {
    const int64_t world = options_.world_size;
    const int64_t samples = options_.drop_last && sampler_.dataset_size >= world
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

  /// Starts the next epoch, or goes on with the one that a loaded checkpoint stood in.
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
  /// Shared with the engine, which saves and restores it.
  const std::shared_ptr<LoaderPosition>& position() const { return position_; }

 private:
  void order_samples() {
    sampler_.seed = position_->seed;
    indices_ = rank_indices(sampler_, position_->epoch);
  }

  std::shared_ptr<Batch> next() {
    if (std::exchange(position_->resume, false)) order_samples();
    const size_t first = static_cast<size_t>(position_->samples_consumed / options_.world_size);
    const size_t last = std::min(indices_.size(), first + static_cast<size_t>(options_.batch_size));
    const bool too_small = options_.drop_last && last - first < static_cast<size_t>(options_.batch_size);
    if (first >= indices_.size() || too_small) {
      position_->epoch_ended = true;
      return nullptr;
    }
    std::vector<size_t> batch;
    for (size_t i = first; i < last; ++i) batch.push_back(static_cast<size_t>(indices_[i]));
    position_->samples_consumed += static_cast<int64_t>(last - first) * options_.world_size;
    return std::make_shared<Batch>(loader_detail::get_batch(dataset_, batch));
  }

  Dataset dataset_;
  DataLoaderOptions options_;
  SamplerOptions sampler_;
  std::shared_ptr<LoaderPosition> position_;
  std::vector<int64_t> indices_;
};

/// Batches without end: starts the loader again when its data ends.
template <class Loader>
class RepeatingLoader {
 public:
  explicit RepeatingLoader(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}

  /// The next batch, valid until the next call.
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
