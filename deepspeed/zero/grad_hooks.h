// Calls a reducer each time autograd has accumulated a parameter's gradient.
#pragma once

#include <memory>

#include "deepspeed/zero/grad_reducer.h"

namespace deepspeed::zero {

/// Hooks live as long as this object; afterwards the parameters behave as before.
class GradHooks {
 public:
  GradHooks(ParamStore& store, GradReducer& reducer);
  ~GradHooks();
  GradHooks(const GradHooks&) = delete;
  GradHooks& operator=(const GradHooks&) = delete;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepspeed::zero
