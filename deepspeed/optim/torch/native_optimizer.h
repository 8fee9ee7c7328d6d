// Makes this library's optimizers usable as torch::optim::Optimizer in any LibTorch program. They step the
// given parameters, one slice per parameter, with the code that the engine runs on flat slices.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include "deepspeed/base/export.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::optim {

/// Provides options in the optimizers' form: hyperparameters by name.
class DEEPSPEED_API NativeOptions : public torch::optim::OptimizerOptions {
 public:
  virtual Hyperparameters hyperparameters() const = 0;
  /// Sets all options from `from`. Throws UsageError if one is missing or has another type.
  virtual void set_hyperparameters(const Hyperparameters& from) = 0;
};

/// Implements NativeOptions. `Derived` has `lr()` and `static void visit(self, visitor)`, which calls
/// visitor(name, value) for each option that a group can set.
template <class Derived>
class NativeOptionsOf : public NativeOptions {
 public:
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(self());
  }
  double get_lr() const override { return self().lr(); }
  void set_lr(const double lr) override { static_cast<Derived&>(*this).lr(lr); }

  Hyperparameters hyperparameters() const override {
    Hyperparameters result;
    Derived::visit(self(), [&](const char* name, const auto& value) { result.set(name, value); });
    return result;
  }

  void set_hyperparameters(const Hyperparameters& from) override {
    Derived::visit(static_cast<Derived&>(*this),
                   [&](const char* name, auto& value) { from.read(name, value); });
  }

 private:
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

/// Names this library's Optimizer, for classes in which Optimizer means torch's.
using FlatOptimizer = Optimizer;

/// Steps parameters through torch's interface. Parameters are fp32, fp64, fp16 or bf16, with any strides;
/// 16-bit ones are updated in fp32 and rounded. Gradients have one of these dtypes, dense or sparse; a
/// parameter without one is left unchanged. torch::save and torch::load keep options and state.
class DEEPSPEED_API NativeOptimizer : public torch::optim::Optimizer {
 public:
  ~NativeOptimizer() override;

  /// Adds a group with its own options. (Since 2.15 torch's version replaces them by the defaults unless they
  /// are of torch's own classes.)
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// Makes one step. Returns the closure's loss, or an undefined tensor. Throws UsageError for a parameter or
  /// gradient that the class cannot step.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// Returns the state of a parameter: its step, and flat tensors shared with the optimizer. Empty before the
  /// first step.
  SliceState state_of(const at::Tensor& parameter) const;
  /// Loads copies of a parameter's state. Throws UsageError if names or sizes do not fit, or the parameter is
  /// not one of the optimizer's.
  void load_state_of(const at::Tensor& parameter, const SliceState& state);
  int64_t state_bytes() const;

  void save(torch::serialize::OutputArchive& archive) const override;
  /// Restores options and state. Throws UsageError if the archive is of another class or has other groups.
  void load(torch::serialize::InputArchive& archive) override;

  /// Returns DeepSpeed's name of the class.
  std::string name() const;
  /// Makes an optimizer of this kind for flat slices, with these groups and no state. The engine steps that
  /// optimizer instead of this one.
  virtual std::unique_ptr<FlatOptimizer> make_flat(std::vector<ParamGroup> groups) const = 0;

 protected:
  NativeOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                  std::unique_ptr<NativeOptions> defaults);

  /// Throws if a group's options do not fit the class or the common defaults.
  virtual void check_options(const NativeOptions& options) const = 0;
  /// Calls check_options() for every group. Constructors of derived classes must end with this call.
  void check_groups() const;
  /// Throws if the class, with these group options, cannot step the parameter with its gradient.
  virtual void check_parameter(const at::Tensor& parameter, const NativeOptions& options) const = 0;
  /// Throws for parameters and gradients that no class of this library can step.
  void check_supported(const at::Tensor& parameter, bool takes_sparse_gradients) const;
  /// Returns the factor by which step() multiplies the group's gradients; 1 by default.
  virtual double gradient_scale(const torch::optim::OptimizerParamGroup& group) const;

  /// Returns the flat optimizer with the groups' current options, made at first use.
  FlatOptimizer& flat();
  const FlatOptimizer* flat_if_made() const { return flat_.get(); }
  /// Returns the id of a parameter's slice; nullopt before its first step or loaded state.
  std::optional<size_t> find_slice_id(const at::Tensor& parameter) const;
  /// Returns an id for a slice that belongs to no parameter.
  size_t new_slice_id() { return num_slices_++; }
  /// Steps the parameter with the slice's state. `scale` multiplies the gradient. flat() must have been
  /// called.
  void step_slice(size_t slice_id, size_t group, const at::Tensor& parameter, double scale);

 private:
  size_t slice_id(const at::Tensor& parameter);  // assigned at first use
  /// Throws UsageError for a tensor that is not a parameter of the groups.
  void check_is_parameter(const at::Tensor& parameter) const;

  std::unique_ptr<FlatOptimizer> flat_;
  std::unordered_map<const at::TensorImpl*, size_t> slice_ids_;
  size_t num_slices_ = 0;
};

/// Returns the options of the optimizer's groups, in order, without parameter names.
DEEPSPEED_API std::vector<ParamGroup> flat_groups(const torch::optim::Optimizer& optimizer);

/// Sets the options that `from` holds; the group's other options stay.
DEEPSPEED_API void set_options(const Hyperparameters& from, ParamGroup& group);

}  // namespace deepspeed::optim
