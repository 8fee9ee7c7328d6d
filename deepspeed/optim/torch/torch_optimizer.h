// Makes any torch::optim::Optimizer an Optimizer of this library, by exchanging its parameters for flat
// slices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "deepspeed/optim/slices/optimizer.h"

namespace torch::optim {
class Optimizer;
}

namespace deepspeed::optim {

struct TorchOptimizerClass;

/// Steps slices by a torch optimizer. Adam, AdamW, SGD, RMSprop and Adagrad step a slice as one flat tensor,
/// and their state can be read and loaded; so do the classes of deepspeed_optimizers.h, whose own code steps
/// the slices. Any other class gets one tensor a parameter, of the parameter's shape, so that slices must not
/// cut parameters; its state cannot be read. The hyperparameters in param_groups() are the ones that hold:
/// they are written into the torch optimizer before each step (of an unknown class the rate alone).
class TorchOptimizer : public Optimizer {
 public:
  /// Takes an optimizer over. `named_parameters` names the parameters that `optimizer` was made of. From here
  /// on the torch optimizer belongs to this object: its groups hold slices. Throws UsageError for a parameter
  /// without a name or an optimizer that has made steps already, NotSupportedError for LBFGS, whose step
  /// needs the loss.
  TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                 const std::vector<std::pair<std::string, at::Tensor>>& named_parameters);
  /// Fills an optimizer without parameters. `optimizer` has as many groups as `groups`, without parameters:
  /// the options of `groups` hold, which must be all those of its class, one of torch's.
  TorchOptimizer(std::vector<ParamGroup> groups, std::shared_ptr<torch::optim::Optimizer> optimizer);
  ~TorchOptimizer() override;

  /// Returns the class's name without namespaces, e.g. "RMSprop".
  std::string name() const override;
  bool is_elementwise() const override;
  bool steps_cut_parameters() const override;
  bool steps_split_masters() const override { return native_ && native_->steps_split_masters(); }
  bool steps_sixteen_bit_masters() const override { return native_ && native_->steps_sixteen_bit_masters(); }
  at::ScalarType state_dtype() const override;
  bool takes_scale_on_device() const override { return !native_ || native_->takes_scale_on_device(); }
  bool skips_on_device() const override { return native_ && native_->skips_on_device(); }
  void step(const FlatSlice& slice, double gradient_scale) override;
  void forget_step(size_t slice_id) override {
    native_ ? native_->forget_step(slice_id) : Optimizer::forget_step(slice_id);
  }
  /// Returns the slice's state. Throws NotSupportedError for a class without a known state.
  SliceState state(size_t slice_id) const override;
  void load_state(size_t slice_id, const SliceState& state) override;
  void check_state(const SliceState& state) const override;
  /// Returns the bytes of all state tensors; 0 for a class without a known state.
  int64_t state_bytes() const override;

 private:
  // Holds what torch steps in place of a slice: tensors that live as long as the optimizer, since its state
  // hangs on them.
  struct StandIns {
    std::vector<at::Tensor> tensors;  // views of the master's memory
    SliceState loaded;                // to be given to torch once the tensors exist
    int64_t step = 0;
  };

  StandIns& stand_ins_of(const FlatSlice& slice);
  void write_options(size_t group);
  void require_known_state(const char* what) const;

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<Optimizer> native_;               // steps in place of torch; null: no class of this library
  const TorchOptimizerClass* class_;                // null: unknown, or of this library
  std::unordered_map<size_t, StandIns> stand_ins_;  // by slice id
};

/// Makes an RMSprop. It reads of a group lr, alpha, eps, weight_decay, momentum, centered; what a group lacks
/// has torch's default (1e-2, 0.99, 1e-8, 0, 0, false). The state is square_avg and, as the options ask,
/// momentum_buffer and grad_avg, fp32.
std::unique_ptr<Optimizer> make_torch_rmsprop(std::vector<ParamGroup> groups);

}  // namespace deepspeed::optim
