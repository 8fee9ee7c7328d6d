// train_batch() in order: all ranks agree on the amount of data, the schedule runs, and the loss is shared.
// StepDriver::step() then reduces the remaining gradients, sums tied gradients over the stages and updates.
// An error in between ends the engine's groups, so that no rank waits forever.
#include "deepspeed/pipe/engine/pipeline_engine.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <sstream>

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/text.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/engine/assembly/build.h"
#include "deepspeed/engine/assembly/initialize_arguments.h"
#include "deepspeed/engine/step/step_driver.h"
#include "deepspeed/monitor/monitor_master.h"
#include "deepspeed/pipe/analysis/figures.h"
#include "deepspeed/pipe/engine/batch_plan.h"
#include "deepspeed/pipe/engine/batch_run.h"
#include "deepspeed/pipe/engine/tied_gradients.h"
#include "deepspeed/pipe/exchange/stage_links.h"
#include "deepspeed/pipe/module/same_layers.h"
#include "deepspeed/pipe/schedule/make_schedule.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {
namespace {

using pipe::PipelineModule;

RankLayout layout_of(const ParallelRanks& grid) {
  const auto axes = grid.topology().get_axis_names();
  const bool slices_are_neighbours = std::ranges::find(axes, "pipe") <= std::ranges::find(axes, "model");
  return {grid.data_parallel_group(), grid.model_parallel_group(), grid.slice_group(),
          grid.pipe_parallel_size(), slices_are_neighbours};
}

InitializeOptions with_world(InitializeOptions options, const PipelineModule& module) {
  if (options.mpu)
    raise<UsageError>("mpu: a PipelineModule has a topology of its own; give it `topology` instead");
  if (!options.world) options.world = module.world();
  return options;
}

std::string engine_name_of(const InitializeOptions& options) {
  return options.engine_name.empty() ? "pipeline" : "pipeline '" + options.engine_name + "'";
}

// Returns a text such as "of this pipeline rank 4 is stage 0, rank 5 stage 1".
std::string legend_of(const std::vector<int>& ranks) {
  std::string text = "of this pipeline";
  for (size_t stage = 0; stage < ranks.size(); ++stage)
    text += message(stage == 0 ? " rank " : ", rank ", ranks[stage], stage == 0 ? " is stage " : " stage ",
                    stage);
  return text;
}

const PipelineModule& checked(const std::shared_ptr<PipelineModule>& module) {
  if (!module) raise<UsageError>("the model is null; pass a shared_ptr to a PipelineModule");
  return *module;
}

bool is_trained(const EngineModel& model) {
  for (const NamedTensor& param : model.parameters) {
    if (param.tensor.requires_grad()) return true;
  }
  return false;
}

// All stages must know the dtype before the last one has a loss.
at::ScalarType loss_dtype_of(const EngineModel& model, const comm::ProcessGroup& all) {
  const bool has_doubles = std::ranges::any_of(
      model.parameters, [](const NamedTensor& param) { return param.tensor.scalar_type() == at::kDouble; });
  return all.all_reduce_scalar(has_doubles ? 1.0 : 0.0, comm::ReduceOp::kMax) > 0.0 ? at::kDouble
                                                                                    : at::kFloat;
}

bool wants_optimizer(const InitializeOptions& options) {
  return options.optimizer || options.slice_optimizer || find_config(options).read().contains("optimizer");
}

// Without this check, an optimizer without parameters would be an error only on that stage.
void require_trained(const PipelineModule& module, const InitializeOptions& options) {
  if (is_trained(module.model()) || !wants_optimizer(options)) return;
  raise<UsageError>("stage ", module.stage_id(), " of ", module.num_stages(), ", ",
                    module.describe_layer(module.layers().front().index), " to ",
                    module.describe_layer(module.layers().back().index),
                    ", has no parameter that is trained; choose another partition_method or fewer stages");
}

// Layers are compared first, since ranks with different layers would wait for each other's groups. Tied
// weights are made equal before the engine makes masters from them.
std::unique_ptr<pipe::TiedGradients> tie_weights(const PipelineModule& module,
                                                 const InitializeOptions& options) {
  const comm::ProcessGroup& all = module.world().group();
  pipe::require_same_layers(all, module);
  comm::on_all_ranks<UsageError>(all, "making a pipeline", [&] { require_trained(module, options); });
  auto tied = std::make_unique<pipe::TiedGradients>(module, engine_name_of(options), "");
  tied->broadcast_weights();
  return tied;
}

}  // namespace

PipelineEngine::PipelineEngine(std::shared_ptr<PipelineModule> module, const InitializeOptions& options)
    : PipelineEngine(module, with_world(options, checked(module)),
                     tie_weights(checked(module), with_world(options, checked(module)))) {}

