// The section elasticity.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options of batch sizes that fit many numbers of devices.
struct ElasticityConfig {
  bool enabled = false;
  int64_t max_train_batch_size = 2000;
  std::vector<int64_t> micro_batch_sizes = {2, 4, 6};
  int64_t min_gpus = 1;
  int64_t max_gpus = 10000;
  int64_t num_gpus_per_node = 1;
  int64_t model_parallel_size = 1;
  int64_t min_time = 0;
  bool prefer_larger_batch = true;
  bool ignore_non_elastic_batch_info = false;
  double version = 0.2;
};

const Table<ElasticityConfig>& elasticity_table();

}  // namespace deepspeed::config
