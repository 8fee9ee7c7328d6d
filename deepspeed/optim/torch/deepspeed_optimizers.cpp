// Implements DeepSpeed's classes over one template; each class adds only its differences.
//
// Each class has its options (deepspeed_optimizers.h) and overloads here. make_flat_optimizer() makes the
// flat optimizer that does the work. check_class_options() refuses options that DeepSpeed refuses or that
// must be equal in all groups. check_class_parameter() refuses parameters that the class cannot step.
// Everything else (groups, slices, state) is in NativeOptimizer. Only FusedLamb also clips by its groups'
// norms (gradient_scale()).
#include "deepspeed/optim/torch/deepspeed_optimizers.h"

#include <algorithm>
#include <cmath>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/grad_stats.h"
#include "deepspeed/kernels/newton_schulz.h"
#include "deepspeed/optim/algorithms/adagrad.h"
#include "deepspeed/optim/algorithms/adam.h"
#include "deepspeed/optim/algorithms/lamb.h"
#include "deepspeed/optim/algorithms/lion.h"
#include "deepspeed/optim/algorithms/muon.h"

namespace deepspeed {
namespace {

using optim::ParamGroup;
using Flat = std::unique_ptr<optim::FlatOptimizer>;
using Groups = std::vector<ParamGroup>;
using TorchGroups = std::vector<torch::optim::OptimizerParamGroup>;

template <class Options>
constexpr const char* kName = "";
template <>
constexpr const char* kName<FusedAdamOptions> = "FusedAdam";
template <>
constexpr const char* kName<DeepSpeedCPUAdamOptions> = "DeepSpeedCPUAdam";
template <>
constexpr const char* kName<FusedLambOptions> = "FusedLamb";
template <>
constexpr const char* kName<FusedLionOptions> = "FusedLion";
template <>
constexpr const char* kName<DeepSpeedCPULionOptions> = "DeepSpeedCPULion";
template <>
constexpr const char* kName<DeepSpeedCPUAdagradOptions> = "DeepSpeedCPUAdagrad";
template <>
constexpr const char* kName<MuonOptions> = "Muon";

// Returns the dtype of the states: fp32, or the one that all parameters share. Throws if the parameters'
// dtypes differ.
at::ScalarType state_dtype(const char* optimizer, bool fp32_optimizer_states, const TorchGroups& groups) {
  if (fp32_optimizer_states) return at::kFloat;
  at::ScalarType dtype = at::ScalarType::Undefined;
  for (const auto& group : groups) {
    for (const at::Tensor& parameter : group.params()) {
      if (dtype != at::ScalarType::Undefined && dtype != parameter.scalar_type()) {
        raise<UsageError>(optimizer, ": fp32_optimizer_states is false, but the parameters are of dtypes ",
                          dtype, " and ", parameter.scalar_type(), "; make an optimizer for each");
      }
      dtype = parameter.scalar_type();
    }
  }
  return dtype == at::ScalarType::Undefined ? at::kFloat : dtype;
}

Flat make_flat_optimizer(const FusedAdamOptions& defaults, const TorchGroups&, Groups groups) {
  optim::AdamOptions options;
  options.adamw_mode = defaults.adam_w_mode();
  options.moment_dtype = defaults.moment_dtype();
  return std::make_unique<optim::Adam>(std::move(groups), options);
}

Flat make_flat_optimizer(const DeepSpeedCPUAdamOptions& defaults, const TorchGroups& torch_groups,
                         Groups groups) {
  optim::AdamOptions options;
  options.class_name = "DeepSpeedCPUAdam";
  options.adamw_mode = defaults.adamw_mode();
  options.moment_dtype = state_dtype("DeepSpeedCPUAdam", defaults.fp32_optimizer_states(), torch_groups);
  return std::make_unique<optim::Adam>(std::move(groups), options);
}

Flat make_flat_optimizer(const FusedLambOptions&, const TorchGroups&, Groups groups) {
  return std::make_unique<optim::Lamb>(std::move(groups));
}

Flat make_flat_optimizer(const FusedLionOptions&, const TorchGroups&, Groups groups) {
  return std::make_unique<optim::Lion>(std::move(groups));
}

Flat make_flat_optimizer(const DeepSpeedCPULionOptions& defaults, const TorchGroups& torch_groups,
                         Groups groups) {
  const auto dtype = state_dtype("DeepSpeedCPULion", defaults.fp32_optimizer_states(), torch_groups);
  return std::make_unique<optim::Lion>(std::move(groups), "DeepSpeedCPULion", dtype);
}

Flat make_flat_optimizer(const DeepSpeedCPUAdagradOptions& defaults, const TorchGroups& torch_groups,
                         Groups groups) {
  const auto dtype = state_dtype("DeepSpeedCPUAdagrad", defaults.fp32_optimizer_states(), torch_groups);
  return std::make_unique<optim::Adagrad>(std::move(groups), optim::AdagradKind::kDeepSpeedCpu, dtype);
}

Flat make_flat_optimizer(const MuonOptions&, const TorchGroups&, Groups groups) {
  return std::make_unique<optim::Muon>(std::move(groups));
}

// Throws for a number outside its range.
void check_ranges(const char* optimizer, const optim::Hyperparameters& options) {
  for (const char* name :
       {"lr", "eps", "weight_decay", "momentum", "max_grad_norm", "max_coeff", "min_coeff"}) {
    if (options.contains(name) && !(options.number(name) >= 0)) {
      raise<UsageError>(optimizer, ": ", name, " is ", options.number(name),
                        ", expected a number of at least 0");
    }
  }
  if (options.contains("betas")) {
    const auto [beta1, beta2] = options.pair("betas");
    if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1)) {
      raise<UsageError>(optimizer, ": betas are ", beta1, " and ", beta2, ", expected numbers in [0, 1)");
    }
  }
}

