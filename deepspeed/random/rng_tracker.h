// Streams of random numbers by name: ranks that share layers out draw the same numbers where they hold the
// same, and others where they hold parts. Names and seeds are DeepSpeed's (deepspeed.checkpointing).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Names the stream of model_parallel_cuda_manual_seed() that differs between model-parallel ranks.
inline constexpr const char* kModelParallelRng = "model-parallel-rng";

/// Holds states of the default generator of this process's device: of the current CUDA device where there is
/// one, else of the CPU. Not for two threads at once.
class DEEPSPEED_API CudaRNGStatesTracker {
 public:
  /// Runs the default generator on a stream of the tracker's while it lives, and then goes on as before.
  class [[nodiscard]] Fork {
   public:
    Fork(CudaRNGStatesTracker& tracker, std::string name);
    ~Fork();
    Fork(const Fork&) = delete;
    Fork& operator=(const Fork&) = delete;

   private:
    CudaRNGStatesTracker& tracker_;
    std::string name_;
    at::Tensor outside_;
  };

  /// Forgets all streams.
  void reset();
  /// The states by name: byte tensors.
  std::map<std::string, at::Tensor> get_states() const { return states_; }
  void set_states(std::map<std::string, at::Tensor> states) { states_ = std::move(states); }
  /// Begins a stream. Throws UsageError for a name or a seed that is there already.
  void add(const std::string& name, uint64_t seed);
  /// Runs the default generator on a stream until the end of the scope. Throws UsageError where there is none
  /// of the name.
  DEEPSPEED_API Fork fork(const std::string& name = kModelParallelRng) { return {*this, name}; }

 private:
  std::map<std::string, at::Tensor> states_;
  std::set<uint64_t> seeds_;
};

/// Returns the process's tracker.
DEEPSPEED_API CudaRNGStatesTracker& get_cuda_rng_tracker();

/// Seeds the default generator with `seed`, alike on the model-parallel ranks of a data-parallel one, and
/// begins the stream kModelParallelRng with seed + 2718 + model_parallel_rank.
DEEPSPEED_API void model_parallel_cuda_manual_seed(uint64_t seed, int model_parallel_rank = 0);
/// Does the same under its later name.
DEEPSPEED_API void model_parallel_reconfigure_tp_seed(uint64_t seed, int model_parallel_rank = 0);

}  // namespace deepspeed
