// The sections of the training itself: optimizer, scheduler, fp16, bf16, amp, torch_autocast, data_types,
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
  std::optional<std::string> dtype;  // fp16 or bf16; absent: the device's own choice
  std::optional<std::vector<std::string>> lower_precision_safe_modules;  // absent: linear and convolutions
};

/// Types of numbers; each is fp32, fp16 or bf16, however it was spelled.
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
  std::optional<int64_t> keep_last;  // complete tags; none: all of them
};

/// Options of compiled training.
struct CompileConfig {
  bool deepcompile = false;
  bool free_activation = false;
  int64_t free_activation_threshold = 10485760;
  bool offload_activation = false;
  bool offload_activation_pin_memory = true;
  bool offload_opt_states = false;
  bool double_buffer = true;
  bool symmetric_memory = false;
  bool debug_log = false;
  bool offload_parameters = false;
  bool sync_before_reduce = false;
  bool sync_after_reduce = false;
  bool sync_before_allgather = false;
  bool sync_after_allgather = false;
  bool keep_int_input_tensors = true;
  bool keep_all_input_tensors = false;
  std::optional<std::vector<std::string>> passes;
};

/// Options of training and generation in turn.
struct HybridEngineConfig {
  bool enabled = false;
  int64_t max_out_tokens = 512;
  int64_t inference_tp_size = 1;
  bool release_inference_cache = false;
  bool pin_parameters = true;
  int64_t tp_gather_partition_size = 8;
  bool enable_cuda_graph = false;
};

}  // namespace deepspeed::config
