// The order of events in a step:
// 1. Gradients left by a direct backward are reduced, and the norm is taken if it is needed.
// 2. Slices are stepped, or the slices that backward has begun to step are published.
// 3. At stages 1 and 2 all ranks gather the new parameters.
// A step that overflows ends before its slices are stepped. On a GPU whose kernels skip such a step
// themselves, the host first gives the whole step to the device, then reads the norm.
#include "deepspeed/zero/zero_optimizer.h"

#include <string>
#include <utility>

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/kernels/grad_stats.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/zero/compressed_exchange.h"
#include "deepspeed/zero/gradients/grad_hooks.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/non_finite_cause.h"
#include "deepspeed/zero/offload/optimizer_offload.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/step_agreement.h"
#include "deepspeed/zero/step_result.h"
#include "deepspeed/zero/update/early_step.h"
#include "deepspeed/zero/update/grad_norm.h"
#include "deepspeed/zero/update/gradient_scale.h"
#include "deepspeed/zero/update/slice_set.h"
#include "deepspeed/zero/update/slice_stepper.h"
#include "deepspeed/zero/update/step_options.h"
#include "deepspeed/zero/zero_options.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed::zero {
namespace {

// The errors of quantized sums are those of gradients with this loss scale.
constexpr const char* kErrorScale = "loco.loss_scale";

// Returns groups for the optimizer's collectives, in which ranks at different steps get an error.
ZeroGroups watched(ZeroGroups ranks, const StepAgreement& agreement,
                   const std::shared_ptr<std::atomic<int64_t>>& micro_step) {
  for (comm::ProcessGroup* const group :
       {&ranks.data, &ranks.shard, &ranks.replica, &ranks.model, &ranks.node, &ranks.across_nodes})
    if (*group) *group = agreement.watch(group->at_position(micro_step));
  return ranks;
}

}  // namespace

ZeroOptimizer::ZeroOptimizer(std::unique_ptr<ParamStore> store, std::unique_ptr<optim::Optimizer> optimizer,
                             std::unique_ptr<precision::LossScaler> scaler, const ZeroGroups& ranks,
                             const ZeroOptions& options)
    : options_(std::make_unique<const ZeroOptions>(options)),
      micro_step_(std::make_shared<std::atomic<int64_t>>(0)),
      agreement_(std::make_unique<StepAgreement>()),
      ranks_(std::make_unique<const ZeroGroups>(watched(ranks, *agreement_, micro_step_))),
      store_(std::move(store)),
      optimizer_(std::move(optimizer)),
      scaler_(std::move(scaler)) {
  check_step_options(options_->update, *store_, *optimizer_, *ranks_);
  state_ = std::make_unique<ZeroState>(*store_, *optimizer_, *ranks_, *options_);
  stepper_ = std::make_unique<SliceStepper>(*store_, *optimizer_, state_->slices(), options_->update.offload);
  reducer_ = make_reducer();
  early_ = state_->early_step();
  if (early_) {
    reducer_->on_final([this](const OwnedPart& part) {
      const c10::NoGradGuard no_grad;
      early_->add_gradients(*reducer_, part, 1.0 / scaler_->scale());
    });
  }
  if (optimizer_->compresses_exchange()) {
    exchange_ = std::make_unique<CompressedExchange>(*store_, *optimizer_, *state_, ranks_->data);
    reducer_->keep_local([this] { return exchange_->keeps_gradients(); });
    stepper_->reach_ranks_by(exchange_->means());
  }
  hooks_ = std::make_unique<GradHooks>(*store_, *reducer_);
}

bool ZeroOptimizer::keeps_gradients() const { return exchange_ && exchange_->keeps_gradients(); }

std::unique_ptr<GradReducer> ZeroOptimizer::make_reducer() {
  SumUse use;
  for (size_t index = 0; index < store_->groups().size(); ++index) use.owned.push_back(state_->owned(index));
  use.offload = options_->update.offload;
  use.trace_non_finite = options_->update.check_overflow;
  // Optimizers that compress what ranks exchange need each rank's own gradients, whole.
  const bool keeps_own_part = store_->partitions_states() && !optimizer_->compresses_exchange();
  const auto make = keeps_own_part ? make_partitioned_gradients : make_full_gradients;
  return make(*store_, *ranks_, options_->gradients, std::move(use));
}

ZeroOptimizer::~ZeroOptimizer() = default;

void ZeroOptimizer::retire() noexcept { hooks_.reset(); }

std::vector<optim::ParamGroup>& ZeroOptimizer::param_groups() { return optimizer_->param_groups(); }

double ZeroOptimizer::loss_scale() const { return scaler_->scale(); }

int ZeroOptimizer::stage() const { return store_->stage(); }

void ZeroOptimizer::set_batch(const BatchSettings& batch) {
  agreement_->set_batch(batch);
  tell_ranks();
}

