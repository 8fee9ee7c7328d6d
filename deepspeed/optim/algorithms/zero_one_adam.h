// 0/1 Adam: ranks exchange compressed gradients, exact ones ever more rarely, and later take steps of their
// own between exchanges of what these have changed (Lu et al., "Maximizing Communication Efficiency for
// Large-scale Training via 0/1 Adam", 2022).
//
// With g the gradient, b1, b2 the betas, wd the decay, C a compressed mean over ranks (ZeroOneIntervals
// says which step does what):
//   renewal:     m = b1 m + (1 - b1) g;   v = b2 v + (1 - b2) g^2       g: the exact mean
//   between:     m = b1 m + (1 - b1) C(g)
//                p -= lr (m / (sqrt(v) + eps) + wd p)                   after both
//   local step:  m = b1 m + (1 - b1) g;   u -= lr (m / (sqrt(v) + eps) + wd p);   p = w + u
//   exchange:    c = C(u (sqrt(v) + eps));   m = -c / (sum of lr);   w += c / (sqrt(v) + eps);   p = w;   u =
//   0
// w are the weights of the last exchange, the same bits on all ranks. The first local step forgets the errors
// of compressed gradients.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "deepspeed/optim/algorithms/adam.h"

namespace deepspeed::optim {

/// Holds the arguments of DeepSpeed's names.
struct ZeroOneOptions {
  int64_t var_freeze_step = 100000;   // the last step that may renew the second moment
  int64_t var_update_scaler = 16;     // renewals after which their interval doubles
  int64_t local_step_scaler = 32678;  // steps after which the interval of exchanges doubles
  int64_t local_step_clipper = 16;    // the longest interval of exchanges
};

/// Counts steps, from 1 on, and says what the next one does. Step t renews the second moment where t is a
/// multiple of the interval of renewals; steps behind var_freeze_step are local, and end with an exchange
/// where t is a multiple of the interval of exchanges. Both intervals begin at 1.
class ZeroOneIntervals {
 public:
  explicit ZeroOneIntervals(const ZeroOneOptions& options) : options_(options) {}
  /// Stands where `steps` steps have led.
  ZeroOneIntervals(const ZeroOneOptions& options, int64_t steps);

  int64_t steps() const { return steps_; }
  /// Says whether the next step works on this rank's own gradients, and leaves the second moment.
  bool is_local() const { return steps_ >= options_.var_freeze_step; }
  /// Says whether the next step is the first of these.
  bool is_first_local() const { return steps_ == options_.var_freeze_step; }
  /// Says whether the next step renews the second moment, by the exact mean of the gradients.
  bool renews_variance() const { return !is_local() && (steps_ + 1) % variance_interval_ == 0; }
  /// Says whether the next step is local, and ends with an exchange of what local steps have changed.
  bool exchanges() const { return is_local() && (steps_ + 1) % local_interval_ == 0; }
  /// Counts the step as made.
  void advance();

 private:
  ZeroOneOptions options_;
  int64_t steps_ = 0;
  int64_t variance_interval_ = 1, renewals_ = 0;  // renewals since the interval doubled
  int64_t local_interval_ = 1, local_steps_ = 0;  // steps since the interval doubled
};

/// As DeepSpeed's: weight decay is decoupled, and the moments' start at 0 is never made up for. Each slice is
/// the whole flat space of its group.
class ZeroOneAdam final : public Adam {
 public:
  ZeroOneAdam(std::vector<ParamGroup> groups, const ZeroOneOptions& options);

  /// Between two exchanges a rank steps all parameters by itself.
  bool steps_cut_parameters() const override { return false; }
  bool compresses_exchange() const override { return true; }
  GradientUse next_gradient() const override;
  bool takes_steps_back() const override { return false; }
  bool steps_split_masters() const override { return false; }
  bool steps_sixteen_bit_masters() const override { return false; }
  bool writes_over_gradients() const override { return false; }
  bool takes_scale_on_device() const override { return false; }
  bool skips_on_device() const override { return false; }
  void step(const FlatSlice& slice, double gradient_scale) override;
  void load_state(size_t slice_id, const SliceState& state) override;
  SliceState own_state(size_t slice_id) const override;
  void load_own_state(size_t slice_id, const SliceState& own, const at::Tensor& master) override;
  int64_t state_bytes() const override;

 private:
  /// What a rank has done since the last exchange.
  struct LocalSteps {
    at::Tensor weights;  // (n) w of the formulas
    at::Tensor change;   // (n) u
    double rates = 0;    // the sum of lr
  };

  void step_locally(const FlatSlice& slice, double gradient_scale, bool exchanges);
  static void follow_writes(const at::Tensor& weights, LocalSteps& local);
  void exchange(const FlatSlice& slice, const Moments& moments, LocalSteps& local, double eps);

  const ZeroOneOptions options_;
  std::unordered_map<size_t, ZeroOneIntervals> intervals_;  // by slice id
  std::unordered_map<size_t, LocalSteps> local_;            // of slices that are between two exchanges
};

}  // namespace deepspeed::optim