PipelineEngine::PipelineEngine(std::shared_ptr<PipelineModule> module, const InitializeOptions& options,
                               std::unique_ptr<pipe::TiedGradients> tied)
    : TrainingEngine(build_engine(module->model(), options, find_world(options), layout_of(module->grid()))),
      module_(std::move(module)),
      tied_(std::move(tied)) {
  const comm::ProcessGroup& all = state().parts.groups.all;
  comm::on_all_ranks<UsageError>(all, "making a pipeline", [&] { check_config(); });
  loss_dtype_ = loss_dtype_of(state().parts.model, all);
  const ParallelRanks& grid = module_->grid();
  links_ = std::make_unique<pipe::StageLinks>(
      world(), grid,
      pipe::LinkOptions{.name = engine_name_of(options),
                        .purpose = config().raw.dump(),
                        .model_chunks = module_->model_chunks(),
                        .device = device(),
                        .dynamic_shape = module_->options().dynamic_shape,
                        .pipe_partitioned = config().pipeline.pipe_partitioned,
                        .grad_partitioned = config().pipeline.grad_partitioned});
  planner_ = std::make_unique<pipe::BatchPlanner>(all, grid.stage_to_global(0), is_last_stage());
  if (!tied_->empty())
    step_driver().before_update([this] { tied_->reduce(require_optimizer("train_batch")); });
  if (zero::ZeroOptimizer* const optimizer = state().parts.optimizer.get()) optimizer->rely_on(own_groups());
  step_driver().set_boundary(false);
  const int64_t interval = config().pipeline.activation_checkpoint_interval;
  if (interval > 0) module_->set_activation_checkpoint_interval(int(interval));
  log_schedule();
}

PipelineEngine::~PipelineEngine() = default;

void PipelineEngine::refuse(const char* call) {
  raise<PipelineError>("Only train_batch() is accessible in pipeline mode.", " ", call,
                       "() of a micro batch is a part of it; eval_batch() evaluates");
}

void PipelineEngine::check_config() const {
  const auto& pipeline = config().pipeline;
  if (const int64_t stage = config().zero_optimization.stage; stage > 2) {
    raise<ConfigError>(
        "zero_optimization.stage ", stage,
        " does not fit a pipeline, whose stages partition the parameters by layers already; use 0, 1 or 2");
  }
  if (const auto& drop = config().progressive_layer_drop; drop && drop->enabled) {
    raise<ConfigError>(
        "progressive_layer_drop is not supported with pipeline parallelism, whose stages hold ",
        "their layers; leave it out");
  }
  if (config().cuda_graphs.enabled) {
    raise<ConfigError>(
        "cuda_graphs is not supported with pipeline parallelism, where forwards of several micro batches "
        "wait ",
        "for their backwards; leave it out");
  }
  if (!config().managed_gradient_accumulation)
    raise<ConfigError>(
        "managed_gradient_accumulation false is not supported with pipeline parallelism, where "
        "train_batch() accumulates; leave it out");
  if (pipeline.model_chunks != module_->model_chunks()) {
    raise<ConfigError>(
        "pipeline.model_chunks is ", pipeline.model_chunks, ", but the PipelineModule has ",
        module_->model_chunks(),
        " model_chunks; give both the same, and set pipeline.schedule to \"interleaved\" for more than one");
  }
  if (pipeline.stages && *pipeline.stages != num_stages()) {
    raise<ConfigError>("pipeline.stages is ", *pipeline.stages, ", but the PipelineModule has ", num_stages(),
                       " stages; give both the same, or leave the key out");
  }
  check_building();
}

void PipelineEngine::check_building() const {
  const auto& pipeline = config().pipeline;
  const PipelineModuleOptions& built = module_->options();
  const bool has_method = pipeline.partition != "best";
  if (built.front_end) {
    // Scripts for DeepSpeed may have these keys, which DeepSpeed ignores.
    if ((has_method || pipeline.seed_layers) && rank() == 0)
      log::warning(
          "[config] without effect: pipeline.partition and pipeline.seed_layers (the PipelineModule's ",
          "arguments say how it is built)");
    return;
  }
  if (has_method && lowercase(pipeline.partition) != lowercase(built.partition_method)) {
    raise<ConfigError>("pipeline.partition is \"", pipeline.partition,
                       "\", but the PipelineModule was shared out by its partition_method \"",
                       built.partition_method, "\"; give both the same, or leave the key out");
  }
  if (pipeline.seed_layers && !built.seed_layers) {
    raise<ConfigError>(
        "pipeline.seed_layers is true, but the PipelineModule was built without seed_layers; give both the "
        "same, or leave the key out");
  }
}