void ZeroOptimizer::tell_ranks() {
  if (ranks_->data.size() > 1 || ranks_->model) agreement_->tell(param_groups(), loss_scale());
}

void ZeroOptimizer::on_unit_done(size_t unit) {
  if (hooks_) hooks_->on_unit_done(unit);
}

at::Tensor ZeroOptimizer::gradient(size_t group) const {
  state_->check_no_step_has_begun();
  return reducer_->gradient(group);
}

// In fp32 at stage 0 without clipping the norm is not needed, and DeepSpeed reports none.
bool ZeroOptimizer::norm_is_wanted() const {
  return options_->update.gradient_clipping > 0.0 || options_->update.check_overflow ||
         store_->partitions_states() || store_->dtype() != at::kFloat;
}

at::Tensor ZeroOptimizer::sum_of_squares() const {
  if (keeps_gradients()) return exchange_->mean_square(*reducer_);
  const auto options = store_->options().dtype(at::kDouble);
  at::Tensor sum = at::zeros({1}, options);
  for (size_t index = 0; index < store_->groups().size(); ++index) {
    if (state_->has_begun()) {
      early_->add_squares(*reducer_, index, sum);
    } else {
      add_squares(index, sum);
    }
  }
  // A value that is not finite on one rank stays so in the sum.
  if (store_->partitions_states() && ranks_->shard.size() > 1) ranks_->shard.all_reduce(sum);
  if (ranks_->model) ranks_->model.all_reduce(sum);
  return sum;
}

void ZeroOptimizer::add_squares(size_t group, const at::Tensor& sum) const {
  const at::Tensor gradient = reducer_->gradient(group);
  const ParamSet& counted_elsewhere = options_->update.counted_elsewhere;
  if (counted_elsewhere.empty()) return add_squares_of(gradient, sum);
  for (const ParamPiece& piece : state_->pieces(group)) {
    const at::Tensor& param = store_->groups()[group].params[piece.index].tensor;
    if (counted_elsewhere.count(param.unsafeGetTensorImpl()) > 0) continue;
    add_squares_of(gradient.narrow(0, piece.in_interval.begin, piece.in_interval.numel()), sum);
  }
}

void ZeroOptimizer::rely_on(std::vector<comm::ProcessGroup> groups) { relied_on_ = std::move(groups); }

void ZeroOptimizer::check_groups() const {
  ranks_->check();
  for (const comm::ProcessGroup& group : relied_on_) group.check();
}

void ZeroOptimizer::skip_step(int64_t step_number) {
  const std::string cause = non_finite_cause(*store_, *state_, *reducer_, *ranks_, keeps_gradients());
  zero_grad();
  reducer_->scale_errors(0.0);
  if (scaler_->is_exhausted()) {
    raise<UsageError>("step ", step_number, ": ", cause, ", and the loss scale, ", loss_scale(),
                      ", is at its minimum; look for non-finite losses, or train with bf16");
  }
  if (ranks_->data.rank() == 0 && (!ranks_->model || ranks_->model.rank() == 0)) {
    log::warning("step ", step_number, " is skipped: ", cause, " (loss scale ", loss_scale(), ")",
                 exchange_ ? message("; ", optimizer_->name(), " exchanges nothing in it") : "");
  }
  scaler_->update(true);
}

bool ZeroOptimizer::scales_on_device() const {
  return store_->options().device().is_cuda() && !options_->update.offload.is_on() &&
         optimizer_->takes_scale_on_device();
}

bool ZeroOptimizer::skips_on_device() const {
  return options_->update.check_overflow && scales_on_device() && optimizer_->skips_on_device() &&
         state_->slices().are_stepped_in_place();
}

GradientScale ZeroOptimizer::scale_by(const GradNorm& norm, double loss_scale) const {
  const double clip = options_->update.gradient_clipping;
  if (skips_on_device()) return GradientScale(norm.scale_on_device(clip, kernels::NonFinite::kSkipped));
  if (clip <= 0.0) return 1.0 / loss_scale;
  if (scales_on_device()) return GradientScale(norm.scale_on_device(clip, kernels::NonFinite::kApplied));
  // Gradients are not clipped against a norm that is not finite.
  if (!norm.is_finite()) return 1.0 / loss_scale;
  return precision::combined_gradient_scale(norm.of_scaled(), loss_scale, clip);
}

void ZeroOptimizer::step_slices(int64_t step_number, const GradientScale& gradient_scale) {
  const auto step = [&] {
    state_->on_all_ranks("the optimizer's step", [&] {
      const std::vector<size_t> rest = state_->has_begun() ? early_->not_begun() : state_->slices().all();
      if (state_->has_begun()) early_->publish(*reducer_, *stepper_);
      stepper_->step(rest, *reducer_, gradient_scale);
    });
  };
  if (!state_->uses_disk() && !state_->has_begun()) return step();
  state_->note_damage_of(step_number, step);
}

