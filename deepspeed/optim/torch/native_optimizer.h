// This library's optimizers are made torch::optim::Optimizer here, for any program on LibTorch: they step the
// parameters that they are given, one slice a parameter, with the same code that the engine runs on flat
// slices.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include "deepspeed/base/export.h"
#include "deepspeed/optim/slices/param_group.h"
#include "deepspeed/optim/slices/slice_state.h"

namespace deepspeed::optim {

/// Gives the options as the optimizers see them: hyperparameters by name.
class DEEPSPEED_API NativeOptions : public torch::optim::OptimizerOptions {
 public:
  virtual Hyperparameters hyperparameters() const = 0;
  /// Throws UsageError where one of the options is missing or of another kind.
  virtual void set_hyperparameters(const Hyperparameters& from) = 0;
};

/// Implements NativeOptions. `Derived` has `lr()` and `static void visit(self, visitor)`, which calls
/// visitor(name, value) for each option that is a group's own.
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
    Derived::visit(static_cast<Derived&>(*this), [&](const char* name, auto& value) {
      using Value = std::remove_reference_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, bool>) {
        value = from.flag(name);
      } else if constexpr (std::is_same_v<Value, double>) {
        value = from.number(name);
      } else if constexpr (std::is_same_v<Value, std::string>) {
        value = from.text(name);
      } else {
        value = from.pair(name);
      }
    });
  }

 private:
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

class Optimizer;
/// Names this library's Optimizer, for classes in which Optimizer names torch's.
using FlatOptimizer = Optimizer;

/// Steps parameters in torch's way. Parameters are fp32, fp16 or bf16, of any strides; a 16-bit parameter is
/// updated in fp32 and rounded. Gradients are fp32, fp16 or bf16, dense or sparse; a parameter without one is
/// left alone. torch::save and torch::load keep options and state.
class DEEPSPEED_API NativeOptimizer : public torch::optim::Optimizer {
 public:
  ~NativeOptimizer() override;

  /// Adds a group with the options that it came with. (torch's own gives a group the defaults since 2.15,
  /// unless its options are of one of torch's own classes.)
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// Makes one step; returns the closure's loss, or an undefined tensor. Throws UsageError for a parameter or
  /// gradient that the class cannot step.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// Returns the state of one of the parameters: flat tensors that are shared with the optimizer, and its
  /// step; empty before the first.
  SliceState state_of(const at::Tensor& parameter) const;
  /// Loads copies of a parameter's state. Throws UsageError where names or sizes do not fit, or the parameter
  /// is none of the optimizer's.
  void load_state_of(const at::Tensor& parameter, const SliceState& state);
  int64_t state_bytes() const;

  void save(torch::serialize::OutputArchive& archive) const override;
  /// Loads options and state. Throws UsageError where the archive is of another class or of other groups.
  void load(torch::serialize::InputArchive& archive) override;

  /// Returns DeepSpeed's name of the class.
  std::string name() const;
  /// Makes an optimizer of this kind for flat slices, with these groups and no state: the engine steps that
  /// one.
  virtual std::unique_ptr<FlatOptimizer> make_flat(std::vector<ParamGroup> groups) const = 0;

 protected:
  NativeOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                  std::unique_ptr<NativeOptions> defaults);

  /// Throws where the options of a group do not fit the class or the defaults of all groups.
  virtual void check_options(const NativeOptions& options) const = 0;
  /// Calls check_options() for every group; constructors end with it.
  void check_groups() const;
  /// Throws where the class, with these options of the group, cannot step the parameter by its gradient.
  virtual void check_parameter(const at::Tensor& parameter, const NativeOptions& options) const = 0;
  /// Throws for parameters and gradients that no class here can step.
  void check_supported(const at::Tensor& parameter, bool takes_sparse_gradients) const;
  /// Returns the factor by which the gradients of the group are multiplied.
  virtual double gradient_scale(const torch::optim::OptimizerParamGroup& group) const;

  /// Returns the flat optimizer with the options of the groups as they stand; made at first use.
  FlatOptimizer& flat();
  const FlatOptimizer* flat_if_made() const { return flat_.get(); }
  /// Returns the id of a parameter's slice; none before its first step.
  std::optional<size_t> find_slice_id(const at::Tensor& parameter) const;
  /// Returns an id for a slice that is no parameter's.
  size_t new_slice_id() { return num_slices_++; }
  /// Steps the parameter with the state of the slice. flat() must have been called.
  void step_slice(size_t slice_id, size_t group, const at::Tensor& parameter, double scale);

 private:
  size_t slice_id(const at::Tensor& parameter);  // new at first use
  /// Throws UsageError for a tensor that is no parameter of the groups.
  void check_is_parameter(const at::Tensor& parameter) const;

  std::unique_ptr<FlatOptimizer> flat_;
  std::unordered_map<const at::TensorImpl*, size_t> slice_ids_;
  size_t num_slices_ = 0;
};

/// Returns the options of the groups, in their order, without names of parameters.
DEEPSPEED_API std::vector<ParamGroup> flat_groups(const torch::optim::Optimizer& optimizer);

/// Sets the options that `from` holds; others of the group, its defaults, stay.
DEEPSPEED_API void set_options(const Hyperparameters& from, ParamGroup& group);

}  // namespace deepspeed::optim
