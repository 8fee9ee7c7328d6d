// DeepSpeed's optimizer classes for any LibTorch program, with DeepSpeed's names and arguments
// (docs/optimizers.md):
//
//   deepspeed::FusedAdam optimizer(model->parameters(), deepspeed::FusedAdamOptions().lr(1e-3));
//   loss.backward();
//   optimizer.step();
//   optimizer.zero_grad();
//
// Groups with their own options are torch's: OptimizerParamGroup(params,
// std::make_unique<FusedAdamOptions>(...)). Classes named DeepSpeedCPU... take only CPU parameters; the
// others run on CPU and CUDA. DeepSpeed's set_grad_none is the argument of torch's zero_grad.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/arg.h>

#include "deepspeed/base/export.h"
#include "deepspeed/optim/torch/native_optimizer.h"

namespace deepspeed {

using Betas = std::pair<double, double>;

namespace optim {

/// Calls visitor(name, value) for each option that a group of an Adam class can set.
template <class Self, class Visitor>
void visit_adam_options(Self& self, const Visitor& visitor) {
  visitor("lr", self.lr());
  visitor("bias_correction", self.bias_correction());
  visitor("betas", self.betas());
  visitor("eps", self.eps());
  visitor("weight_decay", self.weight_decay());
}

/// Calls visitor(name, value) for each option that a group of a Lion class can set.
template <class Self, class Visitor>
void visit_lion_options(Self& self, const Visitor& visitor) {
  visitor("lr", self.lr());
  visitor("betas", self.betas());
  visitor("weight_decay", self.weight_decay());
}

}  // namespace optim

struct DEEPSPEED_API FusedAdamOptions : optim::NativeOptionsOf<FusedAdamOptions> {
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(bool, bias_correction) = true;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(bool, adam_w_mode) = true;  // equal in all groups
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, amsgrad) = false;  // true is an error, as in DeepSpeed
  /// Sets the dtype of the moments: fp32, or bf16 with half the memory, rounded stochastically. It must be
  /// equal in all groups. (Not in DeepSpeed.)
  TORCH_ARG(at::ScalarType, moment_dtype) = at::kFloat;

 public:
  template <class Self, class Visitor>
  static void visit(Self& self, const Visitor& visitor) {
    optim::visit_adam_options(self, visitor);
  }
};

struct DEEPSPEED_API DeepSpeedCPUAdamOptions : optim::NativeOptionsOf<DeepSpeedCPUAdamOptions> {
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(bool, bias_correction) = true;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, amsgrad) = false;    // true is an error, as in DeepSpeed
  TORCH_ARG(bool, adamw_mode) = true;  // equal in all groups
  /// Keeps moments in fp32. With false they have the parameters' dtype, which must be the same for all. bf16
  /// is rounded stochastically, fp16 to nearest.
  TORCH_ARG(bool, fp32_optimizer_states) = true;

 public:
  template <class Self, class Visitor>
  static void visit(Self& self, const Visitor& visitor) {
    optim::visit_adam_options(self, visitor);
  }
};

struct DEEPSPEED_API FusedLambOptions : optim::NativeOptionsOf<FusedLambOptions> {
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(bool, bias_correction) = true;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(bool, eps_inside_sqrt) = false;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, max_grad_norm) = 0;  // above 0: clips a group's gradients to this norm
  TORCH_ARG(double, max_coeff) = 10;
  TORCH_ARG(double, min_coeff) = 0.01;
  TORCH_ARG(bool, amsgrad) = false;  // true is an error, as in DeepSpeed

 public:
  template <class Self, class Visitor>
  static void visit(Self& self, const Visitor& visitor) {
    visitor("lr", self.lr());
    visitor("bias_correction", self.bias_correction());
    visitor("betas", self.betas());
    visitor("eps", self.eps());
    visitor("eps_inside_sqrt", self.eps_inside_sqrt());
    visitor("weight_decay", self.weight_decay());
    visitor("max_grad_norm", self.max_grad_norm());
    visitor("max_coeff", self.max_coeff());
    visitor("min_coeff", self.min_coeff());
  }
};

struct DEEPSPEED_API FusedLionOptions : optim::NativeOptionsOf<FusedLionOptions> {
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, weight_decay) = 0;

 public:
  template <class Self, class Visitor>
  static void visit(Self& self, const Visitor& visitor) {
    optim::visit_lion_options(self, visitor);
  }
};

struct DEEPSPEED_API DeepSpeedCPULionOptions : optim::NativeOptionsOf<DeepSpeedCPULionOptions> {
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, weight_decay) = 0;
  /// Keeps the state in fp32. With false it has the parameters' dtype, which must be the same for all, and is
  /// rounded to nearest.
  TORCH_ARG(bool, fp32_optimizer_states) = true;

 public:
  template <class Self, class Visitor>
  static void visit(Self& self, const Visitor& visitor) {
    optim::visit_lion_options(self, visitor);
  }
};

struct DEEPSPEED_API DeepSpeedCPUAdagradOptions : optim::NativeOptionsOf<DeepSpeedCPUAdagradOptions> {
  TORCH_ARG(double, lr) = 1e-2;
  TORCH_ARG(double, eps) = 1e-10;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, amsgrad) = false;  // true is an error
  /// Keeps the state in fp32. With false it has the parameters' dtype, which must be the same for all, and is
  /// rounded to nearest.
  TORCH_ARG(bool, fp32_optimizer_states) = true;

 public:
  template <class Self, class Visitor>
  static void visit(Self& self, const Visitor& visitor) {
    visitor("lr", self.lr());
    visitor("eps", self.eps());
    visitor("weight_decay", self.weight_decay());
  }
};

