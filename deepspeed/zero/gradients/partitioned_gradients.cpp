// Keeps gradients for stages 1 to 3: a rank keeps only its own part of the sums. At stages 2 and 3 every
// backward reduces, at stage 1 only the one at the accumulation boundary.
//
// When autograd has made a gradient, it is copied into its bucket's temporary buffer (fill) while it is
// still in the caches, and its own memory is freed. A complete bucket is launched at once (launch). At most
// two are in flight, and the oldest is absorbed first (absorb_oldest): this rank's part is added to what it
// keeps (KeptSums), unless the reduction has put it there, and the buffer becomes free. Gradients that arrive
// after their bucket's launch wait in their parameters for a second round at the end (finish_round).
//
// At stage 1 gradients of a backward before the boundary wait in local sums (WaitingSums). The boundary's
// backward adds them to its own gradients in the buffers (fill). The first such backward allocates their
// memory. What this rank keeps then lies at its own place among them (make_room_to_wait). That place is free:
// each bucket takes its waiting sums before its kept part is written. A window of one backward needs no such
// memory.
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/making/buffer.h"
#include "deepspeed/zero/gradients/dense_gradient.h"
#include "deepspeed/zero/gradients/grad_keeper.h"
#include "deepspeed/zero/gradients/sums/kept_sums.h"
#include "deepspeed/zero/gradients/sums/waiting_sums.h"
#include "deepspeed/zero/layout/replica_sum.h"
#include "deepspeed/zero/offload/host_sums.h"

namespace deepspeed::zero {
namespace {

class PartitionedGradients final : public GradKeeper {
 public:
  explicit PartitionedGradients(ReducerParts& parts)
      : parts_(parts),
        store_(parts.store),
        plan_(parts.plan),
        window_(parts.window),
        kept_(parts.use.owned, all_kept_options(), make_host_sums(),
              ReplicaSum(parts.ranks.replica, parts.options.replica_dtype, store_.options().device())),
        waiting_(store_) {
    for (const StoredGroup& group : store_.groups()) used_.emplace_back(group.params.size(), false);
    filled_ = used_;
    if (!store_.partitions_gradients() && parts.options.expects_accumulation) make_room_to_wait();
  }

  // At stages 2 and 3 every backward has summed over the ranks that hold everything once. Only the sum over
  // replicas is left.
  void complete_reduced_window() override {
    const c10::NoGradGuard no_grad;
    kept_.sum_replicas();
  }

  void take_gradient(size_t group, size_t param) override {
    const c10::NoGradGuard no_grad;
    if (!window_.fix_reduces()) return add_to_waiting(group, param);
    if (plan_.order().was_launched(group, param)) {
      if (parts_.tells_final_parts()) refuse_late_gradient(group, param);
      late_.insert(*plan_.order().bucket_of(group, param));
      return;
    }
    at::Tensor& gradient = parts_.gradient_of(group, param);
    // Autograd may run the node without a gradient. launch() then fills in zeros.
    if (!gradient.defined()) return;
    used_[group][param] = true;
    plan_.order().mark_arrived(group, param);
    const auto bucket = plan_.order().bucket_of(group, param);
    if (!bucket) return gradient.reset();
    if (is_filling(*bucket) || start_filling(*bucket)) fill(*bucket, param);
    launch_complete();
  }

  void launch_complete() override {
    const c10::NoGradGuard no_grad;
    if (!window_.reduces()) return;
    while (const auto complete = plan_.order().take_complete()) launch(*complete);
  }

  void complete_backward() override {
    const c10::NoGradGuard no_grad;
    if (!window_.end_arrivals()) return plan_.order().reset();
    while (const auto bucket = plan_.order().take_any()) launch(*bucket);
    finish_round();
    for (const size_t bucket : std::exchange(late_, {})) launch(bucket);
    finish_round();
    plan_.order().reset();
    if (window_.is_boundary()) kept_.sum_replicas();
  }

