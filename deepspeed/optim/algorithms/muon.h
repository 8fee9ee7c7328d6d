// Muon for flat slices (Jordan et al. 2024): it orthogonalizes the momentum of matrices and uses Adam for
// other parameters.
//
// With g the scaled gradient and mu the momentum, for each matrix:
//   m += (1 - mu)(g - m);   u = g + mu (m - g);   u = orthogonalize(u) * sqrt(max(1, rows / cols))
//   p = p (1 - lr * weight_decay) - lr * u
// rows and cols are a parameter's last two sizes; further dimensions count matrices. A convolution's four
// sizes are flattened to two for the orthogonalization. Other parameters are stepped by AdamW with bias
// correction. The gradient arrives scaled and clipped, at every stage.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/optim/slices/slice_states.h"

namespace deepspeed::optim {

/// Returns whether Muon orthogonalizes a parameter whose group does not set use_muon. It does so for two
/// dimensions or more, unless the name contains "embed" or "lm_head" in any case.
bool uses_muon(const std::string& param_name, int64_t num_dims);

/// Steps slices by Muon. With `use_muon` true a group's options are lr, momentum, weight_decay, ns_method
/// ("gram" or "standard"), by default 0.02, 0.95, 0, "gram". With `use_muon` false they are lr, betas, eps,
/// weight_decay, by default 3e-4, (0.9, 0.95), 1e-10, 0. A group without `use_muon` has all of these, and
/// uses_muon() decides for each parameter. Its lr is Muon's and adam_lr (3e-4) is Adam's; changing lr scales
/// adam_lr in proportion. The state is momentum_buffer, or exp_avg and exp_avg_sq, in fp32; all three if both
/// kinds share a slice.
class Muon : public Optimizer {
 public:
  /// Makes the optimizer. Throws UsageError for an unknown ns_method.
  explicit Muon(std::vector<ParamGroup> groups);

  std::string name() const override { return "Muon"; }
  bool is_elementwise() const override { return false; }
  bool steps_cut_parameters() const override { return true; }
  bool takes_scale_on_device() const override { return true; }
  /// Updates one slice. Throws UsageError if the slice cuts a matrix and FlatSlice::cut is null, or if a
  /// group with use_muon holds a parameter of fewer than two dimensions.
  void step(const FlatSlice& slice, double gradient_scale) override;
  SliceState state(size_t slice_id) const override;
  void load_state(size_t slice_id, const SliceState& state) override;
  void check_state(const SliceState& state) const override;
  int64_t state_bytes() const override { return momenta_.bytes() + moments_.bytes(); }

 private:
  /// Holds a state in two parts: the momentum, and all the rest. moments_ rejects unknown names in the rest.
  struct TwoStates {
    SliceState momentum, moments;
  };
  static TwoStates apart(const SliceState& state);
  bool uses_muon_for(size_t group, int64_t param_index, size_t num_dims) const;
  std::string param_name(size_t group, int64_t param_index) const;
  /// Returns u of the segment's elements before orthogonalization. Also updates the momentum.
  at::Tensor change_of(const FlatSlice& slice, const Segment& segment, double gradient_scale);
  /// Returns this rank's parts of the orthogonalized changes of cut matrices, by param_index. Collective.
  std::unordered_map<int64_t, at::Tensor> changes_of_cut(const FlatSlice& slice, double gradient_scale);
  /// Returns the orthogonalized change of a whole parameter of this shape. `change` and the result are flat.
  at::Tensor orthogonalized(size_t group, const std::vector<int64_t>& shape, const at::Tensor& change) const;
  /// Updates a segment's weights. `change`: the segment's part of the orthogonalized change.
  void move_matrix(const FlatSlice& slice, const Segment& segment, const at::Tensor& change);
  /// Makes all states that the group needs, even if no element here uses them. Does nothing if `cut` is null.
  void make_states(const FlatSlice& slice);
  void step_adam(const FlatSlice& slice, const Segment& segment, double gradient_scale, int64_t step);

  std::vector<double> initial_lrs_;  // by group
  SliceStates momenta_;              // momentum_buffer
  SliceStates moments_;              // exp_avg, exp_avg_sq
};

}  // namespace deepspeed::optim
