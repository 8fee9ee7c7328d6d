// What a trial sees of its run: hyperparameters, ranks, engines, and how batches are counted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/pipe/engine/pipeline_engine.h"
#include "deepspeed/tensor/visit_tensors.h"
#include "deepspeed/trial/runner/job.h"
#include "deepspeed/trial/trainer/data.h"
#include "deepspeed/trial/trainer/metrics.h"

namespace deepspeed::trial {

/// Says what a rank does beside training: the place of Determined's class of this name.
struct ModelParallelUnit {
  int data_parallel_rank = 0;
  int data_parallel_world_size = 1;
  bool should_report_metrics = true;
  bool should_build_data_loader = true;
};

/// Holds what a context is made of. Under a search (runner/job.h) hyperparameters, seed, data and trial_id are
/// the search's.
struct ContextArguments {
  Json hparams = Json::object();
  Json experiment_config = Json::object();
  std::optional<uint64_t> trial_seed = {};
  int64_t trial_id = 0;
};

class DEEPSPEED_API DeepSpeedTrialContext {
 public:
  /// Joins the job if nobody has, and seeds the generators of all ranks alike if a seed is given.
  explicit DeepSpeedTrialContext(const ContextArguments& arguments = {});

  /// Registers an engine, which is returned. The first one decides micro batch and accumulation.
  template <class EngineType>
  requires std::is_base_of_v<TrainingEngine, EngineType> std::shared_ptr<EngineType> wrap_model_engine(
      std::shared_ptr<EngineType> engine) {
    const bool is_pipeline = std::is_base_of_v<PipelineEngine, EngineType>;
    if constexpr (is_pipeline) {
      add_engine(engine, engine.get());
    } else {
      add_engine(engine, nullptr);
    }
    return engine;
  }
  const std::vector<std::shared_ptr<TrainingEngine>>& models() const { return models_; }

  const Json& get_hparams() const { return arguments_.hparams; }
  /// Returns one hyperparameter. Throws UsageError, listing those that exist, for an unknown name.
  const Json& get_hparam(const std::string& name) const;
  const Json& get_experiment_config() const { return arguments_.experiment_config; }
  /// Returns the experiment's `data`.
  Json get_data_config() const { return arguments_.experiment_config.value("data", Json::object()); }
  int64_t get_trial_id() const { return arguments_.trial_id; }
  uint64_t get_trial_seed() const { return arguments_.trial_seed.value_or(0); }

  /// Returns a value whose tensors are on the rank's device.
  template <class T>
  T to_device(T value) const {
    visit_tensors(value, [&](at::Tensor& tensor) { tensor = tensor.to(device()); });
    return value;
  }
  MicroBatch to_device(MicroBatch batch) const;
  at::Device device() const { return device_; }

  /// Sets what this rank does. Throws UsageError before wrap_model_engine() and for a second call.
  void set_mpu(const ModelParallelUnit& mpu);
  const ModelParallelUnit& mpu() const { return mpu_; }
  /// Makes the trainer call train_batch() once a batch instead of once a micro batch.
  void disable_auto_grad_accumulation() { manual_grad_accumulation_ = true; }
  /// Lets the trial use loaders that are not make_data_loader()'s.
  void disable_dataset_reproducibility_checks() { checks_data_ = false; }
  bool use_pipeline_parallel() const { return uses_pipeline_; }
  int64_t get_train_micro_batch_size_per_gpu() const;
  int64_t get_num_micro_batches_per_slot() const;
  /// Returns how often the trainer calls train_batch() for a batch.
  int64_t calls_per_batch() const {
    return uses_pipeline_ || manual_grad_accumulation_ ? 1 : get_num_micro_batches_per_slot();
  }
  bool checks_data() const { return checks_data_; }
  /// Returns what a search asks of this run, or nothing without a search.
  const std::optional<TrialJob>& job() const { return job_; }

  /// Adds a metric of the program's own. With a name its value is that metric, otherwise an object of several.
  template <class ReducerType>
  std::shared_ptr<ReducerType> wrap_reducer(std::shared_ptr<ReducerType> reducer,
                                            const std::string& name = "", bool for_training = true,
                                            bool for_validation = true) {
    reducer->reset();
    reducers_.push_back({reducer, name, for_training, for_validation});
    return reducer;
  }
  std::shared_ptr<SimpleMetricReducer> wrap_reducer(SimpleMetricReducer::Reduce reduce,
                                                    const std::string& name, bool for_training = true,
                                                    bool for_validation = true) {
    return wrap_reducer(std::make_shared<SimpleMetricReducer>(std::move(reduce)), name, for_training,
                        for_validation);
  }
  void reset_reducers();
  /// Returns the program's own metrics. Collective.
  Json reduce_metrics(bool for_training);

  /// Returns the number of batches that the trial has trained when it begins: more than 0 after a restart.
  int64_t get_initial_batch() const { return initial_batch_; }
  void set_initial_batch(int64_t batch) { initial_batch_ = batch; }
  bool get_stop_requested() const { return stop_requested_; }
  void set_stop_requested(bool stop) { stop_requested_ = stop; }

  const comm::World& distributed() const { return world_; }
  bool is_chief() const { return world_.rank() == 0; }

 private:
  struct Wrapped {
    std::shared_ptr<MetricReducer> reducer;
    std::string name;
    bool for_training, for_validation;
  };
  void add_engine(const std::shared_ptr<TrainingEngine>& engine, const PipelineEngine* pipeline);

  ContextArguments arguments_;
  std::optional<TrialJob> job_;
  comm::World world_;
  at::Device device_ = at::kCPU;
  std::vector<std::shared_ptr<TrainingEngine>> models_;
  std::vector<Wrapped> reducers_;
  ModelParallelUnit mpu_;
  bool has_mpu_ = false;
  bool uses_pipeline_ = false;
  bool manual_grad_accumulation_ = false;
  bool checks_data_ = true;
  bool stop_requested_ = false;
  int64_t initial_batch_ = 0;
};

/// Returns a copy of the config with `values` merged in: keys of inner objects replace or add. base: a path,
/// JSON text or an object.
DEEPSPEED_API Json overwrite_deepspeed_config(const config::ConfigSource& base, const Json& values);

}  // namespace deepspeed::trial