  // Another rank may have launched buckets that this one has not, so all ranks launch all of them.
  void abandon_backward() override {
    if (window_.reduces()) return complete_backward();
    plan_.order().reset();
  }

  at::Tensor local_gradient(size_t group, size_t param) const override {
    return waiting_.has(group, param) ? waiting_.sum(group, param) : at::Tensor();
  }

  void forget_bucket_sizes() override { pool_.clear(); }

  const std::vector<std::vector<bool>>& used() const override { return used_; }

  at::Tensor gradient(size_t group) const override {
    return gradient(group, {0, parts_.use.owned[group].numel()});
  }

  at::Tensor gradient(size_t group, const Interval& part) const override { return kept_.part(group, part); }

  std::function<void()> hand_over(size_t group, const Interval& part) override {
    return kept_.is_on_host() ? kept_.hand_over(group, part) : nullptr;
  }

  void clear_window() override {
    for (auto& group : used_) group.assign(group.size(), false);
    kept_.clear();
    waiting_.clear();
  }

  int64_t bytes() const override {
    return waiting_.is_made() ? waiting_.bytes() : kept_.bytes() + parts_.sum.error_bytes();
  }

 private:
  /// Holds a buffer with the gradients of a bucket.
  struct BucketInUse {
    size_t bucket;
    // Memory from pool_, at least as large as the bucket; undefined if `values` is the gradient itself.
    at::Tensor storage;
    at::Tensor values;  // (numel of the bucket), a view of storage
    at::Tensor sum;     // this rank's kept part, if the reduction puts it there directly
    BucketSum::Works works;
  };

  /// Awaits all sums in flight and keeps this rank's parts. Later rounds of the backward add to them.
  void finish_round() {
    while (!in_flight_.empty()) absorb_oldest();
    for (auto& group : filled_) group.assign(group.size(), false);
    kept_.end_reduction(parts_.options.averaging);
  }

  std::vector<at::TensorOptions> all_kept_options() const {
    std::vector<at::TensorOptions> options;
    for (size_t group = 0; group < store_.groups().size(); ++group)
      options.push_back(parts_.kept_options(group));
    return options;
  }

  /// Makes the sums in host memory; returns null if they are kept on the device.
  std::unique_ptr<HostSums> make_host_sums() const {
    const at::Device device = store_.options().device();
    const OptimizerOffload& offload = parts_.use.offload;
    const bool is_needed = parts_.keeps_on_host() && (offload.always_copies || !device.is_cpu());
    return is_needed ? std::make_unique<HostSums>(device, offload.pin_memory) : nullptr;
  }

  /// Allocates waiting sums for all parameters, and moves what this rank keeps into them.
  void make_room_to_wait() {
    waiting_.make(all_kept_options());
    kept_.move_into(waiting_);
  }

  /// Adds the gradient to the local sums that the boundary's backward will reduce.
  void add_to_waiting(size_t group, size_t param) {
    at::Tensor& gradient = parts_.gradient_of(group, param);
    if (!gradient.defined()) return;
    if (!waiting_.is_made()) make_room_to_wait();
    kept_.wait_again(waiting_, parts_.ranks.data.size());
    used_[group][param] = true;
    waiting_.add(group, param, gradient);
    gradient.reset();
  }

  bool uses_buffer(const Bucket& bucket) const {
    return parts_.options.keys.contiguous_gradients || !plan_.space().is_as_in_parameter() ||
           value_dtype(bucket) != store_.groups()[bucket.group].dtype ||
           waiting_.has(bucket.group, bucket.params.front());
  }
  // With one rank there is nothing to wait for.
  size_t most_in_flight() const { return parts_.options.overlap && parts_.ranks.shard.size() > 1 ? 2 : 1; }
  bool is_filling(size_t bucket) const { return filling_ && filling_->bucket == bucket; }

