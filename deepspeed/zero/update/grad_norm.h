// The norm of a step's gradients, which stays on the device until somebody asks for it.
#pragma once

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// sum += the squares of the gradient's elements. sum: one double on the model's device; the gradient lies
/// there or in host memory.
void add_squares_of(const at::Tensor& gradient, const at::Tensor& sum);

class GradNorm {
 public:
  /// `sum_of_squares`: one double on any device, of gradients that are multiplied by `loss_scale`.
  GradNorm(at::Tensor sum_of_squares, double loss_scale)
      : sum_of_squares_(std::move(sum_of_squares)), loss_scale_(loss_scale) {}

  /// L2 norm of the gradients with the loss scale in them. The first call waits for the device.
  double of_scaled() const {
    if (!norm_) norm_ = std::sqrt(sum_of_squares_.item<double>());
    return *norm_;
  }
  /// L2 norm without it.
  double value() const { return of_scaled() / loss_scale_; }
  /// False where an element is inf or nan.
  bool is_finite() const { return std::isfinite(of_scaled()); }
  /// Whether the device was waited for.
  bool was_read() const { return norm_.has_value(); }

 private:
  at::Tensor sum_of_squares_;
  double loss_scale_;
  mutable std::optional<double> norm_;
};

}  // namespace deepspeed::zero
