// The section compile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

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

const Table<CompileConfig>& compile_table();

}  // namespace deepspeed::config