  /// Takes a buffer for the bucket, if it needs one and is next to launch. Returns whether a buffer was
  /// taken.
  bool start_filling(size_t bucket) {
    if (!uses_buffer(plan_.bucket(bucket)) || filling_ || bucket != plan_.order().next() ||
        in_flight_.size() >= most_in_flight())
      return false;
    filling_ = take_buffer(bucket);
    return true;
  }

  /// Moves a parameter's gradient, still in the caches, to its place in the buffer. Waiting sums are added
  /// there.
  void fill(size_t index, size_t param) {
    const Bucket& bucket = plan_.bucket(index);
    if (waiting_.has(bucket.group, param)) put(bucket, param, waiting_.take(bucket.group, param));
    at::Tensor& gradient = parts_.gradient_of(bucket.group, param);
    if (gradient.defined()) {
      put(bucket, param, dense_gradient(gradient));
      gradient.reset();
    } else if (!filled_[bucket.group][param]) {
      plan_.space().put_zeros(bucket, param, filling_->values);
    }
  }

  /// Adds `gradient` to the parameter's in the buffer. The first one in a round is copied.
  void put(const Bucket& bucket, size_t param, const at::Tensor& gradient) {
    if (filled_[bucket.group][param]) {
      copies_.flush();
      return plan_.space().add(bucket, param, gradient, filling_->values);
    }
    plan_.space().put(bucket, param, gradient, filling_->values, copies_);
    filled_[bucket.group][param] = true;
  }

  /// Starts the sum of a bucket over the ranks.
  void launch(size_t index) {
    if (!is_filling(index)) {
      while (in_flight_.size() >= most_in_flight()) absorb_oldest();
      filling_ = uses_buffer(plan_.bucket(index)) ? take_buffer(index) : take_where_it_lies(index);
    }
    if (filling_->storage.defined()) {
      for (const size_t param : plan_.bucket(index).params) fill(index, param);
    }
    copies_.flush();
    BucketInUse in_use = std::move(*filling_);
    filling_.reset();
    if (parts_.ranks.data.size() > 1 && parts_.sum.travels_by_rows(index)) {
      parts_.sum.sum_by_rows(index, in_use.values);
    } else if (parts_.ranks.data.size() > 1) {
      in_use.sum = place_for_sum(index);
      in_use.works = parts_.sum.start(index, in_use.values, {in_use.sum, parts_.options.averaging.after});
    }
    // If one rank holds everything, nothing travels and the values are the sum at once.
    const bool is_there = in_use.works.empty();
    in_flight_.push_back(std::move(in_use));
    if (!parts_.options.overlap || is_there) absorb_oldest();
  }

  at::Tensor place_for_sum(size_t index) const {
    const Bucket& bucket = plan_.bucket(index);
    const PartOfBucket part = plan_.space().own_part(bucket);
    if (part.in_kept.empty() || !parts_.sum.puts_sums_elsewhere(index)) return {};
    return kept_.place_for(bucket.group, part.in_kept, bucket.kind.dtype);
  }

  void absorb_oldest() {
    BucketInUse& oldest = in_flight_.front();
    // The gradients' dtype may have fewer bits than that of the sum and of what is kept.
    const at::Tensor sums =
        oldest.works.empty() ? oldest.values : parts_.sum.finish(oldest.values, oldest.works);
    const Bucket& bucket = plan_.bucket(oldest.bucket);
    const PartOfBucket part = plan_.space().own_part(bucket);
    device::StreamEvent is_free;
    if (!part.in_kept.empty() && !oldest.sum.defined()) {
      const at::Tensor piece = sums.narrow(0, part.in_buffer.begin, part.in_buffer.numel());
      is_free = kept_.take(bucket.group, part.in_kept, piece, parts_.options.averaging);
    }
    if (oldest.storage.defined()) pool_.push_back({std::move(oldest.storage), std::move(is_free)});
    in_flight_.pop_front();
    // The listener is told of empty parts too, so that either all ranks or none know that the step has begun.
    if (parts_.tells_final_parts()) parts_.tell_final_part({bucket.group, part.in_kept});
  }

