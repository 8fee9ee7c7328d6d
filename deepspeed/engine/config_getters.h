// The config's values under the names by which training scripts ask an engine for them.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "deepspeed/base/export.h"
#include "deepspeed/config/config.h"
#include "deepspeed/config/zero/sections.h"

namespace deepspeed {

/// Defaults and resolved batch sizes included. A feature that does not exist yet reads as off: a config that
/// switches it on is refused.
class DEEPSPEED_API ConfigGetters : public config::ZeroGetters<ConfigGetters> {
 public:
  const config::DeepSpeedConfig& config() const { return config_; }

  // --- batches and steps ---
  int64_t train_batch_size() const { return config_.train_batch_size; }
  int64_t train_micro_batch_size_per_gpu() const { return config_.train_micro_batch_size_per_gpu; }
  int64_t gradient_accumulation_steps() const { return config_.gradient_accumulation_steps; }
  std::optional<int64_t> steps_per_print() const { return config_.steps_per_print; }
  bool dataloader_drop_last() const { return config_.dataloader_drop_last; }
  std::optional<std::string> log_level() const { return config_.log_level; }
  bool dump_state() const { return config_.dump_state; }
  bool wall_clock_breakdown() const { return config_.wall_clock_breakdown; }
  bool memory_breakdown() const { return config_.memory_breakdown; }
  bool graph_harvesting() const { return config_.graph_harvesting; }

  // --- gradients ---
  double gradient_clipping() const { return config_.gradient_clipping; }
  bool prescale_gradients() const { return config_.prescale_gradients; }
  bool postscale_gradients() const { return !config_.prescale_gradients; }
  double gradient_predivide_factor() const { return config_.gradient_predivide_factor; }
  std::string gradient_allreduce_op() const { return config_.gradient_allreduce_op; }
  bool sparse_gradients_enabled() const { return config_.sparse_gradients; }
  bool fp32_allreduce() const { return config_.fp32_allreduce; }
  std::optional<std::string> communication_data_type() const { return config_.communication_data_type; }

  // --- precision ---
  bool fp16_enabled() const { return config_.fp16.enabled; }
  bool fp16_auto_cast() const { return config_.fp16.auto_cast; }
  /// The dynamic scaler's numbers; null where the scale is constant.
  Json dynamic_loss_scale_args() const {
    if (!dynamic_loss_scale()) return nullptr;
    return {{"init_scale", initial_dynamic_scale()},
            {"scale_window", config_.fp16.loss_scale_window},
            {"min_scale", config_.fp16.min_loss_scale},
            {"delayed_shift", config_.fp16.hysteresis},
            {"consecutive_hysteresis", config_.fp16.consecutive_hysteresis}};
  }
  bool fp16_master_weights_and_gradients() const { return config_.fp16.fp16_master_weights_and_grads; }
  bool bfloat16_enabled() const { return config_.bf16.enabled; }
  bool bf16_master_weights_and_gradients() const { return config_.bf16.bf16_master_weights_and_grads; }
  bool bf16_optimizer_states() const { return config_.bf16.bf16_optimizer_states; }
  bool bf16_split_master_weights() const { return config_.bf16.split_master_weights; }
  /// Nothing: Apex is a Python package, and `amp` is refused.
  Json amp_params() const { return nullptr; }
  bool amp_enabled() const { return config_.amp && config_.amp->enabled; }
  bool dynamic_loss_scale() const { return config_.fp16.enabled && config_.fp16.loss_scale == 0.0; }
  double initial_dynamic_scale() const {
    return std::exp2(static_cast<double>(config_.fp16.initial_scale_power));
  }

  // --- optimizer and schedule, as named in the config ---
  /// The class of the optimizer that was passed to initialize(), else the config's type: in lower case where
  /// it is read in any case.
  std::optional<std::string> optimizer_name() const;
  Json optimizer_params() const { return params_of(config_.optimizer); }
  bool optimizer_legacy_fusion() const { return config_.optimizer && config_.optimizer->legacy_fusion; }
  std::optional<std::string> scheduler_name() const { return name_of(config_.scheduler); }
  Json scheduler_params() const { return params_of(config_.scheduler); }

  // --- ZeRO; the keys of zero_optimization: config::ZeroGetters ---
  bool zero_allow_untested_optimizer() const { return config_.zero_allow_untested_optimizer; }
  bool zero_force_ds_cpu_optimizer() const { return config_.zero_force_ds_cpu_optimizer; }

  // --- checkpoints ---
  bool checkpoint_tag_validation_enabled() const { return config_.checkpoint.tag_validation != "Ignore"; }
  bool checkpoint_tag_validation_fail() const { return config_.checkpoint.tag_validation == "Fail"; }
  bool load_universal_checkpoint() const { return config_.checkpoint.load_universal; }
  bool checkpoint_serialization_enabled() const { return config_.checkpoint.checkpoint_serialization; }
  bool checkpoint_writer_enabled() const { return config_.checkpoint.writer.has_value(); }
  bool use_node_local_storage() const { return config_.checkpoint.use_node_local_storage; }

