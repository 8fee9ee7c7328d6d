// The norm of a step's gradients, which stays on the device until somebody asks for it.
#pragma once

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/stream_event.h"
#include "deepspeed/kernels/grad_stats.h"

namespace deepspeed::zero {

/// sum += the squares of the gradient's elements. sum: one double on the model's device; the gradient lies
/// there or in host memory.
void add_squares_of(const at::Tensor& gradient, const at::Tensor& sum);

class GradNorm {
 public:
  /// `sum_of_squares`: one double on any device, of gradients that are multiplied by `loss_scale`.
  GradNorm(at::Tensor sum_of_squares, double loss_scale)
      : sum_of_squares_(std::move(sum_of_squares)), loss_scale_(loss_scale) {}

  /// Begins to bring the norm to the host, which then waits for nothing that a device is given from here on.
  void start_reading();
  /// L2 norm of the gradients with the loss scale in them. The first call waits for the device.
  double of_scaled() const;
  /// L2 norm without it.
  double value() const { return of_scaled() / loss_scale_; }
  /// False where an element is inf or nan.
  bool is_finite() const { return std::isfinite(of_scaled()); }
  /// Returns what the gradients are multiplied by so that the norm is `clip` at most (0: no clipping), one
  /// fp64 that stays on the device of the sum, CUDA: the host waits for nothing.
  at::Tensor scale_on_device(double clip, kernels::NonFinite non_finite) const;
  /// Whether the device was waited for.
  bool was_read() const { return norm_.has_value(); }

 private:
  at::Tensor sum_of_squares_;
  double loss_scale_;
  at::Tensor on_host_;  // the sum, once copied_ has passed; undefined: nobody has begun to read it
  device::StreamEvent copied_;
  mutable std::optional<double> norm_;
};

}  // namespace deepspeed::zero
