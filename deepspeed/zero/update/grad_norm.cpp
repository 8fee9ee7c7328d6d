#include "deepspeed/zero/update/grad_norm.h"

#include <cmath>

#include "deepspeed/device/accelerator/host_memory.h"

namespace deepspeed::zero {

void add_squares_of(const at::Tensor& gradient, const at::Tensor& sum) {
  const at::Tensor squares = kernels::sum_of_squares(gradient);
  // A number on the host travels with the launch. Copying it as a tensor would wait for the device.
  squares.is_cpu() ? sum.add_(squares.item()) : sum.add_(squares);
}

void GradNorm::start_reading() {
  on_host_ = device::empty_host_from_pool(1, at::kDouble, /*pin=*/true);
  on_host_.copy_(sum_of_squares_, /*non_blocking=*/true);
  copied_ = device::StreamEvent(sum_of_squares_.device());
}

double GradNorm::of_scaled() const {
  if (norm_) return *norm_;
  if (on_host_.defined()) copied_.wait();
  norm_ = std::sqrt(on_host_.defined() ? *on_host_.const_data_ptr<double>() : sum_of_squares_.item<double>());
  return *norm_;
}

at::Tensor GradNorm::scale_on_device(double clip, kernels::NonFinite non_finite) const {
  return kernels::gradient_scale(sum_of_squares_, loss_scale_, clip, non_finite);
}

}  // namespace deepspeed::zero
