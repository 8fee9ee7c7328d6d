// The slow and obvious update rules that the optimizers are held against: one parameter at a time, in double,
// by the formulas of their papers.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <ATen/ATen.h>

#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::optim::reference {

/// A parameter with its state, in double.
struct Parameter {
  at::Tensor p;
  std::map<std::string, at::Tensor> state;
  int step = 0;

  at::Tensor& of(const std::string& name) {
    at::Tensor& tensor = state[name];
    if (!tensor.defined()) tensor = at::zeros_like(p);
    return tensor;
  }
};

inline void sgd(Parameter& x, const at::Tensor& gradient, const Hyperparameters& h) {
  at::Tensor d = gradient + h.number("weight_decay") * x.p;
  const double momentum = h.number("momentum");
  ++x.step;
  if (momentum != 0) {
    at::Tensor& buffer = x.of("momentum_buffer");
    buffer = x.step == 1 ? d.clone() : momentum * buffer + (1 - h.number("dampening")) * d;
    d = h.flag("nesterov") ? d + momentum * buffer : buffer;
  }
  x.p = x.p - h.number("lr") * d;
}

/// `decoupled`: AdamW.
inline void adam(Parameter& x, const at::Tensor& gradient, const Hyperparameters& h, bool decoupled,
                 bool amsgrad) {
  const auto [b1, b2] = h.pair("betas");
  const double lr = h.number("lr"), decay = h.number("weight_decay");
  ++x.step;
  const bool corrects = !h.contains("bias_correction") || h.flag("bias_correction");
  const double bias1 = corrects ? 1 - std::pow(b1, x.step) : 1,
               bias2 = corrects ? 1 - std::pow(b2, x.step) : 1;
  const at::Tensor g = decoupled ? gradient : gradient + decay * x.p;
  at::Tensor &m = x.of("exp_avg"), &v = x.of("exp_avg_sq");
  m = b1 * m + (1 - b1) * g;
  v = b2 * v + (1 - b2) * g * g;
  at::Tensor root = v;
  if (amsgrad) root = x.of("max_exp_avg_sq") = at::maximum(x.of("max_exp_avg_sq"), v);
  if (decoupled) x.p = x.p * (1 - lr * decay);
  x.p = x.p - lr * (m / bias1) / ((root / bias2).sqrt() + h.number("eps"));
}

inline void lion(Parameter& x, const at::Tensor& g, const Hyperparameters& h) {
  const auto [b1, b2] = h.pair("betas");
  const double lr = h.number("lr");
  ++x.step;
  at::Tensor& m = x.of("exp_avg");
  x.p = x.p * (1 - lr * h.number("weight_decay")) - lr * (b1 * m + (1 - b1) * g).sign();
  m = b2 * m + (1 - b2) * g;
}

/// `raw`: DeepSpeed's CPU Adagrad, whose numerator has no decay.
inline void adagrad(Parameter& x, const at::Tensor& g, const Hyperparameters& h, bool raw) {
  const at::Tensor d = g + h.number("weight_decay") * x.p;
  ++x.step;
  at::Tensor& v = x.of(raw ? "exp_avg_sq" : "sum");
  if (x.step == 1) v = v + h.number("initial_accumulator_value");
  v = v + d * d;
  const double lr = h.number("lr") / (1 + (x.step - 1) * h.number("lr_decay"));
  x.p = x.p - lr * (raw ? g : d) / (v.sqrt() + h.number("eps"));
}

inline void lamb(Parameter& x, const at::Tensor& g, const Hyperparameters& h) {
  const auto [b1, b2] = h.pair("betas");
  ++x.step;
  at::Tensor &m = x.of("exp_avg"), &v = x.of("exp_avg_sq");
  m = b1 * m + (1 - b1) * g;
  v = b2 * v + (1 - b2) * g * g;
  const double eps = h.number("eps");
  const at::Tensor root = h.flag("eps_inside_sqrt") ? (v + eps).sqrt() : v.sqrt() + eps;
  const at::Tensor u = m / root + h.number("weight_decay") * x.p;
  const double p_norm = x.p.norm().item<double>(), u_norm = u.norm().item<double>();
  const double coeff = p_norm == 0 || u_norm == 0
                           ? 1
                           : std::clamp(p_norm / u_norm, h.number("min_coeff"), h.number("max_coeff"));
  const double correction =
      h.flag("bias_correction") ? std::sqrt(1 - std::pow(b2, x.step)) / (1 - std::pow(b1, x.step)) : 1;
  x.p = x.p - h.number("lr") * correction * coeff * u;
}

/// Five steps of the iteration as it is written down, on X itself.
inline at::Tensor orthogonalized(const at::Tensor& matrix) {
  at::Tensor x = matrix / (matrix.norm() + 1e-7);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor a = x.matmul(x.t());
    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a.matmul(a)).matmul(x);
  }
  return x;
}

inline void muon(Parameter& x, const at::Tensor& g, const Hyperparameters& h) {
  const double mu = h.number("momentum"), lr = h.number("lr");
  ++x.step;
  at::Tensor& m = x.of("momentum_buffer");
  m = mu * m + (1 - mu) * g;
  const at::Tensor u = (1 - mu) * g + mu * m;
  const at::Tensor matrix = u.dim() == 4 ? u.reshape({u.size(0), -1}) : u;
  const double rows = static_cast<double>(u.size(-2)), cols = static_cast<double>(u.size(-1));
  const at::Tensor o = orthogonalized(matrix).reshape(u.sizes()) * std::sqrt(std::max(1.0, rows / cols));
  x.p = x.p * (1 - lr * h.number("weight_decay")) - lr * o;
}

}  // namespace deepspeed::optim::reference
