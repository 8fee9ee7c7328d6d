// Stores an optimizer's state by slice: tensors of one dtype under fixed names, and the number of steps. The
// functions here check and copy states from checkpoints, and complete the options of groups.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// Copies the named tensors, flattened and converted to `dtype`, in the order of `names`. fp64 tensors stay
/// fp64 if `dtype` is fp32. Throws UsageError, naming `where`, for a negative step, and unless the state
/// holds exactly these tensors, all of one size.
DEEPSPEED_API std::vector<at::Tensor> copy_state(
    const SliceState& state, const std::vector<std::string>& names, at::ScalarType dtype,
    const std::source_location& where = std::source_location::current());

/// Returns the dtype of a slice's state: `dtype`, or fp64 for fp64 masters. Throws UsageError for fp64
/// masters if `dtype` is not fp32.
DEEPSPEED_API at::ScalarType state_dtype_of(
    const FlatSlice& slice, at::ScalarType dtype,
    const std::source_location& where = std::source_location::current());

/// Throws UsageError if copy_state() would reject the names or the step.
DEEPSPEED_API void check_state_names(const SliceState& state, const std::vector<std::string>& names,
                                     const std::source_location& where = std::source_location::current());

/// Throws UsageError unless the state tensor has the slice's size.
DEEPSPEED_API void check_state_numel(const FlatSlice& slice, const at::Tensor& state,
                                     const std::source_location& where = std::source_location::current());

/// Keeps the states of an optimizer's slices by slice id. A state is made when it is first used.
class DEEPSPEED_API SliceStates {
 public:
  struct Entry {
    std::vector<at::Tensor> tensors;  // (n), in the order of the names
    int64_t step = 0;
    bool is_loaded = false;
  };

  /// Starts empty. `names` are those of the tensors in checkpoints, e.g. {"exp_avg", "exp_avg_sq"}. Errors
  /// name `where`, the optimizer. Throws UsageError for a dtype other than fp32, fp16 and bf16.
  explicit SliceStates(std::vector<std::string> names, at::ScalarType dtype = at::kFloat,
                       const std::source_location& where = std::source_location::current());

  /// Returns the slice's entry, on the slice's device. At first use its tensors are filled with
  /// `initial_value`. A dtype of fp32 becomes fp64 for fp64 masters. Throws UsageError if the slice changed
  /// its size.
  Entry& of(const FlatSlice& slice, double initial_value = 0.0);

  /// Implements Optimizer::state().
  SliceState state(size_t slice_id) const;
  /// Implements Optimizer::load_state().
  void load_state(size_t slice_id, const SliceState& state);
  /// Implements Optimizer::forget_step().
  void forget_step(size_t slice_id);
  void check_state(const SliceState& state) const { check_state_names(state, names_, where_); }
  int64_t bytes() const;
  at::ScalarType dtype() const { return dtype_; }

 private:
  std::vector<std::string> names_;
  at::ScalarType dtype_;
  std::source_location where_;
  std::unordered_map<size_t, Entry> entries_;  // by slice id
};

/// Returns slice.options, or those of the slice's group if it is null. Throws UsageError if the group does
/// not exist.
DEEPSPEED_API const Hyperparameters& options_of(
    const Optimizer& optimizer, const FlatSlice& slice,
    const std::source_location& where = std::source_location::current());

/// Sets those of `defaults` that a group lacks, in each group.
DEEPSPEED_API void set_defaults(std::vector<ParamGroup>& groups,
                                const std::vector<std::pair<std::string, HyperparameterValue>>& defaults);

/// Returns the groups with bias_correction off, for optimizers that never correct the bias of moments.
DEEPSPEED_API std::vector<ParamGroup> without_bias_correction(std::vector<ParamGroup> groups);

}  // namespace deepspeed::optim
