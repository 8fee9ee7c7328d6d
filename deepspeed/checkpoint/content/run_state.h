// A rank needs this to go on exactly where it stood, beside weights and optimizer: random streams, the
// position of the data loader and that in the accumulation window. It lies in a file of our own, one a rank,
// that DeepSpeed's patterns pass over.
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
  int64_t micro_steps = 0;  // done in the accumulation window under way
  // What a rank alone has of the optimizer: errors of 1-bit compression, steps that it made by itself.
  std::vector<std::pair<std::string, at::Tensor>> optimizer_tensors = {};
  int64_t optimizer_ranks = 0;  // which the optimizer's run had; 0: its states are no rank's own
};

Value build_run_state(const RunState& state);
/// Reads the state. Throws CheckpointError naming what is missing or of another kind.
RunState parse_run_state(const Value& value);

}  // namespace deepspeed::checkpoint
