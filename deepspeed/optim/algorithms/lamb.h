// Lamb for flat slices (You et al., "Large Batch Optimization for Deep Learning", arXiv 1904.00962). The
// trust ratio is bounded as in DeepSpeed's FusedLamb.
//
// With g the scaled gradient, b1, b2 the betas, t the step, for each parameter:
//   m = b1 m + (1 - b1) g;   v = b2 v + (1 - b2) g^2
//   u = m / (sqrt(v) + eps) + weight_decay * p       (or sqrt(v + eps) with eps_inside_sqrt)
//   coeff = clamp(|p| / |u|, min_coeff, max_coeff), 1 if a norm is 0
//   p -= lr * sqrt(1 - b2^t) / (1 - b1^t) * coeff * u       (only lr without bias correction)
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/optim/slices/optimizer_with_states.h"

namespace deepspeed::optim {

/// Steps slices by Lamb. A group's options are lr, bias_correction, betas, eps, eps_inside_sqrt,
/// weight_decay, max_coeff, min_coeff, with DeepSpeed's defaults (1e-3, true, (0.9, 0.999), 1e-8, false, 0,
/// 10, 0.01). The state is exp_avg and exp_avg_sq, in the dtype of the masters.
class Lamb : public OptimizerWithStates {
 public:
  explicit Lamb(std::vector<ParamGroup> groups);

  std::string name() const override { return "FusedLamb"; }
  bool is_elementwise() const override { return false; }
  bool steps_cut_parameters() const override { return true; }
  bool takes_scale_on_device() const override { return true; }
  /// Updates one slice. Throws UsageError if the slice cuts a parameter and FlatSlice::cut is null.
  void step(const FlatSlice& slice, double gradient_scale) override;

  /// Returns the trust ratios of the slice's last step, one per parameter. They are in the order of its
  /// segments, and empty before the first step.
  std::vector<double> lamb_coeffs(size_t slice_id) const;
  /// Returns the trust ratios of all slices' last steps, in the order of slice ids.
  std::vector<double> lamb_coeffs() const;

 protected:
  /// Makes a Lamb whose state tensors have these names; exp_avg and exp_avg_sq come first.
  Lamb(std::vector<ParamGroup> groups, std::vector<std::string> state_names);
  /// Returns the trust ratios of the slice's last step, one 0-d tensor per segment. Empty before the first
  /// step.
  std::vector<at::Tensor>& last_coefficients(size_t slice_id) { return coeffs_[slice_id]; }

 private:
  /// Describes the change of a parameter that several ranks share.
  struct CutChange {
    at::Tensor change;  // of this rank's part
    at::Tensor norms;   // (2) double: norms of the whole parameter's weights and change
  };

  /// Returns u (in the formulas above) for the segment's elements. Also updates m and v.
  at::Tensor change_of(const FlatSlice& slice, const Segment& segment, double gradient_scale);
  /// Returns the changes of shared parameters that have a part in this slice, by param_index. Collective.
  std::unordered_map<int64_t, CutChange> changes_of_cut(const FlatSlice& slice, double gradient_scale);

  std::map<size_t, std::vector<at::Tensor>> coeffs_;  // by slice id: one 0-d tensor per parameter
};

}  // namespace deepspeed::optim
