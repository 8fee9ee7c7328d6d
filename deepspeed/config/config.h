// The JSON config, read, resolved and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/config/parallel/sections.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/config/tools/sections.h"
#include "deepspeed/config/training/sections.h"
#include "deepspeed/config/zero/sections.h"

namespace deepspeed::config {

/// Holds a loaded config; members are named like the keys. A section that is on whenever it is present is an
/// optional. Every other section has a switch among its members, or defaults that mean off.
struct DeepSpeedConfig {
  int64_t train_batch_size = 0;  // the three batch sizes are resolved: none is 0 in a loaded config
  int64_t train_micro_batch_size_per_gpu = 0;
  int64_t gradient_accumulation_steps = 0;
  bool managed_gradient_accumulation = true;
  std::optional<int64_t> steps_per_print;
  bool dump_state = false;
  double gradient_clipping = 1.0;  // 0: off
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  std::string gradient_allreduce_op = "mean";  // mean or sum
  bool sparse_gradients = false;
  std::optional<std::string> communication_data_type;  // fp32, fp16 or bf16
  std::string seq_parallel_communication_data_type = "fp32";
  bool disable_allgather = false;
  bool fp32_allreduce = false;
  bool zero_allow_untested_optimizer = false;
  bool zero_force_ds_cpu_optimizer = true;
  bool graph_harvesting = false;
  bool wall_clock_breakdown = false;
  bool memory_breakdown = false;
  bool dataloader_drop_last = false;
  std::optional<int64_t> vocabulary_size;
  std::optional<std::string> log_level;  // in lower case
  bool use_data_before_expert_parallelism = false;
  std::optional<int64_t> sequence_parallel_size;
  std::optional<int64_t> data_parallel_size;
  std::optional<int64_t> allgather_size;  // only with the older form of zero_optimization
  std::optional<int64_t> seed;            // for dropout and the order of the data
  Fp16Section fp16;
  Bf16Config bf16;
  std::optional<OptimizerConfig> optimizer;
  std::optional<SchedulerConfig> scheduler;
  ZeroConfig zero_optimization;
  CheckpointConfig checkpoint;
  DataTypesConfig data_types;
  std::optional<AmpConfig> amp;
  TorchAutocastConfig torch_autocast;
  FileMonitorConfig tensorboard;
  FileMonitorConfig csv_monitor;
  FlopsProfilerConfig flops_profiler;
  CommsLoggerConfig comms_logger;
  TimersConfig timers;
  Json datastates_ckpt = false;
  ActivationCheckpointingConfig activation_checkpointing;
  AioConfig aio;
  PipelineConfig pipeline;
  std::optional<ProgressiveLayerDropConfig> progressive_layer_drop;
  CudaGraphsConfig cuda_graphs;
  // Sections that do nothing in a C++ program so far or at all; these hold the given keys. A member is null
  // if its section is absent and has no defaults.
  Json wandb = Json::object(), comet = Json::object(), nebula = Json::object();
  Json hybrid_engine = Json::object(), compile = Json::object();
  Json tensor_parallel = Json::object(), expert_parallel = Json::object();
  Json elasticity = Json::object(), autotuning = Json::object(), eigenvalue = Json::object();
  Json curriculum_learning = Json::object(), data_efficiency = Json::object();
  Json compression_training = Json::object();
  Json sparse_attention, weight_quantization;
  Json raw;  // as given
};

/// Reads a config for this number of data-parallel ranks. Throws ConfigError, naming the key's path, for
/// unknown keys, wrong types and values, contradictions and features that do not exist yet. Throws IoError
/// for a file that cannot be read.
DEEPSPEED_API DeepSpeedConfig load_config(const ConfigSource& source, int64_t data_parallel_world_size);

/// Reads a config as load_config() does, but accepts features that do not exist yet.
DEEPSPEED_API DeepSpeedConfig read_config(const ConfigSource& source, int64_t data_parallel_world_size);

/// Throws ConfigError, naming the key, for the first contradictory combination of values (rules.cpp).
DEEPSPEED_API void require_consistent(const DeepSpeedConfig& config, int64_t data_parallel_world_size);

/// Writes the members as JSON, with defaults and resolved batch sizes. Loading the result gives an equal
/// config.
DEEPSPEED_API Json to_json(const DeepSpeedConfig& config);

}  // namespace deepspeed::config
