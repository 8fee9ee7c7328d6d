#include "deepspeed/zero/zero_optimizer.h"

#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/kernels/grad_stats.h"
#include "deepspeed/precision/grad_clip.h"
#include "deepspeed/zero/cut_parameters.h"

namespace deepspeed::zero {

ZeroOptimizer::ZeroOptimizer(std::unique_ptr<ParamStore> store, std::unique_ptr<optim::Optimizer> optimizer,
                             std::unique_ptr<precision::LossScaler> scaler, comm::ProcessGroup group,
                             const ZeroOptions& options)
    : options_(options),
      group_(group.at_position(micro_step_)),
      store_(std::move(store)),
      optimizer_(std::move(optimizer)),
      scaler_(std::move(scaler)) {
  check_options();
  ReducerOptions reducer = reducer_options();
  for (size_t index = 0; index < store_->groups().size(); ++index) {
    slices_.push_back(make_slice(index));
    reducer.owned.push_back(slices_.back().interval);
  }
  // The slices hold pointers to their segments: set them once the vector no longer moves.
  for (OwnedSlice& owned : slices_) owned.slice.segments = &owned.segments;
  reducer_ = options_.stage >= 2 ? make_partitioned_gradients(*store_, group_, reducer)
                                 : make_full_gradients(*store_, group_, reducer);
  hooks_ = std::make_unique<GradHooks>(*store_, *reducer_);
}

void ZeroOptimizer::check_options() const {
  constexpr const char* kWhere = "zero.optimizer";
  if (options_.stage < 0 || options_.stage > 3)
    raise<UsageError>(kWhere, "stage ", options_.stage, ", expected 0 to 3");
  const bool is_sharded = !store_->groups().empty() && store_->shards(0) != nullptr;
  if (is_sharded != (options_.stage == 3)) {
    raise<UsageError>(kWhere, "stage ", options_.stage, " with parameters that are ",
                      is_sharded ? "" : "not ", "partitioned, which stage 3 alone is for");
  }
  if (options_.stage > 0 && !optimizer_->steps_cut_parameters()) {
    raise<UsageError>(kWhere, "optimizer ", optimizer_->name(), " needs whole parameters, which ZeRO stage ",
                      options_.stage, " cuts; use stage 0");
  }
  if (options_.stage == 3 && !optimizer_->is_elementwise()) {
    raise<UsageError>(kWhere, "optimizer ", optimizer_->name(),
                      " needs norms or shapes of whole parameters, which stage 3 does not join; use a stage "
                      "from 0 to 2");
  }
  if (options_.sixteen_bit_masters && store_->dtype() == at::kFloat)
    raise<UsageError>(kWhere, "16-bit masters of a model in fp32; enable fp16 or bf16");
}

ReducerOptions ZeroOptimizer::reducer_options() const {
  ReducerOptions reducer;
  reducer.bucket_numel = options_.reduce_bucket_numel;
  reducer.overlap = options_.overlap_comm;
  reducer.contiguous = options_.contiguous_gradients;
  reducer.owners_together = options_.multi_rank_buckets;
  reducer.allow_unused = options_.ignore_unused_parameters;
  reducer.to_owners = options_.stage > 0 && options_.reduce_scatter;
  // A gradient of another dtype than its parameter's cannot be shown as its grad.
  const bool same_dtype = options_.accumulation_dtype.value_or(store_->dtype()) == store_->dtype();
  reducer.keep_param_grads = options_.stage == 0 && same_dtype;
  reducer.trace_non_finite = options_.check_overflow;
  reducer.communication_dtype = options_.communication_dtype;
  reducer.param_communication_dtypes = options_.param_communication_dtypes;
  reducer.by_rows = options_.by_rows;
  reducer.accumulation_dtype = options_.accumulation_dtype;
  reducer.averaging = options_.averaging;
  return reducer;
}

ZeroOptimizer::~ZeroOptimizer() = default;

ZeroOptimizer::OwnedSlice ZeroOptimizer::make_slice(size_t index) const {
  const StoredGroup& stored = store_->groups()[index];
  OwnedSlice owned;
  const ShardLayout* const shards = store_->shards(index);
  owned.interval = shards != nullptr     ? Interval{0, shards->flat_numel()}
                   : options_.stage == 0 ? Interval{0, stored.layout.padded_numel()}
                                         : stored.layout.partition(group_.rank());
  for (const ParamPiece& piece : pieces_of(index, owned.interval)) {
    owned.segments.push_back({static_cast<int64_t>(piece.index), piece.in_interval, piece.offset_in_param,
                              stored.params[piece.index].tensor.sizes().vec()});
  }
  if (options_.stage > 0 && !optimizer_->is_elementwise()) {
    owned.cut = make_cut_parameters(stored, group_);
    owned.slice.cut = owned.cut.get();
  }
  const at::Tensor weights = stored.flat.narrow(0, owned.interval.begin, owned.interval.numel());
  owned.slice.id = index;
  owned.slice.group = index;
  if (store_->dtype() == at::kFloat) {
    owned.slice.master = weights;
  } else {
    owned.slice.low_precision = weights;
    if (has_master_weights()) owned.slice.master = weights.to(at::kFloat);
  }
  return owned;
}

std::vector<ParamPiece> ZeroOptimizer::pieces_of(size_t group, const Interval& interval) const {
  const ShardLayout* const shards = store_->shards(group);
  return shards != nullptr ? shards->pieces(interval, group_.rank())
                           : store_->groups()[group].layout.pieces(interval);
}

std::vector<ParamPiece> ZeroOptimizer::pieces(size_t group) const { return pieces_of(group, owned(group)); }

at::Tensor ZeroOptimizer::master(size_t group) const {
  follow_written_shards(group);
  const optim::FlatSlice& slice = slices_[group].slice;
  return options_.sixteen_bit_masters ? slice.low_precision : slice.master;
}

void ZeroOptimizer::follow_written_shards(size_t group) const {
  if (options_.stage != 3) return;
  const c10::NoGradGuard no_grad;
  const optim::FlatSlice& slice = slices_[group].slice;
  for (const size_t param : store_->take_set(group)) {
    if (!has_master_weights()) continue;  // the shards are what is updated
    const Interval place = store_->shards(group)->place(param);
    slice.master.narrow(0, place.begin, place.numel())
        .copy_(slice.low_precision.narrow(0, place.begin, place.numel()));
  }
}

// In fp32 at stage 0 without clipping nobody needs the norm, and DeepSpeed has none to give.
bool ZeroOptimizer::norm_is_wanted() const {
  return options_.gradient_clipping > 0.0 || options_.check_overflow || options_.stage > 0 ||
         store_->dtype() != at::kFloat;
}

at::Tensor ZeroOptimizer::sum_of_squares() const {
  const auto options = store_->groups().front().flat.options().dtype(at::kDouble);
  at::Tensor sum = at::zeros({1}, options);
  for (size_t index = 0; index < slices_.size(); ++index) {
    sum.add_(kernels::sum_of_squares(reducer_->gradient(index)));
  }
  // What is not finite on one rank stays so in the sum.
  if (options_.stage > 0 && group_.size() > 1) group_.all_reduce(sum);
  return sum;
}

std::optional<ParamPlace> ZeroOptimizer::non_finite_in_slices() const {
  for (size_t index = slices_.size(); index-- > 0;) {
    const at::Tensor gradient = reducer_->gradient(index);
    const auto& segments = slices_[index].segments;
    for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
      if (kernels::grad_stats(optim::part_of(gradient, *segment)).finite) continue;
      return ParamPlace{index, static_cast<size_t>(segment->param_index)};
    }
  }
  return std::nullopt;
}

