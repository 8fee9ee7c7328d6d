// The interface of all optimizers. They step flat slices of the parameter space and know which parameter each
// interval belongs to. They never see the model, the process group or the ZeRO stage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/export.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/optim/slices/other_ranks.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::optim {

/// Describes an interval of a slice that belongs to one parameter.
struct Segment {
  int64_t param_index = 0;      // in the group's param_names
  Interval in_slice;            // elements of the slice
  int64_t offset_in_param = 0;  // the parameter's element at in_slice.begin
  std::vector<int64_t> shape;   // of the whole parameter
};

/// Returns a view of the segment in a slice's flat tensor. Undefined stays undefined.
inline at::Tensor part_of(const at::Tensor& flat, const Segment& segment) {
  return flat.defined() ? flat.detach().narrow(0, segment.in_slice.begin, segment.in_slice.numel()) : flat;
}

/// Describes what one step updates: a contiguous piece of one group's flat space. That space holds the
/// group's parameters, flattened, one after the other. `id` names the slice for the optimizer's lifetime and
/// is the key of its state. Padding elements belong to no segment. If the slice is a piece of a larger slice,
/// `whole` is the larger one's id. The piece then uses the random numbers that its elements have in the
/// larger slice.
struct FlatSlice {
  size_t id = 0;
  size_t group = 0;
  // (n) fp32 or fp64, updated in place; or int16, the lower halves of split masters; or fp16 or bf16, rounded
  // to nearest.
  at::Tensor master;
  at::Tensor gradient;  // (n) fp32, fp16 or bf16; fp64 for an fp64 master
  // Receives the (n) 16-bit copy of the new master, or is undefined. For split masters it is the bf16 upper
  // half, read and written (kernels/split_master.h).
  at::Tensor low_precision;
  // Undefined, or a 0-d fp64 tensor on the slice's CUDA device that replaces step()'s gradient_scale. The
  // host does not know its value. Only optimizers with takes_scale_on_device() get it.
  at::Tensor scale_on_device = {};
  const Hyperparameters* options = nullptr;  // options for this step; null: those of the group
  const std::vector<Segment>* segments = nullptr;
  const CutParameters* cut = nullptr;  // the group's cut parameters; null: every segment is a whole parameter
  const RankMean* ranks = nullptr;     // null: only this rank
  std::optional<size_t> whole = {};
  int64_t begin_in_whole = 0;  // elements
};

/// Holds the state of one slice. It has named flat tensors of the slice's size, the number of steps made, and
/// named lists of numbers. A list has one number per parameter of the slice's group, equal on all ranks.
struct SliceState {
  std::vector<std::pair<std::string, at::Tensor>> tensors = {};  // e.g. exp_avg, exp_avg_sq
  int64_t step = 0;
  std::vector<std::pair<std::string, std::vector<double>>> numbers = {};  // e.g. lamb_coeff_freeze
};

class DEEPSPEED_API Optimizer {
 public:
  explicit Optimizer(std::vector<ParamGroup> groups) : groups_(std::move(groups)) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Returns DeepSpeed's name of the class, e.g. "FusedAdam".
  virtual std::string name() const = 0;
  /// Returns whether updating one element reads only that element's data. A slice may then cut a parameter
  /// anywhere.
  virtual bool is_elementwise() const = 0;
  /// Returns whether it steps slices that cut parameters, by itself or through FlatSlice::cut.
  virtual bool steps_cut_parameters() const { return is_elementwise(); }
  /// Returns whether it steps slices with split masters. For other optimizers they cannot be configured.
  virtual bool steps_split_masters() const { return false; }
  /// Returns whether it steps slices whose masters are the 16-bit weights themselves. Other optimizers get an
  /// fp32 copy.
  virtual bool steps_sixteen_bit_masters() const { return false; }
  /// Returns whether step() uses FlatSlice::scale_on_device. Other optimizers get a number, which the host
  /// waits for.
  virtual bool takes_scale_on_device() const { return false; }
  /// Returns whether a step with a nan scale_on_device writes nothing. The optimizer then has forget_step().
  virtual bool skips_on_device() const { return false; }
  /// Returns whether low_precision may share the gradient's memory, in host memory. Each element is then read
  /// before it is written.
  virtual bool writes_over_gradients() const { return false; }
  /// Returns whether some steps exchange compressed values between ranks instead of gradients.
  virtual bool compresses_exchange() const { return false; }
  /// Returns what the next step of all slices gets as its gradient.
  virtual GradientUse next_gradient() const { return GradientUse::kMean; }
  /// Returns a factor for each parameter of the group. The parameter's momentum is multiplied by its factor
  /// before the exchange between ranks and divided by it afterwards. An empty list means factors of 1.
  virtual std::vector<double> momentum_scaling(size_t) const { return {}; }
  /// Returns whether the optimizer has take_back().
  virtual bool takes_steps_back() const { return false; }
  /// Returns the dtype of the state's tensors. kFloat stands for fp32, and for fp64 if the masters are fp64.
  virtual at::ScalarType state_dtype() const { return at::kFloat; }

  /// Updates one slice. The gradient is first multiplied by `gradient_scale`. State is made at first use.
  virtual void step(const FlatSlice& slice, double gradient_scale) = 0;

  /// Reverts the slice's last step(), which had the same arguments. The result is exact up to rounding;
  /// reverting the first step restores its states exactly. Throws UsageError if takes_steps_back() is false,
  /// and for a slice without a step.
  virtual void take_back(const FlatSlice&, double) {
    raise<UsageError>(name(), " takes no step back; Adam with moments in fp32 does");
  }

  /// Forgets the slice's last step(), which wrote nothing because its scale was nan. The next step has the
  /// same number.
  virtual void forget_step(size_t) {
    raise<UsageError>(name(), " does not leave out a step that it was given; skips_on_device() says so");
  }

  /// Returns the slice's current state, sharing the optimizer's tensors; empty before its first step.
  virtual SliceState state(size_t slice_id) const = 0;
  /// Replaces the slice's state by copies of `state`, converted to state_dtype(). fp64 tensors stay fp64 if
  /// state_dtype() is kFloat. Throws UsageError if names or sizes do not fit.
  virtual void load_state(size_t slice_id, const SliceState& state) = 0;
  /// Throws UsageError if load_state() would reject the names or the step. Sizes are not checked.
  virtual void check_state(const SliceState& state) const = 0;
  /// Returns the part of a slice's state that differs between ranks; empty if nothing differs. The tensors
  /// are shared with the optimizer. On this rank they replace those of the same names in state().
  virtual SliceState own_state(size_t) const { return {}; }
  /// Loads a copy of own_state(), and writes this rank's weights into `master`, the slice's masters. Call it
  /// after load_state() with the state that was saved together with it. Throws UsageError if names or sizes
  /// do not fit.
  virtual void load_own_state(size_t, const SliceState&, const at::Tensor& /*master*/) {}
  /// Returns the bytes of all state tensors.
  virtual int64_t state_bytes() const = 0;

  std::vector<ParamGroup>& param_groups() { return groups_; }
  const std::vector<ParamGroup>& param_groups() const { return groups_; }

 private:
  std::vector<ParamGroup> groups_;
};

}  // namespace deepspeed::optim
