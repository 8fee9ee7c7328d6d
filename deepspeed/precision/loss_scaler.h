// Loss scalers of fp16 training.
#pragma once

#include <cstdint>

namespace deepspeed::precision {

/// Holds the options of DeepSpeed's DynamicLossScaler. The scale is halved at overflows, and doubled after
/// every `scale_window` steps without one. The first `hysteresis` - 1 overflows keep the scale. Their count
/// restarts when the scale doubles or, with consecutive_hysteresis, at any step without an overflow.
struct DynamicLossScalerOptions {
  double initial_scale = 65536.0;
  int64_t scale_window = 1000;
  double min_scale = 1.0;
  int64_t hysteresis = 2;  // overflows until the scale halves
  bool consecutive_hysteresis = false;
  bool raise_error_at_min_scale = true;  // false: overflows at the minimum are ordinary skipped steps
};

class LossScaler {
 public:
  virtual ~LossScaler() = default;
  virtual double scale() const = 0;
  virtual bool is_dynamic() const = 0;
  /// Records whether a step overflowed, and changes the scale. Throws UsageError for an overflow if
  /// is_exhausted().
  virtual void update(bool overflow) = 0;
  /// Returns whether another overflow is an error because the scale cannot fall further.
  virtual bool is_exhausted() const = 0;
};

/// Keeps the scale constant: a given `loss_scale` in fp16, and 1 in bf16 and fp32.
class StaticLossScaler : public LossScaler {
 public:
  explicit StaticLossScaler(double scale) : scale_(scale) {}
  double scale() const override { return scale_; }
  bool is_dynamic() const override { return false; }
  void update(bool) override {}
  bool is_exhausted() const override { return false; }

 private:
  double scale_;
};

class DynamicLossScaler : public LossScaler {
 public:
  /// Holds the scaler's state. Members are named as in DeepSpeed's checkpoint files.
  struct State {
    double cur_scale = 0;
    int64_t cur_iter = 0;
    int64_t last_overflow_iter = -1;
    int64_t cur_hysteresis = 0;
  };

  explicit DynamicLossScaler(const DynamicLossScalerOptions& options);
  double scale() const override { return state_.cur_scale; }
  bool is_dynamic() const override { return true; }
  void update(bool overflow) override;
  bool is_exhausted() const override;

  const DynamicLossScalerOptions& options() const { return options_; }
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }
  /// Changes DynamicLossScalerOptions::raise_error_at_min_scale.
  void set_raise_error_at_min_scale(bool raise) { options_.raise_error_at_min_scale = raise; }

 private:
  DynamicLossScalerOptions options_;
  State state_;
};

/// Returns the factor that unscales and clips gradients: 1 / (loss_scale * max(1, (norm / loss_scale + 1e-6)
/// / clip)). Here norm is `total_norm_of_scaled_grads`, the norm of gradients with loss_scale still in them.
/// A `clip` of 0 means no clipping. Throws UsageError for a loss scale that is not positive, a negative clip,
/// and a norm that is negative or not a number.
double combined_gradient_scale(double total_norm_of_scaled_grads, double loss_scale, double clip);

}  // namespace deepspeed::precision
