// Makes any torch::optim::Optimizer an Optimizer of this library, by replacing its parameters with flat
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

/// Steps slices with a torch optimizer. Adam, AdamW, SGD, RMSprop and Adagrad step a slice as one flat
/// tensor, and their state can be read and loaded. The same holds for the classes of deepspeed_optimizers.h,
/// whose own code steps the slices. Any other class gets one tensor per parameter, in the parameter's shape.
/// Slices must not cut the parameters of such a class, and its state cannot be read. The hyperparameters in
/// param_groups() apply: they are written into the torch optimizer before each step (for an unknown class
/// only the learning rate).
class TorchOptimizer : public Optimizer {
 public:
  /// Takes over an optimizer; from now on its groups hold slices. `named_parameters` names the parameters
  /// that `optimizer` was made with. Throws UsageError for a parameter without a name, and for an optimizer
  /// that has made steps. Throws NotSupportedError for LBFGS, whose step needs the loss.
  TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                 const std::vector<std::pair<std::string, at::Tensor>>& named_parameters);
  /// Takes over an optimizer of one of torch's classes, without parameters. It has as many groups as
  /// `groups`. The options in `groups` apply instead of its own; each group must have all options of that
  /// class.
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
  /// Returns the slice's state. Throws NotSupportedError for a class whose state is unknown.
  SliceState state(size_t slice_id) const override;
  void load_state(size_t slice_id, const SliceState& state) override;
  void check_state(const SliceState& state) const override;
  /// Returns the bytes of all state tensors; 0 for a class whose state is unknown.
  int64_t state_bytes() const override;

 private:
  // Holds the tensors that torch steps instead of a slice. They exist as long as the optimizer, since its
  // state is keyed by them.
  struct StandIns {
    std::vector<at::Tensor> tensors;  // views of the master's memory
    SliceState loaded;                // passed to torch once the tensors exist
    int64_t step = 0;
  };

  StandIns& stand_ins_of(const FlatSlice& slice);
  void write_options(size_t group);
  void require_known_state(const char* what) const;

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<Optimizer> native_;  // steps instead of torch; null: not a class of this library
  const TorchOptimizerClass* class_;   // null: unknown, or a class of this library
  std::unordered_map<size_t, StandIns> stand_ins_;  // by slice id
};

/// Makes an RMSprop. A group's options are lr, alpha, eps, weight_decay, momentum, centered, with torch's
/// defaults (1e-2, 0.99, 1e-8, 0, 0, false). The state is square_avg and, depending on the options,
/// momentum_buffer and grad_avg, in fp32.
std::unique_ptr<Optimizer> make_torch_rmsprop(std::vector<ParamGroup> groups);

}  // namespace deepspeed::optim
