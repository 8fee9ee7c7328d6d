#include "deepspeed/precision/grad_clip.h"

#include <algorithm>

#include "deepspeed/base/error.h"

namespace deepspeed::precision {

double combined_gradient_scale(double total_norm_of_scaled_grads, double loss_scale, double clip) {
  constexpr double kEpsilon = 1e-6;
  if (!(loss_scale > 0)) {
    raise<UsageError>("loss_scale is ", loss_scale, ", expected a positive number");
  }
  if (!(clip >= 0)) {
    raise<UsageError>("clip is ", clip, ", expected a number of at least 0");
  }
  if (clip == 0) {
    return 1 / loss_scale;
  }
  if (!(total_norm_of_scaled_grads >= 0)) {
    raise<UsageError>("the norm is ", total_norm_of_scaled_grads, ", expected a number of at least 0");
  }
  const double excess = (total_norm_of_scaled_grads / loss_scale + kEpsilon) / clip;
  return 1 / (loss_scale * std::max(1.0, excess));
}

}  // namespace deepspeed::precision
