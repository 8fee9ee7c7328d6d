#include "deepspeed/engine/engine.h"

#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/engine/assembly/build.h"
#include "deepspeed/engine/step/step_driver.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {

Engine::Engine(EngineModel model, const InitializeOptions& options)
    : TrainingEngine(build_engine(std::move(model), options)) {}

at::Tensor Engine::backward(const at::Tensor& loss, const BackwardOptions& options) {
  require_optimizer("backward");
  return step_driver().backward(loss, options);
}

at::Tensor Engine::scale(const at::Tensor& loss) {
  const double loss_scale = require_optimizer("scale").loss_scale();
  if (!loss.defined()) raise<UsageError>("scale() got an undefined tensor");
  return scale_loss(loss, loss_scale);
}

void Engine::finish_backward() {
  require_optimizer("finish_backward");
  step_driver().finish_backward();
}

void Engine::allreduce_gradients(std::optional<int64_t> bucket_size) {
  require_optimizer("allreduce_gradients");
  step_driver().allreduce_gradients(bucket_size);
}

void Engine::step(const StepOptions& options) {
  require_optimizer("step");
  if (const auto samples = step_driver().step(options)) end_step(*samples);
  if (driver().timers() != nullptr) log::info(driver().timers()->micro_step_line());
}

NoSync Engine::no_sync() {
  require_optimizer("no_sync");
  step_driver().begin_no_sync();
  return NoSync([this] { step_driver().end_no_sync(); });
}

CoalescedReduction Engine::coalesce_grad_reduction() {
  require_optimizer("coalesce_grad_reduction");
  step_driver().begin_coalescing();
  return CoalescedReduction([this](bool reduces) { step_driver().end_coalescing(reduces); });
}

bool Engine::is_gradient_accumulation_boundary() const { return driver().is_boundary(); }

void Engine::set_gradient_accumulation_boundary(std::optional<bool> is_boundary) {
  step_driver().set_boundary(is_boundary);
}

}  // namespace deepspeed