  /// Returns the dtype of a bucket's buffer. At stage 1 it is the dtype of waiting sums.
  at::ScalarType value_dtype(const Bucket& bucket) const {
    return store_.partitions_gradients()
               ? store_.groups()[bucket.group].dtype
               : c10::typeMetaToScalarType(parts_.kept_options(bucket.group).dtype());
  }
  int64_t bytes_of(const Bucket& bucket) const {
    return plan_.space().numel(bucket) * static_cast<int64_t>(c10::elementSize(value_dtype(bucket)));
  }

  // Buffers are kept from step to step, since fresh pages cost as much as the copy into them.
  BucketInUse take_buffer(size_t index) {
    const Bucket& bucket = plan_.bucket(index);
    // A reduced buffer may still be copied to the host. One more buffer lets the device continue without
    // waiting for that copy.
    const bool has_all = !kept_.is_on_host() || pool_.size() + in_flight_.size() > most_in_flight();
    if (pool_.empty() || !has_all) {
      int64_t largest = 0;
      for (const Bucket& any : plan_.buckets()) largest = std::max(largest, bytes_of(any));
      pool_.push_front({comm::buffer(largest, store_.options().dtype(at::kByte)), {}});
    }
    FreeBuffer buffer = std::move(pool_.front());
    pool_.pop_front();
    buffer.is_free.hold_current_stream();
    const at::Tensor values = buffer.memory.narrow(0, 0, bytes_of(bucket)).view(value_dtype(bucket));
    return {index, buffer.memory, values, {}, {}};
  }

  // The gradient of the bucket's only parameter travels without a copy.
  BucketInUse take_where_it_lies(size_t index) {
    const Bucket& bucket = plan_.bucket(index);
    StoredGroup& stored = store_.groups()[bucket.group];
    at::Tensor& gradient = stored.params[bucket.params.front()].tensor.mutable_grad();
    at::Tensor values = gradient.defined()
                            ? dense_gradient(gradient)
                            : at::zeros({bucket.in_flat.numel()}, store_.options(bucket.group));
    gradient.reset();
    return {index, {}, values.contiguous().view({-1}), {}, {}};
  }

  /// Holds memory for a bucket, and the event after which it may be written.
  struct FreeBuffer {
    at::Tensor memory;  // bytes, enough for the largest bucket
    device::StreamEvent is_free;
  };

  [[noreturn]] void refuse_late_gradient(size_t group, size_t param) const {
    raise<UsageError>(
        "parameter '", parts_.param(group, param).name,
        "' received another gradient after super_offload began its step: several parts of the graph that run "
        "a backward of their own use it. Set zero_optimization.offload_optimizer.super_offload to false");
  }

  ReducerParts& parts_;
  ParamStore& store_;
  BucketPlan& plan_;
  GradWindow& window_;
  KeptSums kept_;
  WaitingSums waiting_;                    // stage 1
  std::vector<std::vector<bool>> used_;    // [group][param], in this accumulation window
  std::vector<std::vector<bool>> filled_;  // [group][param], in this backward
  // Buckets of parameters that got another gradient after the launch. This happens if parts of the graph with
  // their own backward share a parameter. The gradients wait in the parameters for a second round.
  std::set<size_t> late_;
  std::deque<FreeBuffer> pool_;  // longest free first
  std::optional<BucketInUse> filling_;
  CopyBatch copies_;  // copies into filling_'s buffer
  std::deque<BucketInUse> in_flight_;
};

}  // namespace

std::unique_ptr<GradKeeper> make_partitioned_keeper(ReducerParts& parts) {
  return std::make_unique<PartitionedGradients>(parts);
}

}  // namespace deepspeed::zero
