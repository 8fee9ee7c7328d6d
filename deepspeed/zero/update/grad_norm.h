// The norm of a step's gradients. It stays on the device until it is read.
#pragma once

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/stream_event.h"
#include "deepspeed/kernels/grad_stats.h"

namespace deepspeed::zero {

/// Adds the squares of the gradient's elements to `sum`. sum: one double on the model's device. The gradient
/// is there or in host memory.
void add_squares_of(const at::Tensor& gradient, const at::Tensor& sum);

class GradNorm {
 public:
  /// `sum_of_squares`: one double on any device, of gradients multiplied by `loss_scale`.
  GradNorm(at::Tensor sum_of_squares, double loss_scale)
      : sum_of_squares_(std::move(sum_of_squares)), loss_scale_(loss_scale) {}

  /// Starts copying the norm to the host. Reading it then does not wait for later work of the device.
  void start_reading();
  /// Returns the L2 norm of the gradients, loss scale included. The first call waits for the device.
  double of_scaled() const;
  /// Returns the L2 norm without the loss scale.
  double value() const { return of_scaled() / loss_scale_; }
  /// Returns false if an element is inf or nan.
  bool is_finite() const { return std::isfinite(of_scaled()); }
  /// Returns the factor that removes the gradients' loss scale and clips their norm to `clip`. With `clip` 0
  /// the norm is not clipped. The factor is one fp64 on the sum's device, which must be CUDA; the host waits
  /// for nothing. non_finite: chooses the factor for a norm that is not finite.
  at::Tensor scale_on_device(double clip, kernels::NonFinite non_finite) const;
  /// Returns whether the host has the norm already.
  bool was_read() const { return norm_.has_value(); }

 private:
  at::Tensor sum_of_squares_;
  double loss_scale_;
  at::Tensor on_host_;  // the sum, once copied_ has passed; undefined before start_reading()
  device::StreamEvent copied_;
  mutable std::optional<double> norm_;
};

}  // namespace deepspeed::zero
