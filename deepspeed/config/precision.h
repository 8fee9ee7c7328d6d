// The sections fp16 and bf16.
#pragma once

#include <cstdint>

#include "deepspeed/config/table.h"

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
};

const Table<Fp16Config>& fp16_table();
const Table<Bf16Config>& bf16_table();

}  // namespace deepspeed::config
