// The scopes of a training step. ForwardScope surrounds a model's forward with the stage 3 access window,
// autocast, timing and the nodes on its outputs. The scopes of Engine::no_sync() and
// coalesce_grad_reduction() postpone the reduction of gradients.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/unwinding.h"
#include "deepspeed/engine/step/forward_call.h"

namespace deepspeed {

class StepDriver;

/// Allows the model's forward to run while the scope exists. Call output() on every tensor that leaves the
/// model.
class [[nodiscard]] DEEPSPEED_API ForwardScope {
 public:
  /// Begins the forward. `driver` (Engine::driver()) must outlive the scope. Throws UsageError if a failed
  /// load has left parts of a checkpoint.
  explicit ForwardScope(const StepDriver& driver);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

  /// Returns `tensor` through the autograd nodes that a direct `loss.backward()` needs. The nodes gather
  /// parameters and scale gradients as Engine::backward() does. The result shares the tensor's memory.
  at::Tensor output(const at::Tensor& tensor) const;

  /// Returns whether this forward runs as a graph. A graph needs cuda_graphs, training mode and gradients
  /// enabled.
  bool has_graphs() const;
  /// Returns what `forward` returns for the call, from CUDA graphs if captured. See GraphedForward::run().
  ForwardResult run_graph(const ForwardCall& call, const RunForward& forward) const;

 private:
  struct Scopes;
  const StepDriver& driver_;
  std::unique_ptr<Scopes> scopes_;
};

/// Makes backwards add to this rank's gradients, without communication, while it exists.
class [[nodiscard]] DEEPSPEED_API NoSync {
 public:
  /// Begins the scope. The destructor calls `end` once.
  explicit NoSync(std::function<void()> end);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::function<void()> end_;
};

/// Postpones the reduction of gradients while it exists. Backwards add to the parameters' grads; the
/// destructor reduces the sums once.
class [[nodiscard]] DEEPSPEED_API CoalescedReduction {
 public:
  /// Begins the scope. The destructor calls `end` once. It passes false if an exception ends the scope; the
  /// gradients are then dropped.
  explicit CoalescedReduction(std::function<void(bool reduces)> end);
  /// Reduces the sums. Throws what the reduction throws.
  ~CoalescedReduction() noexcept(false);
  /// Drops the gradients and ends the scope, as an exception would.
  void forget();
  CoalescedReduction(const CoalescedReduction&) = delete;
  CoalescedReduction& operator=(const CoalescedReduction&) = delete;

 private:
  std::function<void(bool)> end_;
  Unwinding unwinding_;
};

}  // namespace deepspeed
