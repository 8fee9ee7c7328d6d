// The order of events in a window:
//
// 1. on_gradient() asks the window whether the gradient joins it now. If so, it goes to the keeper, which
//    puts it into its bucket and launches what is complete.
// 2. finish_backward() lets the keeper launch and await the rest. has_result() then says that gradient()
//    holds the sums.
// 3. clear() begins the next window.
//
// The table in window_state.cpp says what may happen when, and what state follows. Calls only go downward:
// from here to the keeper, from there to the sums over ranks (bucket_sum.h) and to the window
// (grad_window.h).
#include "deepspeed/zero/gradients/grad_reducer.h"

#include <algorithm>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::zero {
namespace {

[[noreturn]] void refuse_gradient_after_step_began(const NamedTensor& param) {
  param.tensor.mutable_grad().reset();
  raise<UsageError>(
      "parameter '", param.name,
      "' received a gradient in another backward() after that at the accumulation boundary, which has begun "
      "the step: call step() first, or set zero_optimization.offload_optimizer.super_offload to false");
}

}  // namespace

GradReducer::GradReducer(ParamStore& store, ZeroGroups ranks, ReducerOptions options, SumUse use,
                         bool always_reduces, MakeKeeper make_keeper)
    : parts_(store, std::move(ranks), std::move(options), std::move(use), always_reduces),
      keeper_(make_keeper(parts_)) {}

void GradReducer::on_gradient(size_t group, size_t param) {
  if (is_paused()) return;
  const bool is_foreign = is_foreign_ && !parts_.window.is_announced() && is_foreign_();
  switch (parts_.window.on_gradient(is_foreign)) {
    case GradWindow::Arrival::kRefused:
      return refuse_gradient_after_step_began(parts_.param(group, param));
    case GradWindow::Arrival::kTaken:
      return keeper_->take_gradient(group, param);
    case GradWindow::Arrival::kLeft:
      return;
  }
}

void GradReducer::finish_backward() {
  if (is_paused()) return;
  if (parts_.window.take_left_gradients()) take_from_params();
  reduce_backward();
}

void GradReducer::reduce_backward() {
  keeper_->complete_backward();
  parts_.window.note(boundary() ? WindowEvent::kEndAtBoundary : WindowEvent::kEnd);
  // Every rank first completes its collectives, so that the others do not wait for one that throws.
  if (boundary()) check_all_used();
}

void GradReducer::complete_window() {
  if (!parts_.window.is_unreduced()) return keeper_->complete_reduced_window();
  set_boundary(true);
  reduce_backward();
}

bool GradReducer::take_given_grads() {
  if (!parts_.window.is_idle() || !keeper_->put_given_grads()) return false;
  return parts_.window.note(WindowEvent::kEndAtBoundary);
}

void GradReducer::on_unit_done(size_t unit) {
  // A backward that accumulates nothing, such as torch::autograd::grad(), is ignored. A backward whose
  // gradients stay in the parameters is not handled yet at this point.
  if (!is_open() || parts_.window.has_left_gradients()) return;
  parts_.plan.open_gates(unit);
  keeper_->launch_complete();
}

void GradReducer::forget_dropped() {
  if (!parts_.window.has_left_gradients()) return;
  for (const StoredGroup& stored : parts_.store.groups()) {
    for (const NamedTensor& param : stored.params) {
      if (param.tensor.grad().defined()) return;
    }
  }
  parts_.window.forget_left_gradients();
}

at::Tensor GradReducer::sums(size_t group) const {
  const std::vector<bool>& params = keeper_->used().at(group);
  const bool has_any = std::find(params.begin(), params.end(), true) != params.end();
  return has_any ? gradient(group) : at::Tensor();
}

at::Tensor GradReducer::local_gradient(size_t group, size_t param) const {
  return is_paused() ? parts_.gradient_of(group, param) : keeper_->local_gradient(group, param);
}

at::Tensor GradReducer::local_gradients(size_t group) const {
  const at::Tensor flat = keeper_->local_gradients(group);
  if (flat.defined()) return flat;
  raise<UsageError>("gradients of one rank alone are kept at stages 0 and 1, this is stage ",
                    parts_.store.stage());
}

void GradReducer::set_gradients(size_t group, at::Tensor flat) {
  if (keeper_->set_gradients(group, std::move(flat))) return;
  raise<UsageError>("gradients are replaced at stages 0 and 1, this is stage ", parts_.store.stage());
}

