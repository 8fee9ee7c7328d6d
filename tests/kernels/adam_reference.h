// The slow and obvious Adam that the kernel is held against: one element at a time, in double, no rounding in
// between.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "deepspeed/kernels/adam.h"

namespace deepspeed::kernels {

struct ReferenceAdam {
  std::vector<double> p;
  std::vector<double> m;
  std::vector<double> v;

  void step(const std::vector<double>& gradient, const AdamStep& s) {
    const double t = static_cast<double>(s.step);
    const double bias1 = s.bias_correction ? 1 - std::pow(s.beta1, t) : 1;
    const double bias2 = s.bias_correction ? 1 - std::pow(s.beta2, t) : 1;
    for (size_t i = 0; i < p.size(); ++i) {
      double g = gradient[i] * s.gradient_scale;
      if (!s.adamw_mode) g += s.weight_decay * p[i];
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
      const double decay = s.adamw_mode ? s.lr * s.weight_decay * p[i] : 0;
      p[i] -= decay + s.lr / bias1 * m[i] / (std::sqrt(v[i]) / std::sqrt(bias2) + s.eps);
    }
  }
};

}  // namespace deepspeed::kernels
