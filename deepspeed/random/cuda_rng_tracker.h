// Named streams of random numbers, besides the default one. Numbers that all model-parallel ranks must share
// come from the default generator; numbers for a rank's own part of a layer come from a stream of its own.
// The names are DeepSpeed's (deepspeed.checkpointing). Without a CUDA device the streams are the CPU's.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Names the stream that model_parallel_cuda_manual_seed() adds.
inline constexpr const char* kModelParallelRng = "model-parallel-rng";

/// Holds states of generators by name. Thread-safe, but forks in two threads share one default generator.
class DEEPSPEED_API CudaRNGStatesTracker {
 public:
  using States = std::map<std::string, at::Tensor>;

  /// Makes the device's default generator draw from a named stream while the fork exists. The destructor
  /// keeps the stream's advanced state and restores the default one.
  class DEEPSPEED_API Fork {
   public:
    ~Fork();
    Fork(const Fork&) = delete;
    Fork& operator=(const Fork&) = delete;

   private:
    friend class CudaRNGStatesTracker;
    Fork(CudaRNGStatesTracker& tracker, std::string name);
    CudaRNGStatesTracker& tracker_;
    std::string name_;
    at::Tensor default_state_;
  };

  /// Removes all streams and seeds.
  void reset();
  /// Returns the states by name, as byte tensors that further draws do not change.
  States get_states() const;
  /// Replaces all states. Used seeds stay recorded.
  void set_states(States states);
  /// Adds a named stream whose generator is seeded with `seed`. Throws UsageError if the name or the seed was
  /// already added.
  void add(const std::string& name, uint64_t seed);
  /// Starts drawing from a named stream. Throws UsageError for a name that was not added.
  [[nodiscard]] Fork fork(const std::string& name = kModelParallelRng);

 private:
  at::Tensor state_of(const std::string& name) const;
  void keep(const std::string& name, at::Tensor state);

  mutable std::mutex mutex_;
  States states_;
  std::set<uint64_t> seeds_;
};

/// Returns the tracker of the process. Recomputation (checkpointing::checkpoint) restores the tracker's
/// streams, so that they give the same numbers again.
DEEPSPEED_API CudaRNGStatesTracker& get_cuda_rng_tracker();

/// Seeds the generators of a model-parallel rank, as DeepSpeed and Megatron do. The device's default
/// generators get `seed`, equal on all ranks of a model. The tracker is reset, and its only stream
/// `model-parallel-rng` gets `seed + 2718 + model_parallel_rank`. Throws UsageError for a negative rank.
DEEPSPEED_API void model_parallel_cuda_manual_seed(uint64_t seed, int model_parallel_rank = 0);

/// Reseeds the tracker's stream `model-parallel-rng` with `seed + 2718 + model_parallel_rank`. The default
/// generators stay as they are.
DEEPSPEED_API void model_parallel_reconfigure_tp_seed(uint64_t seed, int model_parallel_rank = 0);

}  // namespace deepspeed