std::vector<OwnedPart> GradReducer::final_parts() const {
  std::vector<OwnedPart> parts;
  for (const Bucket& bucket : parts_.plan.buckets()) {
    const Interval kept = parts_.plan.space().own_part(bucket).in_kept;
    if (!kept.empty()) parts.push_back({bucket.group, kept});
  }
  return parts;
}

std::function<void()> GradReducer::hand_over(size_t group, const Interval& part) {
  if (auto wait = keeper_->hand_over(group, part)) return wait;
  const auto is_there = std::make_shared<device::StreamEvent>(parts_.store.options().device());
  return [is_there] { is_there->wait(); };
}

void GradReducer::clear() {
  // Abandoned gradients must not reach the listener.
  const auto listener = std::exchange(parts_.on_final, nullptr);
  // No rank has begun to reduce gradients that are still in the parameters.
  if (parts_.window.has_left_gradients()) drop_from_params();
  parts_.window.forget_left_gradients();
  if (is_open()) {
    keeper_->abandon_backward();
    parts_.window.note(WindowEvent::kEnd);
  }
  parts_.on_final = listener;
  keeper_->clear_window();
  parts_.sum.clear_non_finite();
  parts_.window.clear();
}

void GradReducer::set_bucket_numel(int64_t numel) {
  if (!parts_.window.note(WindowEvent::kLayBuckets))
    raise<UsageError>(
        "new bucket sizes within a backward; call allreduce_gradients(bucket_size) before it or after it");
  if (numel < 1) raise<UsageError>("bucket_size ", numel, ", expected at least 1 element");
  parts_.plan.lay_out(numel);
  scale_errors(0.0);
  keeper_->forget_bucket_sizes();
}

void GradReducer::set_averaging(const Averaging& averaging) {
  if (is_open()) raise<UsageError>("set_gradient_average() within a backward: call it before it or after it");
  parts_.options.averaging = averaging;
}

void GradReducer::pause() {
  if (!parts_.window.note(WindowEvent::kPause))
    raise<UsageError>("pause() within a backward; call it before or after it");
}

void GradReducer::resume() {
  parts_.window.note(WindowEvent::kResume);
  take_from_params();
  reduce_backward();
}

void GradReducer::resume_without_gradients() {
  parts_.window.note(WindowEvent::kResume);
  drop_from_params();
  clear();
}

// Backward produces the last parameters' gradients first. This order completes the buckets in launch order.
void GradReducer::take_from_params() {
  const auto& groups = parts_.store.groups();
  for (size_t group = groups.size(); group-- > 0;) {
    for (size_t param = groups[group].params.size(); param-- > 0;) {
      if (!groups[group].params[param].tensor.grad().defined()) continue;
      parts_.window.note(WindowEvent::kGradient);
      keeper_->take_gradient(group, param);
    }
  }
}

void GradReducer::drop_from_params() {
  for (const StoredGroup& stored : parts_.store.groups()) {
    for (const NamedTensor& param : stored.params) param.tensor.mutable_grad().reset();
  }
}

void GradReducer::check_all_used() const {
  if (parts_.options.keys.ignore_unused_parameters) return;
  const std::vector<std::vector<bool>>& used = keeper_->used();
  for (size_t group = 0; group < used.size(); ++group) {
    for (size_t param = 0; param < used[group].size(); ++param) {
      if (used[group][param]) continue;
      raise<UsageError>(
          "parameter '", parts_.param(group, param).name, "' received no gradient on rank ",
          parts_.ranks.data.rank(),
          "; zero_optimization.ignore_unused_parameters is false, set it to true to allow this");
    }
  }
}

std::unique_ptr<GradReducer> make_full_gradients(ParamStore& store, ZeroGroups ranks, ReducerOptions options,
                                                 SumUse use) {
  return std::make_unique<GradReducer>(store, std::move(ranks), std::move(options), std::move(use),
                                       /*always_reduces=*/false, &make_full_keeper);
}

std::unique_ptr<GradReducer> make_partitioned_gradients(ParamStore& store, ZeroGroups ranks,
                                                        ReducerOptions options, SumUse use) {
  const bool always_reduces = store.partitions_gradients();
  return std::make_unique<GradReducer>(store, std::move(ranks), std::move(options), std::move(use),
                                       always_reduces, &make_partitioned_keeper);
}

}  // namespace deepspeed::zero
