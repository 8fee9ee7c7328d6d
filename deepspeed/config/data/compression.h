// The sections compression_training and weight_quantization.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

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
struct WeightQuantizationConfig {
  bool enabled = true;
  int64_t num_bits = 8;
  Json q_type;
  int64_t q_groups = 1;
  Json quantized_initialization = Json::object();
  Json post_init_quant = Json::object();
};

const Table<CompressionTrainingConfig>& compression_training_table();
const Table<WeightQuantizationConfig>& weight_quantization_table();

/// Adds to weight_quantization its switch, which an older form leaves out.
Json with_switch(const Json& given);

}  // namespace deepspeed::config
