// Holds what a rank needs, besides weights and optimizer, to continue exactly: random streams, and its
// positions in the data and in the accumulation window. Each rank writes one such file, in a format of this
// library. Its name matches no pattern by which DeepSpeed finds files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

struct LoaderState {
  uint64_t seed = 0;
  int64_t epoch = -1;
  int64_t samples_consumed = 0;
  bool epoch_ended = true;
};

struct RunState {
  at::Tensor cpu_rng;                                  // bytes
  at::Tensor cuda_rng;                                 // undefined without CUDA
  std::map<std::string, at::Tensor> rng_streams = {};  // of CudaRNGStatesTracker, by name
  std::optional<LoaderState> loader;
  int64_t micro_steps = 0;  // completed in the current accumulation window
  // Optimizer state that differs between ranks: errors of 1-bit compression, steps taken without
  // communication.
  std::vector<std::pair<std::string, at::Tensor>> optimizer_tensors = {};
  int64_t optimizer_ranks = 0;  // number of ranks in the optimizer's run; 0 if no state differs between ranks
};

Value build_run_state(const RunState& state);
/// Parses the content of the file. Throws CheckpointError, naming what is missing or of the wrong type.
RunState parse_run_state(const Value& value);

}  // namespace deepspeed::checkpoint