[[noreturn]] void reject_amsgrad(const char* optimizer) {
  raise<NotSupportedError>(optimizer,
                           ": amsgrad is true, expected false; use torch::optim::Adam with amsgrad");
}

// Throws if a group overrides an option that must be equal for all groups.
template <class Value>
void check_shared(const char* optimizer, const char* name, const Value& of_group, const Value& of_all) {
  if (of_group != of_all) {
    raise<UsageError>(optimizer, ": ", name,
                      " of a parameter group differs from the optimizer's, which holds for all groups; set "
                      "it only there, or make two optimizers");
  }
}

void check_class_options(const FusedAdamOptions& own, const FusedAdamOptions& defaults) {
  if (own.amsgrad()) reject_amsgrad("FusedAdam");
  check_shared("FusedAdam", "adam_w_mode", own.adam_w_mode(), defaults.adam_w_mode());
  check_shared("FusedAdam", "moment_dtype", own.moment_dtype(), defaults.moment_dtype());
}

void check_class_options(const DeepSpeedCPUAdamOptions& own, const DeepSpeedCPUAdamOptions& defaults) {
  if (own.amsgrad()) reject_amsgrad("DeepSpeedCPUAdam");
  check_shared("DeepSpeedCPUAdam", "adamw_mode", own.adamw_mode(), defaults.adamw_mode());
  check_shared("DeepSpeedCPUAdam", "fp32_optimizer_states", own.fp32_optimizer_states(),
               defaults.fp32_optimizer_states());
}

void check_class_options(const FusedLambOptions& own, const FusedLambOptions&) {
  if (own.amsgrad()) {
    raise<NotSupportedError>("FusedLamb: amsgrad is true, which Lamb does not have; leave it false");
  }
  if (own.min_coeff() > own.max_coeff()) {
    raise<UsageError>("FusedLamb: min_coeff is ", own.min_coeff(), ", expected at most max_coeff, ",
                      own.max_coeff());
  }
}

void check_class_options(const DeepSpeedCPULionOptions& own, const DeepSpeedCPULionOptions& defaults) {
  check_shared("DeepSpeedCPULion", "fp32_optimizer_states", own.fp32_optimizer_states(),
               defaults.fp32_optimizer_states());
}

void check_class_options(const DeepSpeedCPUAdagradOptions& own, const DeepSpeedCPUAdagradOptions& defaults) {
  check_shared("DeepSpeedCPUAdagrad", "fp32_optimizer_states", own.fp32_optimizer_states(),
               defaults.fp32_optimizer_states());
  if (own.amsgrad()) {
    raise<NotSupportedError>(
        "DeepSpeedCPUAdagrad: amsgrad is true, which Adagrad does not have; leave it false");
  }
}

void check_class_options(const MuonOptions& own, const MuonOptions&) {
  kernels::newton_schulz_method(own.ns_method());
}

