// Keeps gradients for stage 0, and for stage 1 with optimizers that compress what ranks exchange. They are
// summed in a flat buffer that is reduced once a window.
//
// Each gradient is added to its place in the group's buffer when it arrives (take_gradient). Only the
// backward at the accumulation boundary communicates. It reduces buckets in place, with `overlap` as soon as
// they are complete, otherwise at its end (complete_backward). Gradients that arrive after their bucket's
// launch are summed separately and added (add_late). If another backward follows in a reduced window, the
// averages first return to one rank's share (reopen_window), so that the next reduction counts them once.
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/making/buffer.h"
#include "deepspeed/tensor/scaling.h"
#include "deepspeed/zero/gradients/buckets/copy_batch.h"
#include "deepspeed/zero/gradients/dense_gradient.h"
#include "deepspeed/zero/gradients/grad_keeper.h"

namespace deepspeed::zero {
namespace {

class FullGradients final : public GradKeeper {
 public:
  explicit FullGradients(ReducerParts& parts)
      : parts_(parts), store_(parts.store), plan_(parts.plan), window_(parts.window), sum_(parts.sum) {
    for (size_t index = 0; index < store_.groups().size(); ++index) {
      const StoredGroup& stored = store_.groups()[index];
      flat_.push_back(comm::zero_buffer(stored.layout.padded_numel(), parts.kept_options(index)));
      written_.emplace_back(stored.params.size(), false);
    }
    replaced_.resize(flat_.size());
  }

  void complete_reduced_window() override { take_replaced_grads(); }

  bool put_given_grads() override {
    if (!shows_grads() || window_.is_unreduced()) return false;
    const c10::NoGradGuard no_grad;
    bool has_any = false;
    for (size_t group = 0; group < written_.size(); ++group) {
      for (size_t param = 0; param < written_[group].size(); ++param) {
        has_any = has_any || store_.groups()[group].params[param].tensor.grad().defined();
        put_grad(group, param);
      }
    }
    return has_any;
  }

  void take_gradient(size_t group, size_t param) override {
    const c10::NoGradGuard no_grad;
    if (plan_.order().was_launched(group, param)) {
      late_[*plan_.order().bucket_of(group, param)].insert(param);
      return;
    }
    at::Tensor& gradient = parts_.gradient_of(group, param);
    // Autograd may run the node without a gradient. finish_backward() then fills in zeros before the bucket
    // is launched.
    if (!gradient.defined()) return;
    if (reduced_by_) reopen_window();
    plan_.order().mark_arrived(group, param);
    const at::Tensor destination = place(group, param);
    if (gradient.layout() == at::kStrided && gradient.is_alias_of(destination)) {
      // expose_grads() made it a view of the buffer, so autograd has already added in place.
    } else if (written_[group][param]) {
      copies_.flush();
      destination.add_(gradient);
    } else {
      copies_.copy(destination, dense_gradient(gradient));
      written_[group][param] = true;
    }
    gradient.reset();
    launch_complete();
  }

  at::Tensor local_gradient(size_t group, size_t param) const override {
    if (reduced_by_ || !written_[group][param]) return {};
    copies_.flush();
    return place(group, param).view(store_.groups()[group].params[param].tensor.sizes());
  }

  void launch_complete() override {
    if (!parts_.options.overlap || !window_.is_boundary()) return;
    while (const auto bucket = plan_.order().take_complete()) launch(*bucket);
  }

  void complete_backward() override {
    const c10::NoGradGuard no_grad;
    copies_.flush();
    if (window_.end_arrivals()) {
      fill_missing();
      while (const auto bucket = plan_.order().take_any()) launch(*bucket);
      for (auto& [bucket, works] : in_flight_) finish(view(plan_.bucket(bucket)), works);
      in_flight_.clear();
      for (const auto& [bucket, params] : std::exchange(late_, {})) add_late(bucket, params);
      for (size_t group = 0; group < flat_.size() && !parts_.keeps_local_now(); ++group)
        scale(gradient(group), parts_.options.averaging.after);
      reduced_by_ = parts_.options.averaging;
      if (shows_grads()) expose_grads();
    }
    plan_.order().reset();
  }

  // With overlap another rank may have launched buckets that this one has not, so all ranks launch all of
  // them.
  void abandon_backward() override {
    if (parts_.options.overlap && window_.is_boundary()) return complete_backward();
    plan_.order().reset();
  }

