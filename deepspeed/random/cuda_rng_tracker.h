// Streams of random numbers by name, beside the default one: what all model-parallel ranks draw alike comes
// from the default generator, what each draws for its part of a layer comes from a stream of its own. The
// names are DeepSpeed's (deepspeed.checkpointing); without a CUDA device the streams are the CPU's.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// The stream that model_parallel_cuda_manual_seed() adds.
inline constexpr const char* kModelParallelRng = "model-parallel-rng";

/// Holds states of generators by name. Any thread may call, but forks of two threads draw from one default
/// generator.
class DEEPSPEED_API CudaRNGStatesTracker {
 public:
  using States = std::map<std::string, at::Tensor>;

  /// Lets the default generator of the device draw from a named stream while it lives; afterwards the stream
  /// has moved on and the default one is where it was.
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

  /// Forgets all streams and seeds.
  void reset();
  /// Returns the states, one a name: byte tensors that further draws do not change.
  States get_states() const;
  /// Takes these states in place of all. The seeds that were used stay known.
  void set_states(States states);
  /// Adds a stream that starts at `seed`. Throws UsageError where the name or the seed was added already.
  void add(const std::string& name, uint64_t seed);
  /// Throws UsageError for a name that was not added.
  [[nodiscard]] Fork fork(const std::string& name = kModelParallelRng);

 private:
  at::Tensor state_of(const std::string& name) const;
  void keep(const std::string& name, at::Tensor state);

  mutable std::mutex mutex_;
  States states_;
  std::set<uint64_t> seeds_;
};

/// Returns the tracker of the process. Recomputation (checkpointing::checkpoint) repeats its streams.
DEEPSPEED_API CudaRNGStatesTracker& get_cuda_rng_tracker();

/// Seeds the generators of a model-parallel rank, as DeepSpeed and Megatron do: the device's default ones
/// with `seed`, alike on all ranks of a model, and the tracker's single stream `model-parallel-rng` with
/// `seed + 2718 + model_parallel_rank`. Throws UsageError for a negative rank.
DEEPSPEED_API void model_parallel_cuda_manual_seed(uint64_t seed, int model_parallel_rank = 0);

/// Gives the tracker's stream `model-parallel-rng` a new seed, `seed + 2718 + model_parallel_rank`, and
/// leaves the default generators as they are.
DEEPSPEED_API void model_parallel_reconfigure_tp_seed(uint64_t seed, int model_parallel_rank = 0);

}  // namespace deepspeed