void PipelineEngine::log_schedule() const {
  if (rank() != 0) return;
  const std::string& kind = config().pipeline.schedule;
  const int count = int(config().gradient_accumulation_steps), chunks = module_->model_chunks();
  std::string peaks;
  for (int stage = 0; stage < num_stages(); ++stage) {
    peaks += (stage == 0 ? "" : ", ") +
             std::to_string(pipe::peak_activations_formula(kind, count, num_stages(), stage, chunks));
  }
  const double bubble = pipe::bubble_formula(kind, count, num_stages(), chunks);
  log::info("[pipe] ", num_stages(), " stages x ", dp_world_size(), " data-parallel ranks, ", count,
            " micro batches, schedule ", kind, ": bubble ", std::round(1000 * bubble) / 10,
            " % of the computation of equal stages; activations kept at most by stage: ", peaks,
            chunks == 1 ? " micro batches" : " micro batches of a chunk");
}

// --- errors ---

std::vector<comm::ProcessGroup> PipelineEngine::own_groups() const {
  std::vector<comm::ProcessGroup> groups = links_->groups();
  for (comm::ProcessGroup& group : tied_->groups()) groups.push_back(std::move(group));
  return groups;
}

void PipelineEngine::give_up(const std::string& reason) const {
  const ParallelGroups& groups = state().parts.groups;
  for (const comm::ProcessGroup& group : own_groups()) group.give_up(reason);
  for (const comm::ProcessGroup* group : {&groups.data, &groups.model, &groups.all}) {
    if (*group) group->give_up(reason);
  }
}

void PipelineEngine::run_together(const char* call, const std::function<void()>& work) {
  const auto tell = [&](const std::string& error) {
    try {
      give_up(message(call, "() of stage ", stage_id(), " of ", num_stages(), " failed on rank ", rank(),
                      ": ", error));
    } catch (const std::exception& failure) {
      log::error("[pipe] the other ranks may wait: ", failure.what());
    }
  };
  try {
    work();
  } catch (const CommError& error) {
    const std::string text = with_legend(error);
    tell(text);
    throw CommError(text);
  } catch (const c10::Error& error) {
    tell(error.what_without_backtrace());
    throw;
  } catch (const std::exception& error) {
    tell(error.what());
    throw;
  } catch (...) {
    tell("an error of another kind");
    throw;
  }
}

// --- batches ---

pipe::DataIterator PipelineEngine::with_batch_fn(const pipe::DataIterator& data) const {
  if (!data || !batch_fn_) return data;
  return pipe::DataIterator([data, batch_fn = batch_fn_]() -> std::optional<pipe::MicroBatch> {
    auto batch = data.next();
    if (batch) batch = batch_fn(std::move(*batch));
    return batch;
  });
}

pipe::BatchPlan PipelineEngine::plan_batch(const pipe::DataIterator& data, int num_micro_batches) {
  try {
    return planner_->plan(with_batch_fn(data), num_micro_batches);
  } catch (const CommError& error) {
    throw CommError(with_legend(error));
  }
}

std::string PipelineEngine::with_legend(const CommError& error) const {
  return message(error.what(), "; ", legend_of(module_->grid().pipe_group()));
}

at::Tensor PipelineEngine::train_batch(const pipe::DataIterator& data) {
  if (!c10::GradMode::is_enabled())
    raise<UsageError>("train_batch() requires gradients enabled. Use eval_batch() instead.");
  require_optimizer("train_batch");
  const int count = int(config().gradient_accumulation_steps);
  pipe::BatchPlan plan = plan_batch(data ? data : data_, count);
  if (!state().is_training) train();
  at::Tensor loss;
  run_together("train_batch", [&] {
    forget_failed_batch();
    pipe::BatchRun run(*module_, *links_, step_driver(), plan, {.is_training = true});
    step_driver().noting_failure([&] { run.run(train_steps(count)); });
    loss = shared_loss(run.losses(), count);
    take_additional_losses(count);
    update(loss);
  });
  return loss;
}

// A batch is the whole accumulation window. After a failure an engine with several ranks has ended, but an
// engine with only one rank can continue.
void PipelineEngine::forget_failed_batch() {
  if (!optimizer()->gradients().has_failed()) return;
  step_driver().zero_grad();
  step_driver().set_boundary(false);
}

const pipe::Steps& PipelineEngine::train_steps(int num_micro_batches) {
  if (steps_of_ != num_micro_batches) {
    steps_ = pipe::make_train_schedule(config().pipeline.schedule, num_micro_batches, num_stages(),
                                       stage_id(), module_->model_chunks())
                 ->steps();
    steps_of_ = num_micro_batches;
  }
  return steps_;
}

