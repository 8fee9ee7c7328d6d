// Chooses batch sizes that fit many numbers of devices, by the rules 0.1 and 0.2 of the section elasticity.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/config/tools/sections.h"

namespace deepspeed::config {

/// Holds what the rules choose.
struct ElasticBatch {
  int64_t train_batch_size = 0;
  std::vector<int64_t> valid_counts;  ///< of devices (0.1) or of data-parallel ranks (0.2), ascending
  int64_t micro_batch_size =
      0;  ///< per data-parallel rank, for the requested number of devices; 0: none requested, or none fits
};

/// Chooses the batch size that the most numbers of devices divide. `num_devices` is the requested number, or
/// 0. Throws ConfigError, naming the key, if a micro batch exceeds the largest batch, the numbers of a node
/// do not divide each other, the version is unknown, or no number of devices fits.
DEEPSPEED_API ElasticBatch elastic_batch(const ElasticRules& rules, int64_t num_devices);

/// Chooses as elastic_batch() does, for a job with this many devices. Also throws ConfigError if the number
/// is not a valid one. Throws too if the variable DEEPSPEED_ELASTICITY_CONFIG has other values; a scheduler
/// sets it to the values that it assumes.
DEEPSPEED_API ElasticBatch elastic_batch_of_job(const ElasticRules& rules, int64_t num_devices);

}  // namespace deepspeed::config