  const std::vector<std::vector<bool>>& used() const override { return written_; }

  using GradKeeper::gradient;
  at::Tensor gradient(size_t group) const override {
    const Interval owned = parts_.use.owned[group];
    const at::Tensor& flat = replaced_[group].defined() ? replaced_[group] : flat_[group];
    return flat.narrow(0, owned.begin, owned.numel());
  }

  at::Tensor local_gradients(size_t group) const override {
    copies_.flush();
    return flat_[group];
  }
  bool set_gradients(size_t group, at::Tensor flat) override {
    replaced_[group] = std::move(flat);
    return true;
  }

  void clear_window() override {
    copies_.drop();
    reduced_by_.reset();
    replaced_.assign(flat_.size(), {});
    for (size_t group = 0; group < written_.size(); ++group) {
      written_[group].assign(written_[group].size(), false);
      if (!shows_grads()) continue;
      for (NamedTensor& param : store_.groups()[group].params) param.tensor.mutable_grad().reset();
    }
  }

  int64_t bytes() const override { return bytes_of(flat_); }

 private:
  at::Tensor place(size_t group, size_t param) const {
    return store_.groups()[group].part_of(flat_[group], param);
  }

  at::Tensor view(const Bucket& bucket) const {
    return flat_[bucket.group].narrow(0, bucket.in_flat.begin, bucket.in_flat.numel());
  }

  // Called when another backward follows a reduction in the same window. The reduced values return to one
  // rank's share of a sum, which the next reduction leaves unchanged.
  void reopen_window() {
    const Averaging reduced_by = *std::exchange(reduced_by_, std::nullopt);
    const bool is_empty = drop_replaced_grads();
    if (is_empty || parts_.ranks.data.size() == 1 || parts_.keeps_local_now()) return;
    // The reduction made before * after * (the sum over ranks) of the gradients. This is its inverse. If all
    // ranks hold the result, each takes one share. If only owners do, the others start from zeros.
    double share = 1.0 / (reduced_by.before * reduced_by.after);
    if (!sum_.sums_for_owners()) share /= parts_.ranks.data.size();
    if (shows_grads() && std::abs(share - 1.0) > 1e-12) {
      raise<UsageError>(
          "a backward after the one that reduced the gradients, which are a sum at stage 0 by "
          "gradient_allreduce_op or set_gradient_average(): call step() or zero_grad() between them, or set "
          "gradient_accumulation_steps");
    }
    for (size_t group = 0; group < flat_.size(); ++group) {
      if (!shows_grads()) scale(gradient(group), share);
      if (!sum_.sums_for_owners()) continue;
      const Interval owned = parts_.use.owned[group];
      flat_[group].narrow(0, 0, owned.begin).zero_();
      flat_[group].narrow(0, owned.end, flat_[group].numel() - owned.end).zero_();
    }
  }

  // A parameter that this rank did not use in the window gets zeros, since other ranks may have used it. If
  // the program put a gradient into the parameter's grad, that gradient counts instead of zeros.
  void fill_missing() {
    for (size_t group = 0; group < written_.size(); ++group) {
      for (size_t param = 0; param < written_[group].size(); ++param) {
        if (!written_[group][param]) put_grad(group, param);
      }
    }
  }

  void launch(size_t bucket) {
    if (parts_.ranks.data.size() == 1 || parts_.keeps_local_now()) return;
    copies_.flush();
    const at::Tensor sums = view(plan_.bucket(bucket));
    if (sum_.travels_by_rows(bucket)) return sum_.sum_by_rows(bucket, sums);
    in_flight_.emplace_back(bucket, sum_.start(bucket, sums));
    if (!parts_.options.overlap) {
      finish(sums, in_flight_.back().second);
      in_flight_.pop_back();
    }
  }

  /// Waits for the sum of `values` over the ranks and puts it into `values`.
  void finish(const at::Tensor& values, BucketSum::Works& works) {
    const at::Tensor sum = sum_.finish(values, works);
    if (!sum.is_same(values)) values.copy_(sum);
  }

