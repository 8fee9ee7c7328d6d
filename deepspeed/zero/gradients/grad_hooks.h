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

/// Holds the hooks: they live as long as this object; afterwards the parameters behave as before.
class GradHooks {
 public:
  GradHooks(ParamStore& store, GradReducer& reducer);
  ~GradHooks();
  GradHooks(const GradHooks&) = delete;
  GradHooks& operator=(const GradHooks&) = delete;

  /// The reducer's on_unit_done(), under the lock of the hooks.
  void on_unit_done(size_t unit);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Whether a node of autograd adds to the gradient of a parameter that hooks follow, of any reducer.
bool has_grad_hook(torch::autograd::Node& node);

}  // namespace deepspeed::zero
