// The section tensor_parallel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options of the ranks that share a layer.
struct TensorParallelRanksConfig {
  int64_t tp_size = 1;
  int64_t tp_grain_size = 1;
  Json mpu;
  Json tp_group;
};

/// Options of tensor parallelism.
struct TensorParallelConfig {
  std::string dtype = "torch.float16";
  int64_t autotp_size = 0;
  bool tp_overlap_comm = false;
  TensorParallelRanksConfig tensor_parallel;
  Json injection_policy_tuple;
  std::optional<Json> partition_config;
  std::optional<std::string> preset_model;
  bool keep_module_on_host = false;
  bool replace_with_kernel_inject = false;
};

const Table<TensorParallelConfig>& tensor_parallel_table();

}  // namespace deepspeed::config