  /// Sums gradients that arrived after their bucket's launch over the ranks. Adds them to the bucket's sums.
  void add_late(size_t index, const std::set<size_t>& params) {
    const Bucket& bucket = plan_.bucket(index);
    const at::Tensor sums = view(bucket), values = at::zeros_like(sums);
    const FlatLayout& layout = store_.groups()[bucket.group].layout;
    for (const size_t param : params) {
      at::Tensor& gradient = parts_.gradient_of(bucket.group, param);
      const Interval in_flat = layout.place(param);
      values.narrow(0, in_flat.begin - bucket.in_flat.begin, in_flat.numel())
          .copy_(dense_gradient(gradient).reshape({-1}));
      gradient.reset();
    }
    if (parts_.ranks.data.size() == 1 || parts_.keeps_local_now()) {
      // The sums stay local to this rank.
    } else if (sum_.travels_by_rows(index)) {
      sum_.sum_by_rows(index, values);
    } else {
      BucketSum::Works works = sum_.start(index, values);
      finish(values, works);
    }
    sums.add_(values);
  }

  /// Returns whether a reduction makes the parameters' grads views of the sums. This is so at stage 0, since
  /// a rank has all sums there, if gradients have their parameters' dtype.
  bool shows_grads() const {
    return !store_.partitions_states() &&
           parts_.options.accumulation_dtype.value_or(store_.dtype()) == store_.dtype();
  }

  void expose_grads() {
    for (size_t group = 0; group < flat_.size(); ++group) {
      auto& params = store_.groups()[group].params;
      for (size_t param = 0; param < params.size(); ++param)
        params[param].tensor.mutable_grad() = place(group, param);
    }
  }

  bool is_replaced(size_t group, size_t param) const {
    const at::Tensor& gradient = store_.groups()[group].params[param].tensor.grad();
    return !gradient.defined() || gradient.layout() != at::kStrided ||
           !gradient.is_alias_of(place(group, param));
  }

  /// Copies a parameter's grad, or zeros without one, to its place in the flat buffer.
  void put_grad(size_t group, size_t param) {
    const at::Tensor& gradient = store_.groups()[group].params[param].tensor.grad();
    const at::Tensor own = place(group, param);
    if (shows_grads() && gradient.defined()) {
      own.copy_(dense_gradient(gradient));
    } else {
      own.zero_();
    }
  }

  // After the reduction the program may replace or drop a parameter's gradient, on all ranks.
  void take_replaced_grads() {
    if (!shows_grads() || !reduced_by_) return;
    const c10::NoGradGuard no_grad;
    for (size_t group = 0; group < flat_.size(); ++group) {
      for (size_t param = 0; param < written_[group].size(); ++param) {
        if (is_replaced(group, param)) put_grad(group, param);
      }
    }
  }

  /// Forgets reduced gradients that the program replaced or dropped in the parameters' grads. Returns whether
  /// no reduced gradient is left.
  bool drop_replaced_grads() {
    if (!shows_grads()) return false;
    size_t num_left = 0;
    for (size_t group = 0; group < flat_.size(); ++group) {
      size_t num_kept = 0;
      for (size_t param = 0; param < written_[group].size(); ++param) {
        written_[group][param] = !is_replaced(group, param);
        num_kept += written_[group][param] ? 1 : 0;
      }
      if (num_kept < written_[group].size()) take_other_memory(group);
      num_left += num_kept;
    }
    return num_left == 0;
  }

  // The program may hold gradients that it took out of the parameters, so it keeps that memory.
  void take_other_memory(size_t group) {
    flat_[group] = flat_[group].clone();
    auto& params = store_.groups()[group].params;
    for (size_t param = 0; param < params.size(); ++param) {
      if (written_[group][param]) params[param].tensor.mutable_grad() = place(group, param);
    }
  }

  ReducerParts& parts_;
  ParamStore& store_;
  BucketPlan& plan_;
  GradWindow& window_;
  BucketSum& sum_;
  std::vector<at::Tensor> flat_;            // [group], padded
  mutable CopyBatch copies_;                // into flat_
  std::vector<at::Tensor> replaced_;        // [group], from set_gradients(); undefined: not replaced
  std::vector<std::vector<bool>> written_;  // [group][param], in this accumulation window
  std::vector<std::pair<size_t, BucketSum::Works>> in_flight_;
  // [bucket] parameters that got another gradient after the launch. This happens if parts of the graph with
  // their own backward share a parameter. The gradients wait in the parameters.
  std::map<size_t, std::set<size_t>> late_;
  std::optional<Averaging> reduced_by_;  // how flat_ was averaged; absent: it holds sums
};

}  // namespace

std::unique_ptr<GradKeeper> make_full_keeper(ReducerParts& parts) {
  return std::make_unique<FullGradients>(parts);
}

}  // namespace deepspeed::zero
