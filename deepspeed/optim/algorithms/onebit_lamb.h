// 1-bit Lamb: Lamb that freezes its second moments and coefficients, after which ranks exchange compressed
// momenta instead of gradients (Li et al., "1-bit LAMB: Communication Efficient Large-Scale Large-Batch
// Training with LAMB's Convergence Speed", arXiv 2104.06069).
//
// Up to freeze_step a step is Lamb's without bias correction (lamb.h), and for each parameter
//   average = coeff_beta average + (1 - coeff_beta) coeff      unless coeff is 1
// After it, let m' be the ranks' mean of the momentum b1 m + (1 - b1) g, v the frozen second moment, and f a
// second moment that starts at v and is updated further:
//   g' = (m' - b1 m) / (1 - b1);   f = b2 f + (1 - b2) g'^2;   m = m'
//   d = sqrt(v) + eps;   u = m / d;   w = u + weight_decay * p
//   factor = max(d / (sqrt(f) + eps))
//   with weight decay: r = min(1, |u| / |w|);   factor = factor * r + 1 - r
//   factor is clamped to [factor_min, factor_max], then to within a relative factor_threshold of the last one
//   p -= lr * average * factor * w
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/optim/algorithms/lamb.h"

namespace deepspeed::optim {

/// Holds the options that apply to all groups, under DeepSpeed's names.
struct OneBitLambOptions {
  int64_t freeze_step = 100000;  // number of steps that update the second moments
  double coeff_beta = 0.9;
  double factor_max = 4.0;
  double factor_min = 0.5;
  double factor_threshold = 0.1;
};

/// Steps slices by 1-bit Lamb as in DeepSpeed, with one slice per group. The state is Lamb's plus
/// exp_avg_sq_fresh (f). For each parameter it also has lamb_coeff_freeze (average), last_factor, and
/// scaling_coeff, the factor of its momentum during exchange.
class OneBitLamb final : public Lamb {
 public:
  OneBitLamb(std::vector<ParamGroup> groups, const OneBitLambOptions& options);

  std::string name() const override { return "OnebitLamb"; }
  bool compresses_exchange() const override { return true; }
  GradientUse next_gradient() const override;
  std::vector<double> momentum_scaling(size_t group) const override;
  bool takes_scale_on_device() const override { return false; }
  void step(const FlatSlice& slice, double gradient_scale) override;
  SliceState state(size_t slice_id) const override;
  void load_state(size_t slice_id, const SliceState& state) override;
  void check_state(const SliceState& state) const override;

 private:
  /// Holds numbers for each parameter of a slice's group, equal on all ranks.
  struct OfParameters {
    at::Tensor average;                  // (parameters) fp64
    at::Tensor last_factor;              // (parameters) fp64
    std::vector<double> momentum_scale;  // root mean squares of the momenta at the freeze
    std::vector<double> scaling;         // factors of the momenta during exchange; empty: not frozen yet
  };

  OfParameters& numbers_of(const FlatSlice& slice);
  bool all_frozen() const;
  void warm_up(const FlatSlice& slice, double gradient_scale);
  void freeze(const FlatSlice& slice);
  /// Computes `scaling` of all groups; does nothing until each group has its momentum_scale.
  void make_scalings();
  void step_frozen(const FlatSlice& slice);

  const OneBitLambOptions options_;
  std::unordered_map<size_t, OfParameters> numbers_;  // by slice id
};

}  // namespace deepspeed::optim
