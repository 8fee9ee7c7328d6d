// Chooses batch sizes that fit many numbers of devices, by the rules 0.1 and 0.2 of the section elasticity.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/config/tools/sections.h"

namespace deepspeed::config {

/// Holds the chosen batch size and the numbers of devices that it fits.
struct ElasticBatch {
  int64_t train_batch_size = 0;
  std::vector<int64_t> valid_counts;  ///< of devices (0.1) or of data-parallel ranks (0.2), ascending
  int64_t micro_batch_size =
      0;  ///< per data-parallel rank, for the requested number of devices; 0: none requested, or none fits
};

/// Chooses the batch size that fits the most different numbers of devices. `num_devices` is the requested
/// number, or zero. Throws ConfigError, naming the key, if a micro batch exceeds the largest batch,
/// model_parallel_size does not divide num_gpus_per_node, or no number of devices fits.
DEEPSPEED_API ElasticBatch elastic_batch(const ElasticRules& rules, int64_t num_devices);

/// Chooses as elastic_batch() does, for a job with this many devices. Also throws ConfigError if the batch
/// does not fit that number, or if the variable DEEPSPEED_ELASTICITY_CONFIG, in which a scheduler names the
/// rules that it assumes, has other values.
DEEPSPEED_API ElasticBatch elastic_batch_of_job(const ElasticRules& rules, int64_t num_devices);

}  // namespace deepspeed::config
