// The scopes of a training step. ForwardScope surrounds a model's forward: the access window of stage 3,
// autocast, timing, and the nodes on its outputs. Those that Engine::no_sync() and coalesce_grad_reduction()
// return put off the reduction of gradients.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed {

class StepDriver;
struct ForwardCall;
struct ForwardResult;

/// While it lives, the model's forward may run. Tensors that leave it pass through output().
class [[nodiscard]] DEEPSPEED_API ForwardScope {
 public:
  /// Begins the forward. `driver` (Engine::driver()) must outlive the scope. Throws UsageError where a load
  /// that failed has left parts of a checkpoint.
  explicit ForwardScope(const StepDriver& driver);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

  /// Returns `tensor` behind nodes that make a direct `loss.backward()` gather parameters and scale gradients
  /// as backward() does; the values are shared.
  at::Tensor output(const at::Tensor& tensor) const;

  /// Whether this forward runs as a graph: not without cuda_graphs, in evaluation, and without gradients.
  bool has_graphs() const;
  /// Returns what `forward` returns for the call, replayed where it was captured: GraphedForward::run().
  ForwardResult run_graph(const ForwardCall& call,
                          const std::function<ForwardResult(const std::vector<at::Tensor>&)>& forward) const;

 private:
  struct Scopes;
  const StepDriver& driver_;
  std::unique_ptr<Scopes> scopes_;
};

/// While it lives, backwards add to this rank's gradients and no rank talks to another.
class [[nodiscard]] DEEPSPEED_API NoSync {
 public:
  /// Begins the scope. `end` is called once, by the destructor.
  explicit NoSync(std::function<void()> end);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::function<void()> end_;
};

/// While it lives, backwards leave their gradients with the parameters; its end reduces their sum once.
class [[nodiscard]] DEEPSPEED_API CoalescedReduction {
 public:
  /// Begins the scope. `end` is called once, by the destructor: with false where an exception ends the scope,
  /// which forgets the gradients.
  explicit CoalescedReduction(std::function<void(bool reduces)> end);
  /// Throws what the reduction throws.
  ~CoalescedReduction() noexcept(false);
  CoalescedReduction(const CoalescedReduction&) = delete;
  CoalescedReduction& operator=(const CoalescedReduction&) = delete;

 private:
  std::function<void(bool)> end_;
  int exceptions_;  // under way when the scope began
};

}  // namespace deepspeed
