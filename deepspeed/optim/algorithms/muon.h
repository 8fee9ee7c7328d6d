// Muon steps flat slices (Jordan et al. 2024): it orthogonalizes the momentum of matrices, and takes Adam for
// what is no matrix.
//
// With g the scaled gradient and mu the momentum, for each matrix:
//   m += (1 - mu)(g - m);   u = g + mu (m - g);   u = orthogonalize(u) * sqrt(max(1, rows / cols))
//   p = p (1 - lr * weight_decay) - lr * u
// rows and cols are a parameter's last two sizes, further ones count matrices; the four sizes of a
// convolution are flattened to two for the orthogonalization. The others are stepped by AdamW with bias
// correction. The gradient comes scaled and clipped, at every stage.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/optim/slices/slice_states.h"

namespace deepspeed::optim {

/// Says whether Muon orthogonalizes a parameter where its group does not say so: from two dimensions up, and
/// neither "embed" nor "lm_head" in the name, in any case.
bool uses_muon(const std::string& param_name, int64_t num_dims);

/// Reads of a group with `use_muon` true lr, momentum, weight_decay, ns_method ("gram" or "standard"), by
/// default 0.02, 0.95, 0, "gram". With `use_muon` false it reads lr, betas, eps, weight_decay, by default
/// 3e-4, (0.9, 0.95), 1e-10, 0. A group without `use_muon` has all of these, and uses_muon decides for each
/// parameter; its lr is Muon's, and adam_lr (3e-4) the others': where the lr is changed from what it was,
/// adam_lr keeps its proportion to it. The state is momentum_buffer, or exp_avg and exp_avg_sq, fp32; all
/// three where both kinds share a slice.
class Muon : public Optimizer {
 public:
  /// Makes the optimizer. Throws UsageError for an ns_method that does not exist.
  explicit Muon(std::vector<ParamGroup> groups);

  std::string name() const override { return "Muon"; }
  bool is_elementwise() const override { return false; }
  bool steps_cut_parameters() const override { return true; }
  /// Steps the slice. Throws UsageError where the slice cuts a matrix and has no `cut`, or a group with
  /// use_muon holds a parameter of fewer than two dimensions.
  bool takes_scale_on_device() const override { return true; }
  void step(const FlatSlice& slice, double gradient_scale) override;
  SliceState state(size_t slice_id) const override;
  void load_state(size_t slice_id, const SliceState& state) override;
  void check_state(const SliceState& state) const override;
  int64_t state_bytes() const override { return momenta_.bytes() + moments_.bytes(); }

 private:
  /// Holds a state in two: its momentum, and all the rest, where a foreign name is an error.
  struct TwoStates {
    SliceState momentum, moments;
  };
  static TwoStates apart(const SliceState& state);
  bool uses_muon_for(size_t group, int64_t param_index, size_t num_dims) const;
  std::string param_name(size_t group, int64_t param_index) const;
  /// Computes the change of the segment's elements before it is orthogonalized, and moves the momentum.
  at::Tensor change_of(const FlatSlice& slice, const Segment& segment, double gradient_scale);
  /// Returns this rank's parts of the orthogonalized changes of matrices that ranks share, by param_index.
  /// Collective.
  std::unordered_map<int64_t, at::Tensor> changes_of_cut(const FlatSlice& slice, double gradient_scale);
  /// Orthogonalizes the change of a whole matrix. `change` and the result are flat.
  at::Tensor orthogonalized(size_t group, const std::vector<int64_t>& shape, const at::Tensor& change) const;
  /// Moves a segment's weights. `change`: the segment's part of the orthogonalized change.
  void move_matrix(const FlatSlice& slice, const Segment& segment, const at::Tensor& change);
  /// Makes the states of the kinds that the group has, also where this rank has no elements of one.
  void make_states(const FlatSlice& slice);
  void step_adam(const FlatSlice& slice, const Segment& segment, double gradient_scale, int64_t step);

  std::vector<double> initial_lrs_;  // by group
  SliceStates momenta_;              // momentum_buffer
  SliceStates moments_;              // exp_avg, exp_avg_sq
};

}  // namespace deepspeed::optim
