#include "deepspeed/zero/update/grad_norm.h"

#include "deepspeed/kernels/grad_stats.h"

namespace deepspeed::zero {

void add_squares_of(const at::Tensor& gradient, const at::Tensor& sum) {
  const at::Tensor squares = kernels::sum_of_squares(gradient);
  // A number that the host has goes with the launch; a copy of it would wait for the device.
  squares.is_cpu() ? sum.add_(squares.item()) : sum.add_(squares);
}

}  // namespace deepspeed::zero
