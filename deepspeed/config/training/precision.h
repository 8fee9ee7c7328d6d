// The sections that choose types of numbers: fp16, bf16, amp, torch_autocast and data_types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

struct Fp16Config {
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

const Table<Fp16Config>& fp16_table();
const Table<Bf16Config>& bf16_table();
const Table<AmpConfig>& amp_table();
const Table<TorchAutocastConfig>& torch_autocast_table();
const Table<DataTypesConfig>& data_types_table();

}  // namespace deepspeed::config