/// Holds the options of a matrix group (use_muon) or an Adam group. Their default rates differ.
struct DEEPSPEED_API MuonOptions : optim::NativeOptionsOf<MuonOptions> {
  MuonOptions() : MuonOptions(true) {}
  explicit MuonOptions(bool use_muon) : lr_(use_muon ? 0.02 : 3e-4), use_muon_(use_muon) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(bool, use_muon);
  TORCH_ARG(double, momentum) = 0.95;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(std::string, ns_method) = "gram";  // or "standard"
  TORCH_ARG(Betas, betas) = {0.9, 0.95};       // for Adam, like eps
  TORCH_ARG(double, eps) = 1e-10;

 public:
  template <class Self, class Visitor>
  static void visit(Self& self, const Visitor& visitor) {
    visitor("lr", self.lr());
    visitor("use_muon", self.use_muon());
    visitor("momentum", self.momentum());
    visitor("weight_decay", self.weight_decay());
    visitor("ns_method", self.ns_method());
    visitor("betas", self.betas());
    visitor("eps", self.eps());
  }
};

/// Provides the constructors and checks of all optimizer classes. They are made from parameters or groups,
/// and throw if options do not fit.
template <class Options>
class DeepSpeedOptimizer : public optim::NativeOptimizer {
 public:
  explicit DeepSpeedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                              Options defaults = {})
      : NativeOptimizer(groups, std::make_unique<Options>(defaults)) {
    check_groups();
  }
  explicit DeepSpeedOptimizer(std::vector<at::Tensor> params, Options defaults = {})
      : DeepSpeedOptimizer({torch::optim::OptimizerParamGroup(std::move(params))}, std::move(defaults)) {}
  std::unique_ptr<optim::FlatOptimizer> make_flat(std::vector<optim::ParamGroup> groups) const override;

 protected:
  void check_options(const optim::NativeOptions& options) const override;
  void check_parameter(const at::Tensor& parameter, const optim::NativeOptions& options) const override;
  double gradient_scale(const torch::optim::OptimizerParamGroup& group) const override;

 private:
  const Options& own_defaults() const { return static_cast<const Options&>(defaults()); }
};

extern template class DEEPSPEED_API_INSTANCE DeepSpeedOptimizer<FusedAdamOptions>;
extern template class DEEPSPEED_API_INSTANCE DeepSpeedOptimizer<DeepSpeedCPUAdamOptions>;
extern template class DEEPSPEED_API_INSTANCE DeepSpeedOptimizer<FusedLambOptions>;
extern template class DEEPSPEED_API_INSTANCE DeepSpeedOptimizer<FusedLionOptions>;
extern template class DEEPSPEED_API_INSTANCE DeepSpeedOptimizer<DeepSpeedCPULionOptions>;
extern template class DEEPSPEED_API_INSTANCE DeepSpeedOptimizer<DeepSpeedCPUAdagradOptions>;
extern template class DEEPSPEED_API_INSTANCE DeepSpeedOptimizer<MuonOptions>;

using FusedAdam = DeepSpeedOptimizer<FusedAdamOptions>;
using FusedLion = DeepSpeedOptimizer<FusedLionOptions>;
using DeepSpeedCPULion = DeepSpeedOptimizer<DeepSpeedCPULionOptions>;
using DeepSpeedCPUAdagrad = DeepSpeedOptimizer<DeepSpeedCPUAdagradOptions>;
using Muon = DeepSpeedOptimizer<MuonOptions>;

/// Steps parameters on the CPU, also by sub-group. A sub-group is a piece of the parameters that is stepped
/// as soon as its gradient is ready. The caller puts the sub-group's tensor into a group, calls
/// step_subgroup() with the sub-group's number, and may revert the step, for instance after a late overflow.
/// Sub-groups have states separate from step()'s, and torch::save does not store them.
class DEEPSPEED_API DeepSpeedCPUAdam : public DeepSpeedOptimizer<DeepSpeedCPUAdamOptions> {
 public:
  using DeepSpeedOptimizer::DeepSpeedOptimizer;

  /// Steps the one parameter in the groups that has a gradient. Keeps copies of the weights and both moments
  /// until the sub-group's next step, its rollback, or release_rollbacks(). Returns the closure's loss, or an
  /// undefined tensor. Throws UsageError if no parameter, or more than one, has a gradient.
  at::Tensor step_subgroup(int64_t subgroup_id, LossClosure closure = nullptr);
  /// Reverts the sub-group's last step bit for bit, even if the gradient was not finite. Throws UsageError if
  /// there is no step to revert.
  void rollback_subgroup(int64_t subgroup_id);
  /// Frees the copies that rollbacks need. Steps made before this call cannot be reverted.
  void release_rollbacks() { undos_.clear(); }

  /// Returns the state of a sub-group, in the form of state_of().
  optim::SliceState state_of_subgroup(int64_t subgroup_id) const;
  /// Loads the state of a sub-group, in the form of load_state_of().
  void load_state_of_subgroup(int64_t subgroup_id, const optim::SliceState& state);

 private:
  struct Undo {
    at::Tensor parameter;
    at::Tensor weights;  // before the step
    optim::SliceState state;
  };

  size_t slice_of(int64_t subgroup_id);

  std::unordered_map<int64_t, size_t> slices_;  // by sub-group
  std::unordered_map<int64_t, Undo> undos_;
};

class DEEPSPEED_API FusedLamb : public DeepSpeedOptimizer<FusedLambOptions> {
 public:
  using DeepSpeedOptimizer::DeepSpeedOptimizer;
  /// Returns the last step's trust ratios, one per parameter with a gradient, in group order.
  std::vector<double> get_lamb_coeffs() const;
};

}  // namespace deepspeed
