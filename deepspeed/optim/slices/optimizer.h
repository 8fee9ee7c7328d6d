// All optimizers have this interface: they step flat slices of the parameter space and are told which
// parameter each interval belongs to. They never see the model, the process group or the ZeRO stage.
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
#include "deepspeed/optim/slices/slice_state.h"

namespace deepspeed::optim {

/// Describes an interval of a slice that belongs to one parameter.
struct Segment {
  int64_t param_index = 0;      // in the group's param_names
  Interval in_slice;            // elements of the slice
  int64_t offset_in_param = 0;  // the parameter's element at in_slice.begin
  std::vector<int64_t> shape;   // of the whole parameter
};

/// Returns the elements of a slice's flat tensor that belong to the segment; undefined where the tensor is.
inline at::Tensor part_of(const at::Tensor& flat, const Segment& segment) {
  return flat.defined() ? flat.detach().narrow(0, segment.in_slice.begin, segment.in_slice.numel()) : flat;
}

/// Holds what one call updates: a contiguous piece of one group's flat space. `id` names it for the life of
/// the optimizer (its state hangs on it); padding elements belong to no segment. Where it is one of the
/// pieces that a larger slice was cut into, `whole` names that one, whose random numbers are used.
struct FlatSlice {
  size_t id = 0;
  size_t group = 0;
  // Is (n) fp32 or fp64, updated in place; or int16, the lower halves of split masters; or fp16 or bf16,
  // rounded to nearest.
  at::Tensor master;
  at::Tensor gradient;  // (n) fp32, fp16 or bf16; fp64 for an fp64 master
  // Gets the (n) 16-bit copy of the new master, or is undefined; for split masters it is the upper half,
  // bf16, read and written (kernels/split_master.h).
  at::Tensor low_precision;
  // Is undefined, or one fp64 without dimensions on the slice's CUDA device, which takes the place of
  // step()'s gradient_scale: the host does not know it. Optimizers get it that say takes_scale_on_device().
  at::Tensor scale_on_device = {};
  const Hyperparameters* options = nullptr;  // to step it with; null: those of its group
  const std::vector<Segment>* segments = nullptr;
  const CutParameters* cut = nullptr;  // the group's; null: every segment is a whole parameter
  const RankMean* ranks = nullptr;     // null: this rank alone
  std::optional<size_t> whole = {};
  int64_t begin_in_whole = 0;  // elements
};

class DEEPSPEED_API Optimizer {
 public:
  explicit Optimizer(std::vector<ParamGroup> groups) : groups_(std::move(groups)) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Returns DeepSpeed's name of the class, e.g. "FusedAdam".
  virtual std::string name() const = 0;
  /// Says whether an update of one element reads that element's data alone, so that a slice may cut a
  /// parameter anywhere.
  virtual bool is_elementwise() const = 0;
  /// Says whether it steps slices that cut parameters: by itself, or through FlatSlice::cut.
  virtual bool steps_cut_parameters() const { return is_elementwise(); }
  /// Says whether it steps slices whose masters are split; others get fp32 ones.
  virtual bool steps_split_masters() const { return false; }
  /// Says whether it steps slices whose masters are the 16-bit weights themselves; others get an fp32 copy of
  /// them.
  virtual bool steps_sixteen_bit_masters() const { return false; }
  /// Says whether step() heeds FlatSlice::scale_on_device. Others get a number, for which the host waits.
  virtual bool takes_scale_on_device() const { return false; }
  /// Says whether a step whose scale_on_device is nan writes nothing, and the optimizer has forget_step().
  virtual bool skips_on_device() const { return false; }
  /// Says whether low_precision may be the gradient's memory, in host memory: it is read first, element by
  /// element.
  virtual bool writes_over_gradients() const { return false; }
  /// Says whether in some of its steps ranks exchange compressed values in place of gradients.
  virtual bool compresses_exchange() const { return false; }
  /// Says what the next step of all slices gets as its gradient.
  virtual GradientUse next_gradient() const { return GradientUse::kMean; }
  /// Returns what the momentum of each parameter of the group is multiplied by while it travels; empty: by
  /// nothing.
  virtual std::vector<double> momentum_scaling(size_t) const { return {}; }
  /// Says whether the optimizer has take_back().
  virtual bool takes_steps_back() const { return false; }
  /// Returns the dtype of the state that grows with the parameters; kFloat means fp64 for masters of fp64.
  virtual at::ScalarType state_dtype() const { return at::kFloat; }

  /// Updates one slice; the gradient is multiplied by `gradient_scale` first. State is made at first use.
  virtual void step(const FlatSlice& slice, double gradient_scale) = 0;

  /// Takes the last step() of the slice back, which had the same arguments: to within its roundings, and the
  /// first one exactly in its states. Throws UsageError where it cannot.
  virtual void take_back(const FlatSlice&, double) {
    raise<UsageError>(name(), " takes no step back; Adam with moments in fp32 does");
  }

  /// Forgets the last step() of the slice, which has written nothing, since its scale was nan: its number
  /// goes to the next one.
  virtual void forget_step(size_t) {
    raise<UsageError>(name(), " does not leave out a step that it was given; skips_on_device() says so");
  }

  /// Returns the state of a slice as it stands, tensors shared with the optimizer; empty before its first
  /// step.
  virtual SliceState state(size_t slice_id) const = 0;
  /// Loads copies of the state's tensors; fp64 stays fp64 where the optimizer's states are fp32. Throws
  /// UsageError where names or sizes do not fit.
  virtual void load_state(size_t slice_id, const SliceState& state) = 0;
  /// Throws UsageError where load_state() would for the names and the step of a state, whose tensors may have
  /// no elements here.
  virtual void check_state(const SliceState& state) const = 0;
  /// Returns what this rank alone has of a slice, beside state(), whose tensors of the same names it
  /// replaces; shared, empty where all ranks have the same.
  virtual SliceState own_state(size_t) const { return {}; }
  /// Takes a copy of own_state() of a run that stood where load_state() has led, and writes the weights that
  /// the rank had into the slice's masters. Throws UsageError where names or sizes do not fit.
  virtual void load_own_state(size_t, const SliceState&, const at::Tensor& /*master*/) {}
  /// Returns the bytes of all state tensors.
  virtual int64_t state_bytes() const = 0;

  std::vector<ParamGroup>& param_groups() { return groups_; }
  const std::vector<ParamGroup>& param_groups() const { return groups_; }

 private:
  std::vector<ParamGroup> groups_;
};

}  // namespace deepspeed::optim
