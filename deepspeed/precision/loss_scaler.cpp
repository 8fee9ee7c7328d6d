#include "deepspeed/precision/loss_scaler.h"

#include <algorithm>

#include "deepspeed/base/error.h"

namespace deepspeed::precision {
namespace {

constexpr double kScaleFactor = 2.0;

}  // namespace

DynamicLossScaler::DynamicLossScaler(const DynamicLossScalerOptions& options) : options_(options) {
  if (!(options.initial_scale > 0) || !(options.min_scale > 0)) {
    raise<UsageError>("initial_scale ", options.initial_scale, " and min_scale ", options.min_scale,
                      ", expected positive numbers");
  }
  if (options.scale_window < 1 || options.hysteresis < 1) {
    raise<UsageError>("scale_window ", options.scale_window, " and hysteresis ", options.hysteresis,
                      ", expected at least 1");
  }
  state_.cur_scale = options.initial_scale;
  state_.cur_hysteresis = options.hysteresis;
}

bool DynamicLossScaler::is_exhausted() const {
  return options_.raise_error_at_min_scale && state_.cur_scale == options_.min_scale &&
         (options_.hysteresis == 1 || state_.cur_hysteresis == 1);
}

void DynamicLossScaler::update(bool overflow) {
  if (overflow) {
    // The first hysteresis - 1 overflows are tolerated: they skip their step and keep the scale.
    if (options_.hysteresis == 1 || state_.cur_hysteresis == 1) {
      if (is_exhausted()) {
        raise<UsageError>(
            "the loss scale is at its minimum, ", options_.min_scale,
            ", and the gradients still overflow; look for non-finite losses, or train with bf16");
      }
      state_.cur_scale = std::max(state_.cur_scale / kScaleFactor, options_.min_scale);
    } else {
      --state_.cur_hysteresis;
    }
    state_.last_overflow_iter = state_.cur_iter;
  } else {
    // The scale grows after each scale_window steps without an overflow, counted from the last one.
    const int64_t stable = state_.cur_iter - state_.last_overflow_iter - 1;
    const bool grow = stable > 0 && stable % options_.scale_window == 0;
    if (grow) {
      state_.cur_scale *= kScaleFactor;
    }
    if (grow || options_.consecutive_hysteresis) {
      state_.cur_hysteresis = options_.hysteresis;
    }
  }
  ++state_.cur_iter;
}

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