StepResult ZeroOptimizer::step(int64_t step_number) {
  const c10::NoGradGuard no_grad;
  if (!hooks_) {
    raise<UsageError>(
        "step() of an optimizer whose engine is gone, or was ended by destroy(): the model is no "
        "longer its own; make another engine by initialize()");
  }
  state_->check_undamaged();
  if (reducer_->is_open()) reducer_->finish_backward();
  if (state_->has_begun()) {
    state_->note_damage_of(step_number, [&] {
      early_->check_unchanged();
      if (options_->update.check_overflow) early_->wait_for_worker();
    });
  } else {
    state_->slices().note_written_weights();
  }
  StepResult result;
  // This is the scale of these gradients, whatever the scaler decides next.
  const double scale = scaler_->scale();
  GradientScale gradient_scale = 1.0 / scale;
  // A step on the host that does not depend on the norm starts before the last gradients have arrived.
  const bool norm_comes_first = options_->update.gradient_clipping > 0.0 || options_->update.check_overflow ||
                                !options_->update.offload.is_on();
  const auto take_norm = [&] {
    if (norm_is_wanted()) result.grad_norm.emplace(sum_of_squares(), scale);
  };
  if (norm_comes_first) take_norm();
  // NCCL may fail after the wait for a sum, which does not block the host. The norm was then not made of
  // gradients.
  const auto is_finite = [&] {
    const bool finite = result.grad_norm->is_finite();
    check_groups();
    return finite;
  };
  const bool reads_last = skips_on_device();
  if (reads_last) result.grad_norm->start_reading();
  if (options_->update.check_overflow && !reads_last && !is_finite()) {
    if (state_->has_begun())
      state_->note_damage_of(step_number, [&] { early_->take_back(*reducer_, gradient_scale.value); });
    skip_step(step_number);
    return {};
  }
  if (norm_comes_first && result.grad_norm) gradient_scale = scale_by(*result.grad_norm, scale);
  if (exchange_) gradient_scale = exchange_->exchange(*reducer_, gradient_scale.value);
  step_slices(step_number, gradient_scale);
  if (!norm_comes_first) take_norm();
  if (early_) early_->close();
  check_groups();  // a step on the host has waited for the gradients
  state_->gather_parameters();
  if (reads_last && !is_finite()) {
    for (const size_t index : state_->slices().all())
      optimizer_->forget_step(state_->slices()[index].flat.id);
    skip_step(step_number);
    return {};
  }
  scaler_->update(false);
  if (scaler_->scale() != scale) reducer_->scale_errors(scaler_->scale() / scale);
  result.applied = true;
  return result;
}

void ZeroOptimizer::zero_grad() {
  state_->check_no_step_has_begun();
  reducer_->clear();
}

bool ZeroOptimizer::keeps_errors() const {
  return exchange_ ? exchange_->keeps_gradients() : reducer_->keeps_errors();
}

RankState ZeroOptimizer::rank_state() const {
  if (exchange_) return exchange_->rank_state();
  if (!reducer_->keeps_errors()) return {};
  RankState own{ranks_->data.size(), reducer_->errors()};
  own.tensors.emplace_back(kErrorScale, at::scalar_tensor(scaler_->scale(), at::kDouble));
  return own;
}

bool ZeroOptimizer::load_rank_state(const RankState& own) {
  if (exchange_) return exchange_->load_rank_state(own);
  if (!reducer_->keeps_errors()) return true;
  RankState errors = own;
  double scale = 0;
  std::erase_if(errors.tensors, [&](const auto& item) {
    if (item.first != kErrorScale) return false;
    scale = item.second.template item<double>();
    return true;
  });
  const bool fits =
      own.num_ranks == ranks_->data.size() && scale > 0 && reducer_->load_errors(errors.tensors);
  if (!fits) {
    reducer_->scale_errors(0.0);
  } else if (scale != scaler_->scale()) {
    reducer_->scale_errors(scaler_->scale() / scale);
  }
  return fits;
}

MemoryBytes ZeroOptimizer::memory() const {
  if (early_) early_->wait_for_worker();
  MemoryBytes memory;
  memory.parameters = store_->bytes();
  memory.gradients = reducer_->bytes();
  memory.master_weights = state_->slices().master_bytes();
  memory.optimizer_states = optimizer_->state_bytes() + (exchange_ ? exchange_->bytes() : 0);
  memory.swap_buffers = state_->slices().swap_buffer_bytes() + store_->buffer_bytes();
  if (early_) memory.swap_buffers += early_->waiting_bytes();
  memory.on_disk = state_->slices().disk_bytes() + store_->disk_bytes();
  return memory;
}

}  // namespace deepspeed::zero
