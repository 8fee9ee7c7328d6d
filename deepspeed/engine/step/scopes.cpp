#include "deepspeed/engine/step/scopes.h"

#include <optional>
#include <utility>

#include <c10/core/GradMode.h>

#include "deepspeed/engine/autograd/backward_access.h"
#include "deepspeed/engine/step/graphed_forward.h"
#include "deepspeed/engine/step/step_driver.h"
#include "deepspeed/precision/autocast.h"
#include "deepspeed/zero/param_access.h"

namespace deepspeed {

struct ForwardScope::Scopes {
  explicit Scopes(const StepDriver& driver) : timing(driver.time_part(profile::StepPart::kForward)) {}

  profile::StepTimers::Scope timing;
  std::optional<zero::ParameterAccess> access;
  std::optional<precision::AutocastScope> autocast;
  std::unique_ptr<activation::CountActivations> count;
  Unwinding unwinding;
};

ForwardScope::ForwardScope(const StepDriver& driver) : driver_(driver) {
  const TrainingState& state = driver.state();
  require_whole(state, "forward");
  driver.log_memory("before forward");
  scopes_ = std::make_unique<Scopes>(driver);
  if (state.parts.pool) {
    scopes_->access.emplace(state.parts.pool,
                            state.is_training ? zero::AccessMode::kForward : zero::AccessMode::kEvaluation);
  }
  if (state.parts.autocast)
    scopes_->autocast.emplace(state.parts.model.device().type(), *state.parts.autocast);
  if (state.is_training) scopes_->count = driver.activations().count_forward();
}

ForwardScope::~ForwardScope() {
  const bool has_failed = scopes_->unwinding.is_under_way();
  scopes_.reset();
  if (!has_failed) driver_.log_memory("after forward");
}

at::Tensor ForwardScope::output(const at::Tensor& tensor) const {
  return scale_gradient_of(open_access_in_backward(tensor, driver_.state().parts.pool),
                           driver_.output_scale());
}

bool ForwardScope::has_graphs() const {
  return driver_.graphs() != nullptr && driver_.state().is_training && c10::GradMode::is_enabled();
}

ForwardResult ForwardScope::run_graph(const ForwardCall& call, const RunForward& forward) const {
  return driver_.graphs()->run(call, forward);
}

NoSync::NoSync(std::function<void()> end) : end_(std::move(end)) {}

NoSync::~NoSync() { end_(); }

CoalescedReduction::CoalescedReduction(std::function<void(bool)> end) : end_(std::move(end)) {}

CoalescedReduction::~CoalescedReduction() noexcept(false) {
  if (end_) end_(!unwinding_.is_under_way());
}

void CoalescedReduction::forget() {
  if (const auto end = std::exchange(end_, nullptr)) end(false);
}

}  // namespace deepspeed
