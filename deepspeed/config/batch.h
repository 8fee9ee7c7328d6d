// Resolves the three batch sizes, some of which a config may leave out.
#pragma once

#include <cstdint>
#include <optional>

namespace deepspeed::config {

struct BatchSizes {
  std::optional<int64_t> train_batch_size;
  std::optional<int64_t> train_micro_batch_size_per_gpu;
  std::optional<int64_t> gradient_accumulation_steps;
};

/// Infers the sizes that are absent. train_batch_size is the product of the other two and the data-parallel
/// world size. At least train_batch_size or train_micro_batch_size_per_gpu must be given. Throws ConfigError
/// for sizes below 1, given or inferred, and for a given train_batch_size that is not this product. Throws
/// UsageError for a world size below 1.
BatchSizes resolve_batch_sizes(const BatchSizes& given, int64_t data_parallel_world_size);

}  // namespace deepspeed::config
