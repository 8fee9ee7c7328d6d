// 0/1 Adam: ranks exchange compressed gradients, and exact ones ever more rarely. Later they take local steps
// and only exchange the changes now and then (Lu et al., "Maximizing Communication Efficiency for Large-scale
// Training via 0/1 Adam", 2022).
//
// With g the gradient, b1, b2 the betas, wd the decay, and C a compressed mean over ranks; ZeroOneIntervals
// says which of these a step does:
//   renewal:     m = b1 m + (1 - b1) g;   v = b2 v + (1 - b2) g^2       g: the exact mean
//   between:     m = b1 m + (1 - b1) C(g)
//                p -= lr (m / (sqrt(v) + eps) + wd p)                   after both
//   local step:  m = b1 m + (1 - b1) g;   u -= lr (m / (sqrt(v) + eps) + wd p);   p = w + u
//   exchange:    c = C(u (sqrt(v) + eps));   m = -c / (sum of lr);   w += c / (sqrt(v) + eps)
//                p = w;   u = 0
// w are the weights of the last exchange, bitwise equal on all ranks. The first local step drops the
// compression errors of gradients.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "deepspeed/optim/algorithms/adam.h"

namespace deepspeed::optim {

/// Holds the options that apply to all groups, under DeepSpeed's names.
struct ZeroOneOptions {
  int64_t var_freeze_step = 100000;   // the last step that may renew the second moment
  int64_t var_update_scaler = 16;     // renewals until their interval doubles
  int64_t local_step_scaler = 32678;  // steps until the interval of exchanges doubles
  int64_t local_step_clipper = 16;    // the longest interval of exchanges
};

/// Counts steps from 1 and says what the next one does. Step t renews the second moment if t is a multiple of
/// the renewal interval. Steps after var_freeze_step are local, and end with an exchange if t is a multiple
/// of the exchange interval. Both intervals start at 1.
class ZeroOneIntervals {
 public:
  explicit ZeroOneIntervals(const ZeroOneOptions& options) : options_(options) {}
  /// Starts as if `steps` steps had been made.
  ZeroOneIntervals(const ZeroOneOptions& options, int64_t steps);

  int64_t steps() const { return steps_; }
  /// Returns whether the next step uses this rank's own gradient and keeps the second moment.
  bool is_local() const { return steps_ >= options_.var_freeze_step; }
  /// Returns whether the next step is the first local one.
  bool is_first_local() const { return steps_ == options_.var_freeze_step; }
  /// Returns whether the next step renews the second moment from the exact mean gradient.
  bool renews_variance() const { return !is_local() && (steps_ + 1) % variance_interval_ == 0; }
  /// Returns whether the next step is local and ends with an exchange of changes.
  bool exchanges() const { return is_local() && (steps_ + 1) % local_interval_ == 0; }
  /// Counts the next step as made, and adapts the intervals.
  void advance();

 private:
  ZeroOneOptions options_;
  int64_t steps_ = 0;
  int64_t variance_interval_ = 1, renewals_ = 0;  // renewals since the interval last doubled
  int64_t local_interval_ = 1, local_steps_ = 0;  // steps since the interval last doubled
};

/// Steps slices by 0/1 Adam as in DeepSpeed. Weight decay is decoupled, and there is no bias correction. Each
/// slice is the whole flat space of its group.
class ZeroOneAdam final : public Adam {
 public:
  ZeroOneAdam(std::vector<ParamGroup> groups, const ZeroOneOptions& options);

  /// Returns false: between exchanges each rank steps all parameters by itself.
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
  /// Holds what a slice's local steps have added up since the last exchange.
  struct LocalSteps {
    at::Tensor weights;  // (n) w in the formulas
    at::Tensor change;   // (n) u
    double rates = 0;    // sum of lr
  };

  void step_locally(const FlatSlice& slice, double gradient_scale, bool exchanges);
  static void follow_writes(const at::Tensor& weights, LocalSteps& local);
  void exchange(const FlatSlice& slice, const Moments& moments, LocalSteps& local, double eps);

  const ZeroOneOptions options_;
  std::unordered_map<size_t, ZeroOneIntervals> intervals_;  // by slice id
  std::unordered_map<size_t, LocalSteps> local_;            // only slices between two exchanges
};

}  // namespace deepspeed::optim
