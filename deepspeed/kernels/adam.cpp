// Leads from a call of adam() to its kernel, and reverts steps.
//
// adam() checks every tensor (dtype, size, device), derives the step's constants in double and rounds each to
// float once, so that CPU and CUDA use equal ones. Then it calls the device's kernel. fp64 masters use the
// kernel of general update rules. adam_rollback() works backwards in double, on one piece of the arrays at a
// time. It subtracts the update from the master, using the moments after the step, and then solves the
// moments' recurrences for their old values.
#include "deepspeed/kernels/adam.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/adam_arguments.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/cpu_kernels.h"
#include "deepspeed/kernels/cuda/cuda_kernels.h"
#include "deepspeed/kernels/split_master.h"
#include "deepspeed/kernels/update.h"

namespace deepspeed::kernels {
namespace {

MasterForm form_of(const at::Tensor& master) {
  switch (master.scalar_type()) {
    case at::kShort:
      return MasterForm::kLowerHalf;
    case at::kHalf:
      return MasterForm::kFloat16;
    case at::kBFloat16:
      return MasterForm::kBFloat16;
    default:
      return MasterForm::kFloat32;
  }
}

bool is_split(const AdamTensors& tensors) { return form_of(tensors.master) == MasterForm::kLowerHalf; }

bool is_narrow(const AdamTensors& tensors) {
  return tensors.master.scalar_type() == at::kHalf || tensors.master.scalar_type() == at::kBFloat16;
}

void check_tensors(const AdamTensors& tensors) {
  check_array("master", tensors.master, {at::kFloat, at::kShort, at::kHalf, at::kBFloat16});
  const int64_t numel = tensors.master.numel();
  const at::Device device = tensors.master.device();
  check_array("gradient", tensors.gradient, {at::kFloat, at::kHalf, at::kBFloat16});
  check_fits("gradient", tensors.gradient, numel, device);
  check_array("exp_avg", tensors.exp_avg, {at::kFloat, at::kBFloat16});
  check_fits("exp_avg", tensors.exp_avg, numel, device);
  check_array("exp_avg_sq", tensors.exp_avg_sq, {tensors.exp_avg.scalar_type()});
  check_fits("exp_avg_sq", tensors.exp_avg_sq, numel, device);
  if (is_split(tensors)) {
    check_array("low_precision, the upper half of split masters,", tensors.low_precision, {at::kBFloat16});
  }
  if (tensors.low_precision.defined()) {
    if (is_narrow(tensors)) {
      raise<UsageError>("low_precision with a master of dtype ", tensors.master.scalar_type(),
                        ", which is no copy's source, expected none");
    }
    check_array("low_precision", tensors.low_precision, {at::kHalf, at::kBFloat16});
    check_fits("low_precision", tensors.low_precision, numel, device);
  }
  check_gradient_scale(tensors.gradient_scale, device);
}

void check_step(const AdamStep& step) {
  if (step.step < 1) {
    raise<UsageError>("step is ", step.step, ", it counts from 1");
  }
  if (step.first_index < 0) {
    raise<UsageError>("first_index is ", step.first_index, ", expected 0 or more");
  }
  // A constant second moment has no correction: 1 - beta2^t would be 0.
  const double checked_beta2 = step.beta2 == 1 && !step.bias_correction ? 0 : step.beta2;
  for (const auto& [name, beta] : {std::pair{"beta1", step.beta1}, std::pair{"beta2", checked_beta2}}) {
    if (!(beta >= 0 && beta < 1)) {
      raise<UsageError>(name, " is ", beta, ", expected a number in [0, 1)");
    }
  }
}

AdamArrays arrays_of(const AdamTensors& tensors) {
  AdamArrays arrays;
  arrays.numel = tensors.master.numel();
  arrays.master = tensors.master.data_ptr();
  arrays.master_form = form_of(tensors.master);
  arrays.gradient = tensors.gradient.const_data_ptr();
  arrays.exp_avg = tensors.exp_avg.data_ptr();
  arrays.exp_avg_sq = tensors.exp_avg_sq.data_ptr();
  arrays.gradient_type = element_type(tensors.gradient.scalar_type());
  arrays.moment_type = element_type(tensors.exp_avg.scalar_type());
  if (tensors.low_precision.defined()) {
    arrays.low_precision = tensors.low_precision.data_ptr();
    arrays.low_precision_type = element_type(tensors.low_precision.scalar_type());
  }
  if (tensors.gradient_scale.defined()) arrays.gradient_scale = tensors.gradient_scale.data_ptr<double>();
  return arrays;
}

// Returns whether a scale that the host can read skips the step.
bool is_skipped(const at::Tensor& scale) { return scale.defined() && std::isnan(scale.item<double>()); }

// Returns the step, with its gradient scale read from the tensor if one is given.
AdamStep with_scale_of(const AdamTensors& tensors, AdamStep step) {
  if (tensors.gradient_scale.defined()) step.gradient_scale = tensors.gradient_scale.item<double>();
  return step;
}

void set_constants_of_bf16(const AdamStep& step, AdamConstants& constants) {
  constants.unscaled_to_exp_avg = 1 - step.beta1;
  constants.unscaled_to_root_of_square = std::sqrt(1 - step.beta2);
  constexpr float kNoStep = 1e-30F;  // a smaller step changes no fp32 weight that matters
  const bool moves = std::abs(constants.step_size) > kNoStep;
  constants.inverse_step_size = moves ? 1 / constants.step_size : 1.0F;
  constants.eps_over_step_size =
      moves ? constants.eps / constants.step_size : std::numeric_limits<float>::infinity();
}

struct BiasCorrections {
  double first = 1.0, second = 1.0;
};

BiasCorrections corrections_of(const AdamStep& step) {
  if (!step.bias_correction) return {};
  const double t = static_cast<double>(step.step);
  return {1 - std::pow(step.beta1, t), 1 - std::pow(step.beta2, t)};
}

template <class Rule>
Rule rule_of(const AdamStep& step, double eps, double step_size) {
  Rule rule;
  rule.gradient_scale = step.gradient_scale;
  rule.l2_decay = step.adamw_mode ? 0.0 : step.weight_decay;
  rule.decoupled_decay = step.adamw_mode ? step.lr * step.weight_decay : 0.0;
  rule.beta1 = step.beta1;
  rule.one_minus_beta1 = 1 - step.beta1;
  rule.beta2 = step.beta2;
  rule.one_minus_beta2 = 1 - step.beta2;
  rule.eps = eps;
  rule.step_size = step_size;
  return rule;
}

AdamRule adam_rule(const AdamStep& step) {
  const auto [bias1, bias2] = corrections_of(step);
  return rule_of<AdamRule>(step, step.eps * std::sqrt(bias2), step.lr * std::sqrt(bias2) / bias1);
}

AdamConstants constants_of(const AdamStep& step) {
  const AdamRule rule = adam_rule(step);
  AdamConstants constants;
  constants.beta1 = static_cast<float>(rule.beta1);
  constants.one_minus_beta1 = static_cast<float>(rule.one_minus_beta1);
  constants.beta2 = static_cast<float>(rule.beta2);
  constants.one_minus_beta2 = static_cast<float>(rule.one_minus_beta2);
  constants.eps = static_cast<float>(rule.eps);
  constants.l2_decay = static_cast<float>(rule.l2_decay);
  constants.decoupled_decay = static_cast<float>(rule.decoupled_decay);
  constants.step_size = static_cast<float>(rule.step_size);
  constants.rounding_seed = step.rounding_seed;
  constants.first_index = step.first_index;
  set_constants_of_bf16(step, constants);
  set_gradient_scale(constants, rule.gradient_scale);
  return constants;
}

void adam_double(const AdamTensors& tensors, const AdamStep& step) {
  check_step(step);
  update({tensors.master,
          tensors.gradient,
          tensors.low_precision,
          {{"exp_avg", tensors.exp_avg}, {"exp_avg_sq", tensors.exp_avg_sq}},
          tensors.gradient_scale},
         adam_rule(step));
}

void check_can_be_undone(const AdamTensors& tensors, const AdamStep& step) {
  if (tensors.exp_avg.scalar_type() != at::kFloat) {
    raise<UsageError>("exp_avg has dtype ", tensors.exp_avg.scalar_type(),
                      ", expected Float: 16 bits do not hold what the old values could be computed from");
  }
  if (is_narrow(tensors)) {
    raise<UsageError>("master has dtype ", tensors.master.scalar_type(),
                      ", expected Float: 16 bits do not hold what the old values could be computed from");
  }
  if (step.beta1 == 0 || step.beta2 == 0) {
    raise<UsageError>("betas are ", step.beta1, " and ", step.beta2,
                      ", expected numbers above 0: a beta of 0 keeps nothing of the old moment");
  }
  if (step.adamw_mode && !(step.lr * step.weight_decay < 1)) {
    raise<UsageError>("lr * weight_decay is ", step.lr * step.weight_decay,
                      ", expected less than 1: such a step keeps nothing of the old weights");
  }
}

// Reverts one piece of a step. All tensors are 1-D and of equal size.
void roll_back_fp32(const AdamTensors& piece, const AdamStep& step, const AdamConstants& c) {
  const at::Tensor m = piece.exp_avg.to(at::kDouble), v = piece.exp_avg_sq.to(at::kDouble);
  at::Tensor p = piece.master.to(at::kDouble);
  // p' = (1 - decay) p - step_size m' / (sqrt(v') + eps), solved for p; eps is scaled as in the kernel.
  p.addcdiv_(m, v.sqrt().add_(double{c.eps}), double{c.step_size}).div_(1 - double{c.decoupled_decay});
  const at::Tensor g =
      piece.gradient.to(at::kDouble).mul(double{c.gradient_scale}).add_(p, double{c.l2_decay});
  piece.master.copy_(p);
  if (piece.low_precision.defined()) piece.low_precision.copy_(piece.master);
  // Before the first step the moments are 0; the equations would give this only up to rounding.
  if (step.step == 1) {
    piece.exp_avg.zero_();
    piece.exp_avg_sq.zero_();
    return;
  }
  // m' = b1 m + (1 - b1) g and v' = b2 v + (1 - b2) g^2, solved for m and v. Rounding must not make v
  // negative.
  piece.exp_avg.copy_(m.sub(g, double{c.one_minus_beta1}).div_(double{c.beta1}));
  piece.exp_avg_sq.copy_(v.sub(g.square(), double{c.one_minus_beta2}).div_(double{c.beta2}).clamp_min_(0));
}

void roll_back(const AdamTensors& piece, const AdamStep& step, const AdamConstants& c) {
  if (!is_split(piece)) return roll_back_fp32(piece, step, c);
  const at::Tensor master = join_master(piece.low_precision, piece.master);
  roll_back_fp32({master, piece.gradient, piece.exp_avg, piece.exp_avg_sq, {}}, step, c);
  split_master(master, piece.low_precision, piece.master);
}

}  // namespace

AmsgradRule amsgrad_rule(const AdamStep& step) {
  const auto [bias1, bias2] = corrections_of(step);
  auto rule = rule_of<AmsgradRule>(step, step.eps, step.lr / bias1);
  rule.inverse_sqrt_bias2 = 1 / std::sqrt(bias2);
  return rule;
}

void adam_rollback(const AdamTensors& tensors, const AdamStep& step) {
  check_tensors(tensors);
  check_step(step);
  check_can_be_undone(tensors, step);
  if (is_skipped(tensors.gradient_scale)) return;
  const AdamConstants constants = constants_of(with_scale_of(tensors, step));
  constexpr int64_t kPieceNumel = int64_t{1} << 18;
  const int64_t numel = tensors.master.numel();
  for (int64_t begin = 0; begin < numel; begin += kPieceNumel) {
    const auto piece_of = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.detach().narrow(0, begin, std::min(kPieceNumel, numel - begin))
                              : tensor;
    };
    roll_back({piece_of(tensors.master), piece_of(tensors.gradient), piece_of(tensors.exp_avg),
               piece_of(tensors.exp_avg_sq), piece_of(tensors.low_precision)},
              step, constants);
  }
}

void adam(const AdamTensors& tensors, const AdamStep& step) {
  if (tensors.master.defined() && tensors.master.scalar_type() == at::kDouble)
    return adam_double(tensors, step);
  check_tensors(tensors);
  check_step(step);
  if (tensors.master.numel() == 0) {
    return;
  }
  const at::Device device = tensors.master.device();
  if (device.is_cpu()) {
    if (is_skipped(tensors.gradient_scale)) return;
    adam_cpu(arrays_of(tensors), constants_of(with_scale_of(tensors, step)));
  } else if (device.is_cuda()) {
    launch_on(device, &CudaKernels::adam, arrays_of(tensors), constants_of(step));
  } else {
    raise<UsageError>("the tensors lie on ", device, ", expected CPU or CUDA");
  }
}

}  // namespace deepspeed::kernels
