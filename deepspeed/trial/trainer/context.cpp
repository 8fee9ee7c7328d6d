// A context collects what the trial declares before the trainer begins: engines, the mpu, reducers. Calls in
// the wrong order are errors in Determined's words.
#include "deepspeed/trial/trainer/context.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/initialize.h"

namespace deepspeed::trial {
namespace {

void merge_into(Json& base, const Json& values) {
  for (const auto& [key, value] : values.items()) {
    Json& own = base[key];
    if (own.is_object() && value.is_object())
      merge_into(own, value);
    else
      own = value;
  }
}

/// Throws for what DeepSpeed cannot combine, in the words of Determined's guide.
void check_constraints(const config::DeepSpeedConfig& config, bool is_pipeline) {
  const auto& zero = config.zero_optimization;
  if (is_pipeline && zero.stage > 1) {
    raise<ConfigError>(
        "zero_optimization.stage: got ", zero.stage,
        ": Pipeline parallelism can only be combined with Zero Redundancy Optimizer (ZeRO) stage 1.");
  }
  const bool offloads_params = zero.offload_param.device != "none";
  if (offloads_params && zero.stage != 3)
    raise<ConfigError>(
        "zero_optimization.offload_param: Parameter offloading is only supported with ZeRO stage 3.");
  const bool offloads_states = zero.offload_optimizer.device != "none";
  if (offloads_states && zero.stage != 2 && zero.stage != 3)
    raise<ConfigError>(
        "zero_optimization.offload_optimizer: Optimizer offloading is only supported with ZeRO stage 2 and "
        "3.");
}

}  // namespace

DeepSpeedTrialContext::DeepSpeedTrialContext(const ContextArguments& arguments)
    : arguments_(arguments), job_(job_from_environment()), world_(comm::init_distributed()) {
  if (job_) {
    arguments_.hparams = job_->hyperparameters;
    arguments_.experiment_config["data"] = job_->data;
    arguments_.trial_seed = job_->seed;
    arguments_.trial_id = job_->trial;
  }
  if (world_.group().device_type() == at::kCUDA)
    device_ = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(world_.local_rank()));
  if (arguments_.trial_seed) manual_seed(*arguments_.trial_seed);
  const Json& batch = arguments_.hparams.value("global_batch_size", Json());
  if (batch.is_number_integer() && batch.get<int64_t>() % world_.size() != 0) {
    raise<UsageError>("global_batch_size is ", batch.get<int64_t>(),
                      ", expected a multiple of the number of slots, ", world_.size());
  }
}

void DeepSpeedTrialContext::add_engine(const std::shared_ptr<TrainingEngine>& engine,
                                       const PipelineEngine* pipeline) {
  if (!engine)
    raise<UsageError>("wrap_model_engine() got a null pointer, expected an engine of initialize()");
  check_constraints(engine->config(), pipeline != nullptr);
  if (models_.empty()) {
    uses_pipeline_ = pipeline != nullptr;
    const int size = engine->dp_world_size();
    mpu_ = {.data_parallel_rank = engine->get_data_parallel_rank(), .data_parallel_world_size = size};
    if (pipeline) mpu_.should_build_data_loader = pipeline->is_first_stage() || pipeline->is_last_stage();
  } else {
    if (pipeline) log::warning("[trial] a pipeline is not the first engine: its batches are not counted");
    if (engine->config().train_micro_batch_size_per_gpu != get_train_micro_batch_size_per_gpu())
      log::warning(
          "[trial] the engines have different train_micro_batch_size_per_gpu: the first one's counts");
  }
  models_.push_back(engine);
}

const Json& DeepSpeedTrialContext::get_hparam(const std::string& name) const {
  const auto found = arguments_.hparams.find(name);
  if (found != arguments_.hparams.end()) return *found;
  std::string names;
  for (const auto& [key, value] : arguments_.hparams.items()) names += (names.empty() ? "" : ", ") + key;
  raise<UsageError>("Could not find name '", name, "' in experiment hyperparameters. They are: ", names);
}

MicroBatch DeepSpeedTrialContext::to_device(MicroBatch batch) const {
  for (auto* tensors : {&batch.inputs, &batch.labels})
    for (at::Tensor& tensor : *tensors) tensor = tensor.to(device());
  return batch;
}

void DeepSpeedTrialContext::set_mpu(const ModelParallelUnit& mpu) {
  if (models_.empty()) raise<UsageError>("Please call `wrap_model` before setting the mpu.");
  if (has_mpu_) {
    raise<UsageError>(
        "Only one MPU can be passed to DeepSpeedTrialContext. Please make sure wrap_mpu is only called once "
        "in the ",
        "trial definition.");
  }
  has_mpu_ = true;
  mpu_ = mpu;
}

int64_t DeepSpeedTrialContext::get_train_micro_batch_size_per_gpu() const {
  if (models_.empty())
    raise<UsageError>("Please call wrap_model_engine before accessing train_micro_batch_size.");
  return std::get<1>(models_.front()->get_batch_info());
}

int64_t DeepSpeedTrialContext::get_num_micro_batches_per_slot() const {
  if (models_.empty())
    raise<UsageError>("Please call wrap_model_engine before accessing num_micro_batches_per_slot.");
  return std::get<2>(models_.front()->get_batch_info());
}

void DeepSpeedTrialContext::reset_reducers() {
  for (const Wrapped& wrapped : reducers_) wrapped.reducer->reset();
}

Json DeepSpeedTrialContext::reduce_metrics(bool for_training) {
  Json metrics = Json::object();
  for (const Wrapped& wrapped : reducers_) {
    if (for_training ? !wrapped.for_training : !wrapped.for_validation) continue;
    const Json value = wrapped.reducer->cross_slot_reduce(
        comm::all_gather_object(wrapped.reducer->per_slot_reduce(), world_.group()));
    if (wrapped.name.empty() && !value.is_object())
      raise<UsageError>("a reducer without a name returned ", json_excerpt(value),
                        ", expected an object of metrics, or a name");
    if (wrapped.name.empty())
      metrics.update(value);
    else
      metrics[wrapped.name] = value;
  }
  return metrics;
}

Json overwrite_deepspeed_config(const config::ConfigSource& base, const Json& values) {
  if (!values.is_object())
    raise<UsageError>("overwrite_deepspeed_config() got ", json_excerpt(values), ", expected an object");
  Json merged = base.read();
  merge_into(merged, values);
  return merged;
}

}  // namespace deepspeed::trial