void check_class_options(const optim::NativeOptions&, const optim::NativeOptions&) {}

void check_is_on_cpu(const char* optimizer, const at::Tensor& parameter) {
  if (!parameter.is_cpu()) {
    raise<UsageError>(optimizer, ": a parameter lies on ", parameter.device(),
                      ", expected CPU; use the class whose name ", "begins with Fused");
  }
}

void check_class_parameter(const DeepSpeedCPUAdamOptions&, const at::Tensor& parameter) {
  check_is_on_cpu("DeepSpeedCPUAdam", parameter);
}

void check_class_parameter(const DeepSpeedCPULionOptions&, const at::Tensor& parameter) {
  check_is_on_cpu("DeepSpeedCPULion", parameter);
}

void check_class_parameter(const DeepSpeedCPUAdagradOptions& own, const at::Tensor& parameter) {
  check_is_on_cpu("DeepSpeedCPUAdagrad", parameter);
  if (parameter.grad().is_sparse() && own.weight_decay() != 0) {
    raise<NotSupportedError>("DeepSpeedCPUAdagrad: a sparse gradient with weight_decay ", own.weight_decay(),
                             ": the decay would reach every row; set it to 0 in a group of its own");
  }
}

void check_class_parameter(const optim::NativeOptions&, const at::Tensor&) {}

}  // namespace

template <class Options>
std::unique_ptr<optim::FlatOptimizer> DeepSpeedOptimizer<Options>::make_flat(Groups groups) const {
  return make_flat_optimizer(own_defaults(), param_groups(), std::move(groups));
}

template <class Options>
void DeepSpeedOptimizer<Options>::check_options(const optim::NativeOptions& options) const {
  const auto* own = dynamic_cast<const Options*>(&options);
  if (own == nullptr) {
    raise<UsageError>(kName<Options>,
                      ": the options of a parameter group are those of another class, expected ",
                      kName<Options>, "Options");
  }
  check_ranges(kName<Options>, own->hyperparameters());
  check_class_options(*own, own_defaults());
}

// Throws for a parameter that the class cannot step. Only Adagrad accepts sparse gradients: it updates an
// element only from its own gradient, so zeros may be filled in.
template <class Options>
void DeepSpeedOptimizer<Options>::check_parameter(const at::Tensor& parameter,
                                                  const optim::NativeOptions& options) const {
  check_class_parameter(static_cast<const Options&>(options), parameter);
  check_supported(parameter, std::is_same_v<Options, DeepSpeedCPUAdagradOptions>);
}

template <class Options>
double DeepSpeedOptimizer<Options>::gradient_scale(const torch::optim::OptimizerParamGroup& group) const {
  if constexpr (std::is_same_v<Options, FusedLambOptions>) {
    const double max_norm = static_cast<const FusedLambOptions&>(group.options()).max_grad_norm();
    if (max_norm > 0) {
      double sum_of_squares = 0;
      for (const at::Tensor& parameter : group.params()) {
        if (parameter.grad().defined()) {
          sum_of_squares += kernels::grad_stats(parameter.grad().detach().contiguous()).sum_of_squares;
        }
      }
      return std::min(1.0, max_norm / (std::sqrt(sum_of_squares) + 1e-6));
    }
  }
  return NativeOptimizer::gradient_scale(group);
}

template class DeepSpeedOptimizer<FusedAdamOptions>;
template class DeepSpeedOptimizer<DeepSpeedCPUAdamOptions>;
template class DeepSpeedOptimizer<FusedLambOptions>;
template class DeepSpeedOptimizer<FusedLionOptions>;
template class DeepSpeedOptimizer<DeepSpeedCPULionOptions>;
template class DeepSpeedOptimizer<DeepSpeedCPUAdagradOptions>;
template class DeepSpeedOptimizer<MuonOptions>;

std::vector<double> FusedLamb::get_lamb_coeffs() const {
  std::vector<double> coeffs;
  const auto* flat = static_cast<const optim::Lamb*>(flat_if_made());
  for (const auto& group : param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (const auto id = find_slice_id(parameter); flat != nullptr && id) {
        const auto own = flat->lamb_coeffs(*id);
        coeffs.insert(coeffs.end(), own.begin(), own.end());
      }
    }
  }
  return coeffs;
}

}  // namespace deepspeed