void PipelineEngine::update(const at::Tensor& loss) {
  is_in_step_ = true;
  step_driver().set_boundary(true);
  state().counters.micro_steps += state().window.steps - 1;
  const auto samples = step_driver().step({});
  step_driver().set_boundary(false);
  is_in_step_ = false;
  if (!samples) return;
  const auto every = config().steps_per_print;
  if (rank() == 0 && every && global_steps() % *every == 0)
    log::info("steps: ", global_steps(), " loss: ", loss.item<double>());
  end_step(*samples);
  if (monitor().enabled())
    monitor().write_events({{"Train/Samples/train_loss", loss.item<double>(), global_samples()}});
}

at::Tensor PipelineEngine::shared_means(const at::Tensor& sums, int64_t count, int num_micro_batches) const {
  const at::Tensor means = sums.defined()
                               ? sums.to(loss_dtype_) / double(num_micro_batches)
                               : at::zeros({count}, at::TensorOptions().dtype(loss_dtype_).device(device()));
  const ParallelRanks& grid = module_->grid();
  state().parts.groups.all.all_reduce(means);
  return means / double(grid.data_parallel_size() * grid.slice_parallel_size());
}

at::Tensor PipelineEngine::shared_loss(const std::vector<at::Tensor>& losses, int num_micro_batches) const {
  at::Tensor sum;
  if (is_last_stage()) {
    for (const at::Tensor& loss : losses) {
      const at::Tensor value = loss.to(loss_dtype_).reshape({1});
      sum = sum.defined() ? sum + value : value;
    }
  }
  return shared_means(sum, 1, num_micro_batches).squeeze(0);
}

void PipelineEngine::take_additional_losses(int num_micro_batches) {
  if (!module_->options().additional_losses) return;
  const auto sums = module_->take_additional_losses();  // empty on the other stages
  std::string own_names;
  std::vector<at::Tensor> own;
  for (const auto& [name, value] : sums) {
    own_names += name + "\n";
    own.push_back(value.detach().to(device(), loss_dtype_).reshape({}));
  }
  // The first rank of the last stage sends to all.
  const int source = module_->topology().filter_match({{"pipe", num_stages() - 1}}).front();
  std::istringstream names(state().parts.groups.all.broadcast_text(own_names, source));
  std::vector<std::string> all_names;
  for (std::string name; std::getline(names, name);) all_names.push_back(name);
  additional_losses_.emplace();
  if (all_names.empty()) return;
  const at::Tensor means =
      shared_means(own.empty() ? at::Tensor() : at::stack(own), int64_t(all_names.size()), num_micro_batches);
  for (size_t i = 0; i < all_names.size(); ++i) (*additional_losses_)[all_names[i]] = means[int64_t(i)];
}

EvalBatchResult PipelineEngine::eval_batch(const pipe::DataIterator& data, const EvalBatchOptions& options) {
  if (options.reduce_output && *options.reduce_output != "avg") {
    raise<NotSupportedError>("eval_batch(): reduce_output is \"", *options.reduce_output,
                             "\", expected \"avg\" or nothing");
  }
  const int count = options.num_micro_batches.value_or(int(config().gradient_accumulation_steps));
  if (count < 1) raise<UsageError>("eval_batch(): num_micro_batches is ", count, ", expected 1 or more");
  const c10::NoGradGuard no_grad;
  pipe::BatchPlan plan = plan_batch(data, count);
  if (state().is_training) eval();
  EvalBatchResult result;
  run_together("eval_batch", [&] {
    pipe::BatchRun run(*module_, *links_, step_driver(), plan,
                       {.is_training = false,
                        .computes_loss = options.compute_loss,
                        .keeps_outputs = options.return_logits || !options.compute_loss});
    run.run(pipe::make_inference_schedule(count, num_stages(), stage_id(), module_->model_chunks())->steps());
    result.outputs = run.outputs();
    if (!options.compute_loss) return;
    if (!options.reduce_output) {
      result.losses = run.losses();
    } else if (options.bcast_loss) {
      result.loss = shared_loss(run.losses(), count);
    } else if (is_last_stage()) {
      at::Tensor mean = at::stack(run.losses()).to(loss_dtype_).mean().reshape({1});
      data_parallel_group().all_reduce(mean);
      result.loss = (mean / double(dp_world_size())).squeeze(0);
    }
    if (monitor().enabled() && result.loss.defined())
      monitor().write_events({{"Train/Samples/eval_loss", result.loss.item<double>(), global_samples()}});
  });
  return result;
}

void PipelineEngine::reset_activation_shape() { links_->forget_forms(); }

}  // namespace deepspeed
