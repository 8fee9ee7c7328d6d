// Measures how fast the collectives of a group are, by size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/log/bandwidth.h"

namespace deepspeed::comm {

/// Returns the measurable operations: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, pt2pt.
DEEPSPEED_API const std::vector<std::string>& measured_operations();

struct MeasureOptions {
  std::vector<std::string> operations = measured_operations();
  std::vector<int64_t> sizes = {
      1 << 20};  // bytes of a collective's tensors in total, rounded to whole elements per rank
  at::ScalarType dtype = at::kFloat;
  int warmups = 5;
  int trials = 20;
  bool in_buffers = true;  // use buffers as the engine does, which ranks of one machine read without a copy
};

/// Holds the time that a collective of one size took.
struct Measured {
  std::string operation;
  int64_t bytes = 0;
  double milliseconds = 0;  // mean of the trials on the slowest rank
  Bandwidth bandwidth;
};

/// Verifies each collective's result on all ranks, then times it. Collective. All ranks get the same results,
/// by operation and size in the order of the options. pt2pt goes from rank 0 to rank 1 and is left out in a
/// group of one. Tensors are on the group's device. Throws UsageError for an unknown operation or sizes and
/// counts below 1, and Error if a result is wrong.
DEEPSPEED_API std::vector<Measured> measure_collectives(const ProcessGroup& group,
                                                        const MeasureOptions& options);

/// Formats one table per operation: size, duration, and bandwidths. Those are in gigabits or gigabytes per
/// second.
DEEPSPEED_API std::string measured_text(const std::vector<Measured>& all, int num_ranks, bool in_gigabytes);

}  // namespace deepspeed::comm
