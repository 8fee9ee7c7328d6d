// Calls a reducer each time autograd has accumulated a parameter's gradient.
#pragma once

#include <cstddef>
#include <memory>

namespace torch::autograd {
struct Node;
}

namespace deepspeed::zero {

class GradReducer;
class ParamStore;

/// Passes each gradient of the store's parameters to the reducer, by hooks. The destructor removes the hooks.
class GradHooks {
 public:
  GradHooks(ParamStore& store, GradReducer& reducer);
  ~GradHooks();
  GradHooks(const GradHooks&) = delete;
  GradHooks& operator=(const GradHooks&) = delete;

  /// Calls the reducer's on_unit_done() under the hooks' lock.
  void on_unit_done(size_t unit);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Returns whether an autograd node accumulates the gradient of a hooked parameter, of any reducer.
bool has_grad_hook(torch::autograd::Node& node);

}  // namespace deepspeed::zero
