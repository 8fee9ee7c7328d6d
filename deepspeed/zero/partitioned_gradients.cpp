// Stage 2: gradients stay with their parameters until their bucket is complete, travel in a transient buffer,
// and only this rank's partition of the sum is kept and accumulated.
#include <algorithm>
#include <deque>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/zero/grad_reducer.h"

namespace deepspeed::zero {
namespace {

class PartitionedGradients : public GradReducer {
 public:
  PartitionedGradients(ParamStore& store, comm::ProcessGroup group, ReducerOptions options)
      : GradReducer(store, std::move(group), std::move(options)) {
    for (size_t index = 0; index < store.groups().size(); ++index) {
      own_.push_back(at::zeros({options_.owned[index].numel()}, store.groups()[index].flat.options()));
    }
  }

  void on_gradient(size_t group, size_t param) override {
    const c10::NoGradGuard no_grad;
    open_ = true;
    if (order_.was_launched(group, param)) refuse_late_gradient(group, param);
    order_.mark_arrived(group, param);
    while (const auto bucket = order_.take_complete()) launch(*bucket);
  }

  void finish_backward() override {
    const c10::NoGradGuard no_grad;
    while (const auto bucket = order_.take_any()) launch(*bucket);
    while (!in_flight_.empty()) absorb_oldest();
    window_is_empty_ = false;
    order_.reset();
    open_ = false;
  }

  at::Tensor gradient(size_t group) const override { return own_[group]; }

  void clear() override { window_is_empty_ = true; }

  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const at::Tensor& own : own_) bytes += static_cast<int64_t>(own.nbytes());
    return bytes;
  }

 private:
  struct InFlight {
    size_t bucket;
    at::Tensor storage;  // of the pool, at least as large as the bucket
    at::Tensor buffer;   // (numel of the bucket), a view of storage
    comm::Work work;
  };

  // Moves the gradients of a bucket into one buffer and starts their sum.
  void launch(size_t index) {
    const Bucket& bucket = buckets_[index];
    StoredGroup& stored = store_.groups()[bucket.group];
    const size_t limit = options_.overlap ? 2 : 1;
    while (in_flight_.size() >= limit) absorb_oldest();
    at::Tensor storage = take_storage(bucket.in_flat.numel(), stored.flat.options());
    at::Tensor buffer = storage.narrow(0, 0, bucket.in_flat.numel());
    for (const size_t param : bucket.params) {
      const Interval place = stored.layout.place(param);
      const at::Tensor destination = buffer.narrow(0, place.begin - bucket.in_flat.begin, place.numel());
      at::Tensor& gradient = stored.params[param].tensor.mutable_grad();
      if (gradient.defined()) {
        const at::Tensor dense = gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
        destination.view(gradient.sizes()).copy_(dense);
        gradient.reset();
      } else {
        destination.zero_();
      }
    }
    in_flight_.push_back(
        {index, std::move(storage), buffer, group_.size() > 1 ? start_sum(bucket, buffer) : comm::Work()});
    if (!options_.overlap) absorb_oldest();
  }

  void absorb_oldest() {
    InFlight& oldest = in_flight_.front();
    if (oldest.work) finish_sum(oldest.buffer, oldest.work);
    const Bucket& bucket = buckets_[oldest.bucket];
    const Interval owned = options_.owned[bucket.group];
    const Interval common = intersect(bucket.in_flat, owned);
    if (!common.empty()) {
      const at::Tensor piece = oldest.buffer.narrow(0, common.begin - bucket.in_flat.begin, common.numel());
      const at::Tensor own = own_[bucket.group].narrow(0, common.begin - owned.begin, common.numel());
      scale_after(piece);
      if (window_is_empty_) {
        own.copy_(piece);
      } else {
        own.add_(piece);
      }
    }
    pool_.push_back(std::move(oldest.storage));
    in_flight_.pop_front();
  }

  // Buffers are kept from step to step: fresh pages cost as much as the copy into them.
  at::Tensor take_storage(int64_t numel, const at::TensorOptions& options) {
    const auto fits =
        std::find_if(pool_.begin(), pool_.end(), [&](const at::Tensor& one) { return one.numel() >= numel; });
    if (fits == pool_.end()) {
      pool_.clear();
      int64_t largest = 0;
      for (const Bucket& bucket : buckets_) largest = std::max(largest, bucket.in_flat.numel());
      return at::empty({largest}, options);
    }
    at::Tensor storage = std::move(*fits);
    pool_.erase(fits);
    return storage;
  }

  std::vector<at::Tensor> own_;  // [group], (owned numel), the model's dtype
  std::vector<at::Tensor> pool_;
  std::deque<InFlight> in_flight_;
  bool window_is_empty_ = true;
};

}  // namespace

std::unique_ptr<GradReducer> make_partitioned_gradients(ParamStore& store, comm::ProcessGroup group,
                                                        ReducerOptions options) {
  return std::make_unique<PartitionedGradients>(store, std::move(group), std::move(options));
}

}  // namespace deepspeed::zero
