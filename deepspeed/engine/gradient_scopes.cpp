#include "deepspeed/engine/gradient_scopes.h"

#include <exception>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/engine.h"

namespace deepspeed {
namespace {
constexpr const char* kGradientScopesWhere = "engine";
}

NoSync Engine::no_sync() {
  require_optimizer("no_sync");
  if (zero_optimization_stage() >= 2) {
    raise<UsageError>(
        kGradientScopesWhere, "no_sync() does not fit ZeRO stage ", zero_optimization_stage(),
        ", which partitions gradients in every backward; use stage 0 or 1, or coalesce_grad_reduction()");
  }
  if (in_no_sync_) raise<UsageError>(kGradientScopesWhere, "no_sync() inside of no_sync()");
  in_no_sync_ = true;
  refresh_boundary();
  return NoSync(*this);
}

void Engine::leave_no_sync() {
  if (optimizer_) finish_backward();  // of a direct loss.backward()
  in_no_sync_ = false;
  refresh_boundary();
}

CoalescedReduction Engine::coalesce_grad_reduction() {
  zero::ZeroOptimizer& optimizer = require_optimizer("coalesce_grad_reduction");
  if (!config_.managed_gradient_accumulation) {
    raise<UsageError>(kGradientScopesWhere, "coalesce_grad_reduction() needs managed_gradient_accumulation");
  }
  if (in_no_sync_) raise<UsageError>(kGradientScopesWhere, "coalesce_grad_reduction() inside of no_sync()");
  if (optimizer.is_paused()) {
    raise<UsageError>(kGradientScopesWhere, "coalesce_grad_reduction() inside of coalesce_grad_reduction()");
  }
  finish_backward();
  optimizer.pause();
  return CoalescedReduction(*this);
}

void Engine::end_coalescing(bool reduce) {
  if (reduce) {
    refresh_boundary();
    optimizer_->resume();
    note_backward();
  } else {
    optimizer_->resume_without_gradients();
  }
  refresh_boundary();
}

NoSync::~NoSync() { engine_.leave_no_sync(); }

CoalescedReduction::CoalescedReduction(Engine& engine)
    : engine_(engine), exceptions_(std::uncaught_exceptions()) {}

CoalescedReduction::~CoalescedReduction() noexcept(false) {
  engine_.end_coalescing(std::uncaught_exceptions() == exceptions_);
}

}  // namespace deepspeed