  // --- features of their own sections ---
  bool monitor_enabled() const {
    return config_.tensorboard.enabled || config_.csv_monitor.enabled || config_.wandb.enabled ||
           config_.comet.enabled;
  }
  bool flops_profiler_enabled() const { return config_.flops_profiler.enabled; }
  double flops_profiler_recompute_fwd_factor() const { return config_.flops_profiler.recompute_fwd_factor; }
  int64_t flops_profiler_profile_step() const { return config_.flops_profiler.profile_step; }
  int64_t flops_profiler_module_depth() const { return config_.flops_profiler.module_depth; }
  int64_t flops_profiler_top_modules() const { return config_.flops_profiler.top_modules; }
  bool flops_profiler_detailed() const { return config_.flops_profiler.detailed; }
  std::optional<std::string> flops_profiler_output_file() const { return config_.flops_profiler.output_file; }
  const config::AioConfig& aio_config() const { return config_.aio; }
  bool autotuning_enabled() const { return config_.autotuning.enabled; }
  int64_t autotuning_start_profile_step() const { return config_.autotuning.start_profile_step; }
  int64_t autotuning_end_profile_step() const { return config_.autotuning.end_profile_step; }
  std::string autotuning_metric() const { return config_.autotuning.metric; }
  std::string autotuning_metric_path() const {
    return config_.autotuning.metric_path.value_or("autotuning_metric.json");
  }
  std::string autotuning_model_info_path() const {
    return config_.autotuning.model_info_path.value_or("autotuning_model_info.json");
  }
  bool autotuning_profile_model_info() const {
    return autotuning_enabled() && config_.autotuning.model_info && config_.autotuning.model_info->profile;
  }
  bool elasticity_enabled() const { return config_.elasticity.enabled; }
  bool eigenvalue_enabled() const { return config_.eigenvalue.enabled; }
  bool eigenvalue_verbose() const { return config_.eigenvalue.verbose; }
  int64_t eigenvalue_max_iter() const { return config_.eigenvalue.max_iter; }
  double eigenvalue_tol() const { return config_.eigenvalue.tol; }
  double eigenvalue_stability() const { return config_.eigenvalue.stability; }
  int64_t eigenvalue_gas_boundary_resolution() const { return config_.eigenvalue.gas_boundary_resolution; }
  std::string eigenvalue_layer_name() const { return config_.eigenvalue.layer_name; }
  int64_t eigenvalue_layer_num() const { return config_.eigenvalue.layer_num; }
  bool pld_enabled() const {
    return config_.progressive_layer_drop && config_.progressive_layer_drop->enabled;
  }
  /// The section; nothing without it.
  const std::optional<config::ProgressiveLayerDropConfig>& pld_params() const {
    return config_.progressive_layer_drop;
  }
  double pld_theta() const {
    return config_.progressive_layer_drop.value_or(config::ProgressiveLayerDropConfig{}).theta;
  }
  double pld_gamma() const {
    return config_.progressive_layer_drop.value_or(config::ProgressiveLayerDropConfig{}).gamma;
  }
  bool curriculum_enabled_legacy() const { return config_.curriculum_learning.enabled; }
  const config::CurriculumLearningConfig& curriculum_params_legacy() const {
    return config_.curriculum_learning;
  }
  const config::DataEfficiencyConfig& data_efficiency_config() const { return config_.data_efficiency; }
  const config::DataSamplingConfig& data_sampling_config() const {
    return config_.data_efficiency.data_sampling;
  }
  bool data_sampling_enabled() const { return data_sampling_config().enabled; }
  const config::DataCurriculumConfig& curriculum_learning_config() const {
    return data_sampling_config().curriculum_learning;
  }
  bool curriculum_learning_enabled() const { return curriculum_learning_config().enabled; }
  const config::RandomLtdConfig& random_ltd_config() const {
    return config_.data_efficiency.data_routing.random_ltd;
  }
  bool data_efficiency_enabled() const { return config_.data_efficiency.enabled; }
  bool random_ltd_enabled() const { return config_.data_efficiency.data_routing.random_ltd.enabled; }
  bool quantize_training() const {
    return config_.compression_training.weight_quantization.shared_parameters.enabled;
  }
  const config::TensorParallelConfig& tensor_parallel_config() const { return config_.tensor_parallel; }
  int64_t autotp_size() const { return config_.tensor_parallel.autotp_size; }
  bool deepcompile_enabled() const { return config_.compile.deepcompile; }

 protected:
  /// `config` must outlive it. client_optimizer: the class of the program's own optimizer; nothing: there is
  /// none.
  ConfigGetters(const config::DeepSpeedConfig& config, std::optional<std::string> client_optimizer)
      : config_(config), client_optimizer_(std::move(client_optimizer)) {}
  ~ConfigGetters() = default;

 private:
  template <class Section>
  static std::optional<std::string> name_of(const std::optional<Section>& section) {
    if (!section) return std::nullopt;
    return section->type;
  }
  template <class Section>
  static Json params_of(const std::optional<Section>& section) {
    return section ? section->params : Json();
  }

  const config::DeepSpeedConfig& config_;
  std::optional<std::string> client_optimizer_;
};

}  // namespace deepspeed
