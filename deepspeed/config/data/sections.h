// The sections of the data and of what is learned from it in which order: curriculum_learning,
// data_efficiency, progressive_layer_drop, eigenvalue, compression_training and weight_quantization.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Options that show easy samples first, in the older form.
struct CurriculumLearningConfig {
  bool enabled = false;
  std::optional<std::string> curriculum_type;
  std::optional<int64_t> min_difficulty;
  std::optional<int64_t> max_difficulty;
  std::optional<std::string> schedule_type;
  std::optional<Json> schedule_config;
};

/// Options that show easy samples first.
struct DataCurriculumConfig {
  bool enabled = false;
  std::optional<std::string> data_cluster_path;
  std::optional<Json> curriculum_metrics;
};

/// Options of batches with a number of tokens.
struct DynamicBatchingConfig {
  bool enabled = false;
  std::optional<std::string> metrics_path;
  std::string lr_scaling_method = "linear";
  int64_t min_batch_size = 1;
  std::optional<int64_t> max_batch_size;
  std::string sequence_picking_order = "dataloader";
  std::optional<int64_t> max_tokens;
  bool verbose = false;
};

/// Options of which samples come when.
struct DataSamplingConfig {
  bool enabled = false;
  int64_t num_epochs = 1000;
  int64_t num_workers = 0;
  bool pin_memory = false;
  DataCurriculumConfig curriculum_learning;
  DynamicBatchingConfig dynamic_batching;
};

/// Options of how the number of tokens grows: by seq_per_step every require_steps.
struct RandomLtdGrowthConfig {
  std::optional<int64_t> require_steps;
  std::optional<int64_t> seq_per_step;
};

/// Options of how many tokens the dropping layers see.
struct RandomLtdScheduleConfig {
  std::optional<int64_t> min_value;
  std::optional<int64_t> max_value;
  std::optional<std::string> schedule_type;
  RandomLtdGrowthConfig schedule_config;
};

/// Options of a learning rate by tokens seen.
struct TokenLrScheduleConfig {
  bool enabled = false;
};

/// Options of layers that see some of the tokens.
struct RandomLtdConfig {
  bool enabled = false;
  std::optional<int64_t> total_layer_num;
  std::optional<int64_t> random_ltd_layer_num;
  std::optional<std::vector<int64_t>> random_ltd_layer_id;
  std::optional<std::string> model_mask_name;
  std::optional<std::string> model_type;
  std::optional<std::string> hidden_state_order;
  RandomLtdScheduleConfig random_ltd_schedule;
  TokenLrScheduleConfig layer_token_lr_schedule;
};

/// Options of which tokens pass which layers.
struct DataRoutingConfig {
  bool enabled = false;
  RandomLtdConfig random_ltd;
};

/// Options that train on less data for equal quality.
struct DataEfficiencyConfig {
  bool enabled = false;
  int64_t seed = 1234;
  DataSamplingConfig data_sampling;
  DataRoutingConfig data_routing;
};

/// Layers left out at random, more as training goes.
struct ProgressiveLayerDropConfig {
  bool enabled = false;
  double theta = 1.0;
  double gamma = 0.001;
};

/// The greatest eigenvalue of each layer's Hessian.
struct EigenvalueConfig {
  bool enabled = false;
  bool verbose = false;
  int64_t max_iter = 100;
  double tol = 1e-2;
  double stability = 1e-6;
  int64_t gas_boundary_resolution = 1;
  std::string layer_name = "bert.encoder.layer";
  int64_t layer_num = 0;
};

/// Options of a student of fewer layers.
struct LayerReductionConfig {
  bool enabled = false;
  std::optional<int64_t> keep_number_layer;
  std::optional<std::string> module_name_prefix;
  std::optional<std::vector<int64_t>> teacher_layer;
  std::optional<std::vector<std::string>> other_module_name;
};

/// Options that the groups of a technique share, and the groups by name: params, modules, related_modules.
template <class Shared>
struct TechniqueConfig {
  Shared shared_parameters;
  std::optional<Json> different_groups;
};

struct Fp16MixedQuantizeConfig {
  bool enabled = false;
  double quantize_change_ratio = 0.001;
};

struct WeightTechniqueConfig {
  bool enabled = false;
  bool quantizer_kernel = false;
  int64_t schedule_offset = 0;
  int64_t quantize_groups = 1;
  bool quantize_verbose = false;
  std::string quantization_type = "symmetric";
  bool quantize_weight_in_forward = false;
  std::string rounding = "nearest";
  Fp16MixedQuantizeConfig fp16_mixed_quantize;
};

struct ActivationTechniqueConfig {
  bool enabled = false;
  std::string quantization_type = "symmetric";
  std::string range_calibration = "dynamic";
  int64_t schedule_offset = 1000;
};

struct SparseTechniqueConfig {
  bool enabled = false;
  std::string method = "l1";
  int64_t schedule_offset = 1000;
  std::string block_pattern = "4x1";
  double dense_ratio = 0.1;
  int64_t schedule_offset_stride = 1;
  std::optional<int64_t> schedule_offset_end;
  std::vector<std::string> excluded_modules;
};

/// Options of pruning rows or channels.
struct PruningTechniqueConfig {
  bool enabled = false;
  std::string method = "l1";
  int64_t schedule_offset = 1000;
};

struct HeadTechniqueConfig {
  bool enabled = false;
  std::string method = "topk";
  int64_t schedule_offset = 1000;
  std::optional<int64_t> num_heads;
};

struct CompressionTrainingConfig {
  LayerReductionConfig layer_reduction;
  TechniqueConfig<WeightTechniqueConfig> weight_quantization;
  TechniqueConfig<ActivationTechniqueConfig> activation_quantization;
  TechniqueConfig<SparseTechniqueConfig> sparse_pruning;
  TechniqueConfig<PruningTechniqueConfig> row_pruning;
  TechniqueConfig<HeadTechniqueConfig> head_pruning;
  TechniqueConfig<PruningTechniqueConfig> channel_pruning;
};

/// Options of weights of 4 or 8 bits in inference. The section is on unless it says otherwise.
struct DEEPSPEED_API WeightQuantizationConfig {
  bool enabled = true;
  int64_t num_bits = 8;
  Json q_type;
  int64_t q_groups = 1;
  Json quantized_initialization = Json::object();
  Json post_init_quant = Json::object();
};

/// Adds to weight_quantization its switch, which an older form leaves out.
DEEPSPEED_API Json with_switch(const Json& given);

}  // namespace deepspeed::config
