// What both strategies of reduction share. The order of events in a window:
//
// 1. Construction lays the buckets out (lay_out): static, from the partition alone, so that all ranks launch
//    the same collectives in the same order whatever order their gradients come in.
// 2. on_gradient() passes each gradient to the strategy (take_gradient), which puts it into its bucket and
//    launches what is complete (start_sum).
// 3. finish_backward() lets the strategy launch and await the rest; then has_result() says that gradient()
//    holds the sums.
// 4. clear() begins the next window.
//
// What may happen when, and what it leads to, is the table of window_state.cpp.
//
// start_sum() applies averaging.before, the strategies apply averaging.after. Dividing before the sum keeps
// sums in 16 bits from overflowing, dividing after it keeps small values.
#include "deepspeed/zero/gradients/grad_reducer.h"

#include <algorithm>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/device/streams/stream_event.h"
#include "deepspeed/tensor/scaling.h"
#include "deepspeed/zero/gradients/row_exchange.h"

namespace deepspeed::zero {
namespace {

// Smaller buckets would cost more by their number than they save.
constexpr int64_t kLeastBucket = int64_t{2} << 20;
constexpr int64_t kLeastBuckets = 24;  // of a model that is large enough

/// Returns how many elements travel together: at most what the config allows, and so few that the first
/// buckets travel while backward makes the others, whose buffers are then small beside the model.
int64_t bucket_numel(const ParamStore& store, int64_t most) {
  int64_t all = 0;
  for (const FlatLayout& layout : store.layouts()) all += layout.numel();
  return std::min(most, std::max(kLeastBucket, all / kLeastBuckets));
}

std::vector<size_t> params_per_group(const ParamStore& store) {
  std::vector<size_t> counts;
  for (const StoredGroup& group : store.groups()) counts.push_back(group.params.size());
  return counts;
}

// Gradients of fp64 parameters travel in fp64, unless the config names a 16-bit type.
at::ScalarType travelling_dtype(const StoredGroup& group, const NamedTensor& param,
                                const ReducerOptions& options) {
  const bool is_double = group.dtype == at::kDouble;
  const auto own = options.param_communication_dtypes.find(param.tensor.unsafeGetTensorImpl());
  if (own != options.param_communication_dtypes.end() && !is_double) return own->second;
  return is_double && options.communication_dtype == at::kFloat ? at::kDouble : options.communication_dtype;
}

std::vector<std::vector<BucketKind>> bucket_kinds(const ParamStore& store, const ReducerOptions& options) {
  std::vector<std::vector<BucketKind>> kinds;
  size_t num_by_rows = 0;
  for (const StoredGroup& group : store.groups()) {
    std::vector<BucketKind>& of_group = kinds.emplace_back();
    for (const NamedTensor& param : group.params) {
      BucketKind& kind = of_group.emplace_back();
      kind.dtype = travelling_dtype(group, param, options);
      if (options.by_rows.contains(param.tensor.unsafeGetTensorImpl())) {
        kind.by_rows = ++num_by_rows;
      } else {
        // Biases and the weights of norms are little of what is sent, and sensitive.
        kind.is_quantized = options.is_quantized && kind.dtype != at::kDouble && param.tensor.dim() > 1;
      }
      const auto unit = options.units.find(param.tensor.unsafeGetTensorImpl());
      if (unit != options.units.end()) kind.unit = unit->second;
    }
  }
  return kinds;
}

}  // namespace

GradReducer::GradReducer(ParamStore& store, ZeroGroups ranks, ReducerOptions options, SumUse use)
    : store_(store),
      ranks_(std::move(ranks)),
      options_(std::move(options)),
      use_(std::move(use)),
      space_(make_bucket_space(store, ranks_.shard, use_.owned)),
      buckets_(lay_out(bucket_numel(store, options_.keys.reduce_bucket_size))),
      order_(make_order()),
      non_finite_(store) {
  if (options_.is_quantized && ranks_.shard.size() > 1)
    quantized_.emplace(ranks_.node, ranks_.across_nodes, options_.loco);
}

void GradReducer::scale_errors(double factor) {
  if (quantized_) quantized_->scale_errors(factor);
}

NamedErrors GradReducer::errors() const { return quantized_ ? quantized_->errors() : NamedErrors(); }

bool GradReducer::load_errors(const NamedErrors& errors) {
  if (!quantized_) return errors.empty();
  std::vector<int64_t> numels;
  for (const Bucket& bucket : buckets_) numels.push_back(space_->numel(bucket) / ranks_.shard.size());
  return quantized_->load_errors(errors, numels, store_.options().device());
}

bool GradReducer::travel_together() const { return options_.keys.contiguous_gradients; }

std::vector<Bucket> GradReducer::lay_out(int64_t numel) const {
  return make_buckets(store_.layouts(), travel_together() ? numel : 1, bucket_kinds(store_, options_));
}

LaunchOrder GradReducer::make_order() const {
  std::vector<bool> is_gated;
  for (const Bucket& bucket : buckets_) is_gated.push_back(bucket.kind.unit > 0);
  return {buckets_, params_per_group(store_), std::move(is_gated)};
}

bool GradReducer::note(WindowEvent event) {
  const std::optional<WindowState> next = after(state_, event);
  if (next) state_ = *next;
  return next.has_value();
}

void GradReducer::on_gradient(size_t group, size_t param) {
  if (is_paused()) return;
  const WindowState before = state_;
  if (!note(WindowEvent::kGradient)) refuse_gradient_after_step_began(group, param);
  if (!leaves_unannounced_ || is_announced_) return take_gradient(group, param);
  if (!left_in_) left_in_ = before;
}

void GradReducer::take_left() {
  if (std::exchange(left_in_, std::nullopt)) take_from_params();
}

void GradReducer::forget_dropped() {
  if (!left_in_) return;
  for (const StoredGroup& stored : store_.groups()) {
    for (const NamedTensor& param : stored.params) {
      if (param.tensor.grad().defined()) return;
    }
  }
  state_ = *std::exchange(left_in_, std::nullopt);
}

void GradReducer::on_unit_done(size_t unit) {
  // A backward that accumulates nothing, such as that of torch::autograd::grad(), does not concern the
  // reducer.
  if (!is_open()) return;
  for (size_t index = 0; index < buckets_.size(); ++index) {
    if (buckets_[index].kind.unit == unit) order_.open_gate(index);
  }
  launch_complete();
}

void GradReducer::set_bucket_numel(int64_t numel) {
  if (!note(WindowEvent::kLayBuckets))
    raise<UsageError>(
        "new bucket sizes within a backward; call allreduce_gradients(bucket_size) before it or after it");
  if (numel < 1) raise<UsageError>("bucket_size ", numel, ", expected at least 1 element");
  buckets_ = lay_out(numel);
  scale_errors(0.0);
  order_ = make_order();
  forget_bucket_sizes();
}

bool GradReducer::take_given_grads() {
  if (state_ != WindowState::kIdle || !put_given_grads()) return false;
  return note(WindowEvent::kEndAtBoundary);
}

at::Tensor GradReducer::sums(size_t group) const {
  const std::vector<bool>& params = used().at(group);
  const bool has_any = std::find(params.begin(), params.end(), true) != params.end();
  return has_any ? gradient(group) : at::Tensor();
}

void GradReducer::set_averaging(const Averaging& averaging) {
  if (is_open()) raise<UsageError>("set_gradient_average() within a backward: call it before it or after it");
  options_.averaging = averaging;
}

void GradReducer::reduce_backward() {
  complete_backward();
  note(boundary_ ? WindowEvent::kEndAtBoundary : WindowEvent::kEnd);
  // Every rank gets through its collectives first, so that the others do not wait for one that throws.
  if (boundary_) check_all_used();
}

void GradReducer::clear() {
  const auto listener = std::exchange(on_final_, nullptr);  // abandoned gradients must not reach the listener
  // No rank has begun to reduce gradients that are still in the parameters.
  if (left_in_) state_ = *std::exchange(left_in_, std::nullopt);
  if (is_open()) {
    abandon_backward();
    note(WindowEvent::kEnd);
  }
  on_final_ = listener;
  clear_window();
  non_finite_.clear();
  note(WindowEvent::kClear);
  if (!is_paused()) has_failed_ = false;
}

std::vector<OwnedPart> GradReducer::final_parts() const {
  std::vector<OwnedPart> parts;
  for (const Bucket& bucket : buckets_) {
    const Interval kept = space_->own_part(bucket).in_kept;
    if (!kept.empty()) parts.push_back({bucket.group, kept});
  }
  return parts;
}

void GradReducer::give_out(const OwnedPart& part) {
  note(WindowEvent::kFinalPart);
  on_final_(part);
}

std::function<void()> GradReducer::hand_over(size_t, const Interval&) {
  const auto is_there = std::make_shared<device::StreamEvent>(store_.options().device());
  return [is_there] { is_there->wait(); };
}

at::Tensor GradReducer::local_gradients(size_t) const {
  raise<UsageError>("gradients of one rank alone are kept at stages 0 and 1, this is stage ", store_.stage());
}

void GradReducer::set_gradients(size_t, at::Tensor) {
  raise<UsageError>("gradients are replaced at stages 0 and 1, this is stage ", store_.stage());
}

void GradReducer::pause() {
  if (!note(WindowEvent::kPause)) raise<UsageError>("pause() within a backward; call it before or after it");
}

void GradReducer::resume() {
  note(WindowEvent::kResume);
  take_from_params();
  reduce_backward();
}

// Backward would have brought the last parameters first; that order completes the buckets in launch order.
void GradReducer::take_from_params() {
  for (size_t group = store_.groups().size(); group-- > 0;) {
    for (size_t param = store_.groups()[group].params.size(); param-- > 0;) {
      if (!store_.groups()[group].params[param].tensor.grad().defined()) continue;
      note(WindowEvent::kGradient);
      take_gradient(group, param);
    }
  }
}

void GradReducer::resume_without_gradients() {
  note(WindowEvent::kResume);
  for (StoredGroup& stored : store_.groups()) {
    for (NamedTensor& param : stored.params) param.tensor.mutable_grad().reset();
  }
  clear();
}

GradReducer::Works GradReducer::start_sum_of(const Bucket& bucket, const at::Tensor& travelling,
                                             const comm::OwnSum& own) {
  if (bucket.kind.is_quantized) return {quantized_->start(travelling, size_t(&bucket - buckets_.data()))};
  if (!sums_for_owners()) return {ranks_.shard.start_all_reduce(travelling)};
  const std::vector<Interval> owned = space_->owned(bucket);
  if (options_.keys.use_multi_rank_bucket_allreduce)
    return {ranks_.shard.start_reduce_to_owners(travelling, owned, own)};
  Works works;
  for (size_t owner = 0; owner < owned.size(); ++owner) {
    if (owned[owner].empty()) continue;
    std::vector<Interval> alone(owned.size());
    alone[owner] = owned[owner];
    const bool is_own = owner == static_cast<size_t>(ranks_.shard.rank());
    works.push_back(ranks_.shard.start_reduce_to_owners(travelling, alone, is_own ? own : comm::OwnSum{}));
  }
  return works;
}

bool GradReducer::puts_sums_elsewhere(const Bucket& bucket, const at::Tensor& values) const {
  return sums_for_owners() && ranks_.shard.size() > 1 && !bucket.kind.is_quantized &&
         bucket.kind.dtype == values.scalar_type();
}

GradReducer::Works GradReducer::start_sum(const Bucket& bucket, const at::Tensor& values,
                                          const comm::OwnSum& own) {
  if (use_.trace_non_finite) non_finite_.note(bucket, space_->gradients(bucket, values));
  scale(values, options_.averaging.before);
  if (ranks_.shard.size() == 1) return {};
  const at::ScalarType dtype = bucket.kind.dtype;
  if (dtype == values.scalar_type()) return start_sum_of(bucket, values, own);
  const at::Tensor travelling = values.to(dtype);
  converted_.push_back({values.data_ptr(), travelling});
  return start_sum_of(bucket, travelling, {});
}

bool GradReducer::travels_by_rows(const Bucket& bucket) const { return bucket.kind.by_rows > 0; }

void GradReducer::sum_by_rows(const Bucket& bucket, const at::Tensor& values) {
  if (use_.trace_non_finite) non_finite_.note(bucket, space_->gradients(bucket, values));
  scale(values, options_.averaging.before);
  const at::Tensor& param = store_.groups()[bucket.group].params[bucket.params[0]].tensor;
  sum_rows(ranks_.data, values.view({param.size(0), -1}), bucket.kind.dtype);
}

void GradReducer::finish_sum(const at::Tensor& values, Works& works) {
  for (comm::Work& work : works) work.wait();
  const auto entry = std::find_if(converted_.begin(), converted_.end(),
                                  [&](const Converted& one) { return one.values == values.data_ptr(); });
  if (entry == converted_.end()) return;
  values.copy_(entry->travelling);
  converted_.erase(entry);
}

at::TensorOptions GradReducer::kept_options(size_t group) const {
  const at::TensorOptions own = store_.options(group);
  const bool has_other = options_.accumulation_dtype && store_.groups()[group].dtype != at::kDouble;
  return has_other ? own.dtype(*options_.accumulation_dtype) : own;
}

void GradReducer::scale_after(const at::Tensor& tensor) const { scale(tensor, options_.averaging.after); }

void GradReducer::check_all_used() const {
  if (options_.keys.ignore_unused_parameters) return;
  for (size_t group = 0; group < used().size(); ++group) {
    for (size_t param = 0; param < used()[group].size(); ++param) {
      if (used()[group][param]) continue;
      raise<UsageError>(
          "parameter '", store_.groups()[group].params[param].name, "' received no gradient on rank ",
          ranks_.data.rank(),
          "; zero_optimization.ignore_unused_parameters is false, set it to true to allow this");
    }
  }
}

void GradReducer::refuse_gradient_after_step_began(size_t group, size_t param) {
  const NamedTensor& place = store_.groups()[group].params[param];
  place.tensor.mutable_grad().reset();
  raise<UsageError>(
      "parameter '", place.name,
      "' received a gradient in another backward() after that at the accumulation boundary, which has begun "
      "the step: call step() first, or set zero_optimization.offload_optimizer.super_offload to false");
}

void GradReducer::refuse_late_gradient(size_t group, size_t param) const {
  raise<UsageError>(
      "parameter '", store_.groups()[group].params[param].name,
      "' received another gradient after super_offload began its step: several parts of the graph that run a "
      "backward of their own use it. Set zero_optimization.offload_optimizer.super_offload to false");
}

}  // namespace deepspeed::zero