std::string ZeroOptimizer::describe_non_finite() const {
  const auto describe = [&](const std::optional<ParamPlace>& place, const auto&... where) {
    if (!place) return std::string();
    return message("the gradient of '", store_->groups()[place->group].params[place->param].name,
                   "' is not finite ", where...);
  };
  if (group_.size() == 1) return describe(non_finite_in_slices(), "on rank 0");
  // A sum may overflow where no summand does.
  for (const std::string& own : {describe(reducer_->first_non_finite(), "on rank ", group_.rank()),
                                 describe(non_finite_in_slices(), "in the sum over the ranks")}) {
    for (const std::string& text : group_.all_gather_text(own)) {
      if (!text.empty()) return text;
    }
  }
  return "a gradient is not finite";
}

void ZeroOptimizer::skip_step(int64_t step_number) {
  const std::string cause = describe_non_finite();
  zero_grad();
  if (scaler_->is_exhausted()) {
    raise<UsageError>("zero.optimizer", "step ", step_number, ": ", cause, ", and the loss scale, ",
                      loss_scale(), ", is at its minimum; look for non-finite losses, or train with bf16");
  }
  if (group_.rank() == 0) {
    log::warning("step ", step_number, " is skipped: ", cause, " (loss scale ", loss_scale(), ")");
  }
  scaler_->update(true);
}

