// Activation checkpointing under DeepSpeed's names. What a part of a model saves for backward is dropped
// after its forward, and recomputed when backward needs it. docs/activation_checkpointing.md is the guide.
//
//   deepspeed::checkpointing::configure(group, {.partition_activations = true});
//   x = deepspeed::checkpointing::checkpoint([&](at::Tensor h, int64_t heads) { return block(h, heads); }, x,
//                                            4);
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/activation/call_parts.h"
#include "deepspeed/activation/keep/checkpoint_options.h"
#include "deepspeed/activation/recompute/region_options.h"
#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::checkpointing {

using activation::RegionOptions;
using activation::SelectivePolicy;
using activation::TensorFunction;
using activation::TensorList;

/// Sets how checkpoint() keeps inputs, for the whole process, from the next call on. Replaces all earlier
/// settings. model_parallel_group: the ranks that partition_activations divides inputs among; an empty one
/// means one rank. Throws UsageError for options that contradict each other.
DEEPSPEED_API void configure(const comm::ProcessGroup& model_parallel_group,
                             const CheckpointOptions& options = {});
inline void configure(const CheckpointOptions& options = {}) { configure(comm::ProcessGroup(), options); }

/// Returns whether configure() was called. checkpoint() also works without it, with default options.
DEEPSPEED_API bool is_configured();
/// Frees the buffers of contiguous_checkpointing, which further forwards would reuse. A buffer lives on while
/// one of its inputs waits for backward.
DEEPSPEED_API void reset();
/// Sets CheckpointOptions::num_checkpoints. DeepSpeed programs pass their number of layers. Throws UsageError
/// below 1.
DEEPSPEED_API void set_num_layers(int64_t num_layers);
/// Sets CheckpointOptions::partition_activations. Throws UsageError for false if contiguous_checkpointing is
/// on.
DEEPSPEED_API void partition_activations_in_checkpoint(bool partition);

/// Runs `function` on a list of tensors, like checkpoint(). It is for layers that take lists, and for other
/// front ends. Undefined tensors pass through.
DEEPSPEED_API TensorList checkpoint_tensors(TensorFunction function, TensorList inputs,
                                            const RegionOptions& options = {});

/// Returns `function(args...)`, without keeping what the function saves for backward. Backward runs the
/// function again on the arguments, which are kept.
///
/// Tensors may be in tuples, vectors, optionals, maps and plain structs (tensor/visit_tensors.h). Arguments
/// of any other type are kept as copies. The result is a tensor, one of these types, or nothing. A
/// recomputation repeats random numbers (also those of get_cuda_rng_tracker()) and autocast; gradients equal
/// those of a plain call bit for bit. The function must do the same each time and take its tensors as
/// arguments. Values that the function captures stay alive until backward. With use_reentrant, a captured
/// tensor that operators computed gets no gradient. Without gradients (torch::NoGradGuard) this is a plain
/// call. Throws UsageError, also in backward, if a recomputation differs from its forward.
template <class Function, class... Args>
auto checkpoint(const RegionOptions& options, Function function, Args&&... args) {
  constexpr bool is_taken = std::invocable<Function&, std::decay_t<Args>...>;
  static_assert(is_taken,
                "checkpoint(function, arguments...), with RegionOptions before the function or without: the "
                "function does not take these arguments");
  if constexpr (is_taken) {
    using Result = std::invoke_result_t<Function&, std::decay_t<Args>...>;
    std::tuple<std::decay_t<Args>...> values(std::forward<Args>(args)...);
    TensorList inputs = activation::take_tensors(values);
    // The first call stores its result here; the outputs then replace its tensors.
    const auto first = std::make_shared<std::optional<activation::ResultOf<Result>>>(std::nullopt);
    const std::weak_ptr<std::optional<activation::ResultOf<Result>>> weak_first = first;
    const TensorFunction on_tensors = [function = std::move(function), values,
                                       weak_first](TensorList tensors) mutable {
      auto filled = values;
      activation::put_tensors(filled, std::move(tensors));
      auto result = activation::call(function, std::move(filled));
      TensorList outputs = activation::take_tensors(result);
      if (const auto slot = weak_first.lock(); slot && !*slot) slot->emplace(std::move(result));
      return outputs;
    };
    TensorList outputs = checkpoint_tensors(on_tensors, std::move(inputs), options);
    activation::put_tensors(**first, std::move(outputs));
    if constexpr (!std::is_void_v<Result>) return std::move(**first);
  } else {
    return at::Tensor();
  }
}

template <class Function, class... Args>
requires(!std::same_as<Function, RegionOptions>) auto checkpoint(Function function, Args&&... args) {
  return checkpoint(RegionOptions(), std::move(function), std::forward<Args>(args)...);
}

/// Calls checkpoint() with the default options, which DeepSpeed calls non-reentrant.
template <class Function, class... Args>
auto non_reentrant_checkpoint(Function function, Args&&... args) {
  return checkpoint(RegionOptions(), std::move(function), std::forward<Args>(args)...);
}

/// Runs checkpoint_tensors() with use_reentrant, as DeepSpeed's class of this name does.
struct CheckpointFunction {
  static TensorList apply(TensorFunction function, TensorList inputs) {
    return checkpoint_tensors(std::move(function), std::move(inputs), {.use_reentrant = true});
  }
};

}  // namespace deepspeed::checkpointing
