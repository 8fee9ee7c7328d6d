// What surrounds a model's forward: the access window of stage 3, autocast, timing, and the nodes on its
// outputs.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace deepspeed {

class StepDriver;

/// While it lives, the model's forward may run. Tensors that leave it pass through output().
class [[nodiscard]] ForwardScope {
 public:
  /// `driver` (Engine::driver()) must outlive it. Throws UsageError where a load that failed has left parts
  /// of a checkpoint.
  explicit ForwardScope(const StepDriver& driver);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

  /// `tensor` behind nodes that make a direct `loss.backward()` gather parameters and scale gradients as
  /// backward() does; the values are shared.
  at::Tensor output(const at::Tensor& tensor) const;

 private:
  struct Scopes;
  const StepDriver& driver_;
  std::unique_ptr<Scopes> scopes_;
};

}  // namespace deepspeed