void ZeroOptimizer::step_slice(OwnedSlice& owned, double gradient_scale) {
  if (options_.sixteen_bit_masters) owned.slice.master = owned.slice.low_precision.to(at::kFloat);
  owned.slice.gradient = reducer_->gradient(owned.slice.group);
  optimizer_->step(owned.slice, gradient_scale);
  owned.slice.gradient.reset();
  if (options_.sixteen_bit_masters) owned.slice.master.reset();
}

StepResult ZeroOptimizer::step(int64_t step_number) {
  const c10::NoGradGuard no_grad;
  if (reducer_->is_open()) reducer_->finish_backward();
  for (size_t group = 0; group < slices_.size(); ++group) follow_written_shards(group);
  StepResult result;
  // The scale that these gradients were made with, whatever the scaler decides next.
  const double scale = scaler_->scale();
  double gradient_scale = 1.0 / scale;
  if (norm_is_wanted()) result.grad_norm.emplace(sum_of_squares(), scale);
  if (options_.check_overflow && !result.grad_norm->is_finite()) {
    skip_step(step_number);
    return {};
  }
  // Against a norm that is not finite there is nothing to clip.
  if (options_.gradient_clipping > 0.0 && result.grad_norm->is_finite()) {
    gradient_scale =
        precision::combined_gradient_scale(result.grad_norm->of_scaled(), scale, options_.gradient_clipping);
  }
  for (OwnedSlice& owned : slices_) step_slice(owned, gradient_scale);
  gather_parameters();
  scaler_->update(false);
  result.applied = true;
  return result;
}

void ZeroOptimizer::zero_grad() { reducer_->clear(); }

void ZeroOptimizer::gather_parameters() {
  if (options_.stage == 0) return;
  if (options_.stage == 3) return store_->shards_changed();
  for (const StoredGroup& stored : store_->groups()) {
    gather_partitions(group_, stored.flat, stored.layout, options_.gather);
  }
}

MemoryBytes ZeroOptimizer::memory() const {
  MemoryBytes memory;
  memory.parameters = store_->bytes();
  memory.gradients = reducer_->bytes();
  if (has_master_weights()) {
    for (const OwnedSlice& owned : slices_)
      memory.master_weights += static_cast<int64_t>(owned.slice.master.nbytes());
  }
  memory.optimizer_states = optimizer_->state_bytes();
  return memory;
}

void ZeroOptimizer::publish_masters() {
  const c10::NoGradGuard no_grad;
  if (has_master_weights()) {
    for (size_t group = 0; group < slices_.size(); ++group)
      slices_[group].slice.low_precision.copy_(master(group));
  }
  gather_parameters();
}

void ZeroOptimizer::restore_masters_from_model() {
  const c10::NoGradGuard no_grad;
  if (!has_master_weights()) return;
  for (OwnedSlice& owned : slices_) owned.slice.master.copy_(owned.slice.low_precision);
}

}  // namespace deepspeed::zero
