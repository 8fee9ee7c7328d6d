#include "deepspeed/optim/torch/cpu_adam_op.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/optim/slices/wide_copy.h"

namespace deepspeed {
namespace {

kernels::AdamStep adam_step(int64_t step, double lr, double beta1, double beta2, double eps,
                            double weight_decay, bool bias_correction, bool adamw_mode) {
  kernels::AdamStep result;
  result.step = step;
  result.lr = lr;
  result.beta1 = beta1;
  result.beta2 = beta2;
  result.eps = eps;
  result.weight_decay = weight_decay;
  result.bias_correction = bias_correction;
  result.adamw_mode = adamw_mode;
  return result;
}

at::Tensor flat_view(const at::Tensor& contiguous) { return contiguous.view({-1}); }

}  // namespace

bool CpuAdamOp::adamw_mode_of(const char* call, int64_t optimizer_id) const {
  const auto found = adamw_modes_.find(optimizer_id);
  if (found == adamw_modes_.end()) {
    raise<UsageError>(call, "(): no optimizer ", optimizer_id, "; make it with create_adam()");
  }
  return found->second;
}

void CpuAdamOp::create_adam(int64_t optimizer_id, double lr, double beta1, double beta2, double eps,
                            double weight_decay, bool adamw_mode, bool should_log) {
  if (!adamw_modes_.try_emplace(optimizer_id, adamw_mode).second) {
    raise<UsageError>("create_adam(): there is an optimizer ", optimizer_id,
                      " already; end it with destroy_adam(), or take another number");
  }
  if (should_log) {
    log::info("Adam optimizer ", optimizer_id, ": lr ", lr, ", betas ", beta1, " and ", beta2, ", eps ", eps,
              ", weight_decay ", weight_decay, adamw_mode ? ", decoupled" : ", added to the gradient");
  }
}

void CpuAdamOp::adam_update(int64_t optimizer_id, int64_t step, double lr, double beta1, double beta2,
                            double eps, double weight_decay, bool bias_correction, const at::Tensor& params,
                            const at::Tensor& grads, const at::Tensor& exp_avg,
                            const at::Tensor& exp_avg_sq) const {
  const bool adamw_mode = adamw_mode_of("adam_update", optimizer_id);
  const optim::WideCopy p(params.detach()), m(exp_avg.detach()), v(exp_avg_sq.detach());
  kernels::adam({flat_view(p.wide()), flat_view(grads.detach().contiguous()), flat_view(m.wide()),
                 flat_view(v.wide()), at::Tensor()},
                adam_step(step, lr, beta1, beta2, eps, weight_decay, bias_correction, adamw_mode));
  for (const optim::WideCopy* copy : {&p, &m, &v}) copy->store();
}

void CpuAdamOp::adam_rollback(int64_t optimizer_id, int64_t step, double lr, double beta1, double beta2,
                              double eps, double weight_decay, bool bias_correction, const at::Tensor& params,
                              const at::Tensor& grads, const at::Tensor& exp_avg,
                              const at::Tensor& exp_avg_sq) const {
  const bool adamw_mode = adamw_mode_of("adam_rollback", optimizer_id);
  for (const at::Tensor& tensor : {params, grads, exp_avg, exp_avg_sq}) {
    if (tensor.scalar_type() != at::kFloat) {
      raise<UsageError>("adam_rollback(): a tensor has dtype ", tensor.scalar_type(),
                        ", expected Float: 16 bits do not hold what the old values could be computed from");
    }
  }
  const optim::WideCopy p(params.detach()), m(exp_avg.detach()), v(exp_avg_sq.detach());
  kernels::adam_rollback({flat_view(p.wide()), flat_view(grads.detach().contiguous()), flat_view(m.wide()),
                          flat_view(v.wide()), at::Tensor()},
                         adam_step(step, lr, beta1, beta2, eps, weight_decay, bias_correction, adamw_mode));
  for (const optim::WideCopy* copy : {&p, &m, &v}) copy->store();
}

void CpuAdamOp::destroy_adam(int64_t optimizer_id) {
  adamw_mode_of("destroy_adam", optimizer_id);
  adamw_modes_.erase(optimizer_id);
}

}  // namespace deepspeed
