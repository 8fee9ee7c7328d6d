// The engine of scripts that write forward, backward and step themselves.
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
  /// naming the key, and UsageError. All ranks call it.
  Engine(EngineModel model, const InitializeOptions& options);

  /// Runs backward of `loss` (a scalar that needs a gradient) divided by the accumulation steps and
  /// multiplied by the loss scale, and reduces gradients as the ZeRO stage asks. Returns the divided loss,
  /// detached. A direct `loss.backward()` on outputs of forward() does the same, with reductions completed in
  /// step(). Other engines that share the loss get their own loss scale, and the same division; they complete
  /// their reductions in finish_backward() or step().
  at::Tensor backward(const at::Tensor& loss, const BackwardOptions& options = {});
  /// `loss` times the loss scale, for a `backward()` of the caller's own on the result. Of a loss that
  /// several engines share, any one of them scales the whole; each engine's gradients carry its own scale. A
  /// loss that was scaled already comes back as it is.
  at::Tensor scale(const at::Tensor& loss);
  /// Ends a direct `loss.backward()`, e.g. one loss over the outputs of several engines: completes this
  /// engine's reductions. step() does it as well.
  void finish_backward();
  /// The same under DeepSpeed's name.
  void _backward_epilogue() { finish_backward(); }
  /// Reduces, at the accumulation boundary, what backward() with allreduce_gradients = false left. With
  /// `bucket_size`, from here on at most so many elements travel together, instead of the config's
  /// reduce_bucket_size. All ranks pass the same. Throws UsageError below 1.
  void allreduce_gradients(std::optional<int64_t> bucket_size = {});
  /// Ends a micro step; at the accumulation boundary updates the parameters, the schedule and the counters.
  /// With managed_gradient_accumulation = false every step updates.
  void step(const StepOptions& options = {});
  /// Stages 0 and 1: until the end of the scope, backwards only add to this rank's gradients. step() is
  /// refused in it.
  NoSync no_sync();
  /// Until the end of the scope, backwards leave their gradients with the parameters; the end reduces their
  /// sum once.
  CoalescedReduction coalesce_grad_reduction();

  bool is_gradient_accumulation_boundary() const;
  /// Overrides the boundary until it is set to nothing.
  void set_gradient_accumulation_boundary(std::optional<bool> is_boundary);
};

}  // namespace deepspeed
