// Sections of the training itself: optimizer, scheduler, fp16, bf16, amp, torch_autocast, data_types,
// checkpoint, compile and hybrid_engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::config {

struct DEEPSPEED_API OptimizerConfig {
  std::string type;
  Json params = Json::object();
  bool legacy_fusion = false;
};

struct DEEPSPEED_API SchedulerConfig {
  std::string type;
  Json params = Json::object();
};

struct Fp16Section {
  bool enabled = false;
  bool auto_cast = false;
  double loss_scale = 0.0;  // 0: dynamic
  int64_t initial_scale_power = 16;
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  int64_t min_loss_scale = 1;
  bool fp16_master_weights_and_grads = false;
};

struct Bf16Config {
  bool enabled = false;
  bool immediate_grad_update = false;
  bool check_grad_overflow = true;
  bool bf16_master_weights_and_grads = false;
  bool bf16_optimizer_states = false;
  bool split_master_weights = false;
};

struct AmpConfig {
  bool enabled = false;
};

struct TorchAutocastConfig {
  bool enabled = false;
  std::optional<std::string> dtype;  // fp16 or bf16; absent: the device's default
  std::optional<std::vector<std::string>>
      lower_precision_safe_modules;  // absent: linear layers and convolutions
};

/// Holds the section data_types. Dtypes are "fp32", "fp16" or "bf16", however the config spells them.
struct DataTypesConfig {
  std::optional<std::string> grad_accum_dtype;
  std::optional<std::string> param_dtype;
  std::optional<std::string> buffer_dtype;
};

struct ParallelWriteConfig {
  bool pipeline_stage = false;
};

struct CheckpointWriterConfig {
  std::string type = "FAST";            // MOCK, PYTHON or FAST
  int64_t io_buffer_size = 67'108'864;  // bytes
  bool io_buffer_double = true;
  int64_t io_multiplier = 1;
  bool show_statistics = false;
  std::optional<std::string> data_parallel;  // replica, socket or machine
  bool decoupled = false;
};

struct CheckpointConfig {
  std::string tag_validation = "Warn";  // Warn, Ignore or Fail
  bool load_universal = false;
  bool use_node_local_storage = false;
  ParallelWriteConfig parallel_write;
  bool checkpoint_serialization = true;
  std::optional<CheckpointWriterConfig> writer;
  std::optional<int64_t> keep_last;  // number of complete tags to keep; none: all
};

/// Configures dropping random layers, more of them as training proceeds.
struct ProgressiveLayerDropConfig {
  bool enabled = false;
  double theta = 1.0;
  double gamma = 0.001;
};

/// Configures running a model's forward and backward as CUDA graphs.
struct CudaGraphsConfig {
  bool enabled = false;
  int64_t warmup_steps = 3;  // forwards of each shape before it is captured
  int64_t max_shapes = 8;
};

}  // namespace deepspeed::config
