// Engine is for programs that call forward, backward and step themselves.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/engine/step/scopes.h"
#include "deepspeed/engine/training_engine.h"

namespace deepspeed {

struct InitializeOptions;

class DEEPSPEED_API Engine : public TrainingEngine {
 public:
  /// Casts, partitions and broadcasts the parameters of `model`, as initialize() does. Throws ConfigError,
  /// naming the key, and UsageError. Collective.
  Engine(EngineModel model, const InitializeOptions& options);

  /// Runs backward of a scaled loss and reduces the gradients as the ZeRO stage asks. `loss`, a scalar that
  /// needs a gradient, is divided by the accumulation steps and multiplied by the loss scale. Returns the
  /// divided loss, detached. A direct `loss.backward()` on outputs of forward() gives the same gradients, and
  /// step() then completes the reductions. Other engines that share the loss apply their own loss scale and
  /// the same division. They complete their reductions in finish_backward() or step().
  at::Tensor backward(const at::Tensor& loss, const BackwardOptions& options = {});
  /// Returns `loss` times the loss scale, for a `backward()` that the caller runs. If several engines share
  /// the loss, any one of them may scale it; each engine's gradients still get its own scale. A loss that was
  /// already scaled is returned unchanged.
  at::Tensor scale(const at::Tensor& loss);
  /// Completes this engine's reductions after a direct `loss.backward()`. Call it, for example, after the
  /// backward of one loss over the outputs of several engines. step() completes them too.
  void finish_backward();
  /// Calls finish_backward(), under DeepSpeed's name.
  void _backward_epilogue() { finish_backward(); }
  /// Reduces the gradients that backward() with allreduce_gradients = false left unreduced. Call it after the
  /// last backward before an accumulation boundary; elsewhere it reduces nothing. `bucket_size` replaces the
  /// config's reduce_bucket_size from now on: it limits the elements that are sent together. All ranks must
  /// pass the same value. Throws UsageError below 1.
  void allreduce_gradients(std::optional<int64_t> bucket_size = {});
  /// Ends a micro step; at the accumulation boundary updates parameters, schedule and counters. With
  /// managed_gradient_accumulation = false every step updates.
  void step(const StepOptions& options = {});
  /// Makes backwards only add to this rank's gradients, until the scope ends. Stages 0 and 1 only. step()
  /// throws inside.
  NoSync no_sync();
  /// Postpones the reduction of gradients until the scope ends. Backwards add to the parameters' grads; the
  /// scope's end reduces the sums once.
  CoalescedReduction coalesce_grad_reduction();

  bool is_gradient_accumulation_boundary() const;
  /// Fixes whether the next calls of step() are at the boundary. With std::nullopt the accumulation steps
  /// decide again.
  void set_gradient_accumulation_boundary(std::optional<bool> is_boundary);
};

}  // namespace deepspeed
