// Turns the config section `optimizer` into an optimizer.
//
// The type is looked up in the config's table (config/training/optimizer_types.cpp). fail_type() refuses an
// unknown one with the reason or the nearest name. read_arguments() reads the arguments against the type's
// table, which checks names and ranges and fills in defaults. Each make_...() function checks combinations of
// arguments, writes them into groups that have no value of their own (set_group_options()), and constructs
// the class.
#include "deepspeed/optim/factory.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/named_type.h"
#include "deepspeed/config/table/nearest_key.h"
#include "deepspeed/config/table/read.h"
#include "deepspeed/optim/algorithms/adagrad.h"
#include "deepspeed/optim/algorithms/adam.h"
#include "deepspeed/optim/algorithms/lamb.h"
#include "deepspeed/optim/algorithms/lion.h"
#include "deepspeed/optim/algorithms/muon.h"
#include "deepspeed/optim/algorithms/onebit_adam.h"
#include "deepspeed/optim/algorithms/onebit_lamb.h"
#include "deepspeed/optim/algorithms/sgd.h"
#include "deepspeed/optim/algorithms/zero_one_adam.h"
#include "deepspeed/optim/slices/slice_states.h"
#include "deepspeed/optim/torch/torch_optimizer.h"

namespace deepspeed::optim {
namespace {

constexpr const char* kOptimizerParamsPath = "optimizer.params";
using Groups = std::vector<ParamGroup>;

// Holds the arguments of one optimizer, read against its table.
struct OptimizerArguments {
  Json values;  // every key of the table, with its default if none was given; null: no value
  Json given;
  bool on_host = false;  // the steps run on the host

  bool is_given(const char* key) const {
    return given.is_object() && given.contains(key) && !given[key].is_null();
  }
  double number(const char* key) const { return values[key].get<double>(); }
  bool flag(const char* key) const { return values[key].get<bool>(); }
  std::optional<double> maybe_number(const char* key) const {
    return values[key].is_null() ? std::nullopt : std::optional(number(key));
  }
};

template <class... Parts>
[[noreturn]] void fail_argument(const char* key, const Parts&... parts) {
  raise<ConfigError>(kOptimizerParamsPath, ".", key, ": ", parts...);
}

OptimizerArguments read_arguments(const config::NamedType& type, const Json& given, bool on_host) {
  const OptimizerArguments raw{{}, given, on_host};
  if (raw.is_given("max_grad_norm")) {
    fail_argument("max_grad_norm",
                  "is not a parameter of the optimizer; set gradient_clipping at the top level");
  }
  return {config::read_params(type, given, kOptimizerParamsPath), given, on_host};
}

HyperparameterValue hyperparameter(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) return std::pair{value[0].get<double>(), value[1].get<double>()};
  return value.get<double>();
}

// Sets the named arguments as options of all groups that have none of their own.
void set_group_options(Groups& groups, const OptimizerArguments& arguments,
                       std::initializer_list<const char*> keys) {
  for (const char* key : keys) set_defaults(groups, {{key, hyperparameter(arguments.values[key])}});
}

at::ScalarType moment_dtype(const OptimizerArguments& arguments) {
  const bool narrow = !arguments.flag("fp32_optimizer_states");
  if (!arguments.is_given("moment_dtype")) return narrow ? at::kBFloat16 : at::kFloat;
  const bool bf16 = arguments.values["moment_dtype"] == "bf16";
  if (arguments.is_given("fp32_optimizer_states") && bf16 != narrow) {
    fail_argument("fp32_optimizer_states", arguments.values["fp32_optimizer_states"].dump(),
                  " contradicts moment_dtype ", arguments.values["moment_dtype"].dump(),
                  "; leave one of them out");
  }
  return bf16 ? at::kBFloat16 : at::kFloat;
}

// With torch_adam DeepSpeed uses torch's own classes. torch's AdamW has a default weight decay of 0.01.
std::unique_ptr<Optimizer> make_adam(bool type_is_adamw, OptimizerArguments arguments, Groups groups) {
  AdamOptions options;
  const bool torch_adam = arguments.flag("torch_adam");
  if (arguments.on_host) options.class_name = "DeepSpeedCPUAdam";
  options.adamw_mode = arguments.flag("adam_w_mode") || type_is_adamw;
  options.moment_dtype = moment_dtype(arguments);
  options.amsgrad = arguments.flag("amsgrad");
  if (torch_adam) {
    options.class_name = options.adamw_mode ? "AdamW" : "Adam";
    if (arguments.is_given("bias_correction"))
      fail_argument("bias_correction",
                    "is not accepted together with torch_adam, which always corrects; leave it out");
    if (options.adamw_mode && !arguments.is_given("weight_decay")) arguments.values["weight_decay"] = 0.01;
  }
  if (options.amsgrad && !torch_adam) {
    fail_argument("amsgrad", "true is not supported by the fused Adam; it needs \"torch_adam\": true");
  }
  if (options.amsgrad && options.moment_dtype != at::kFloat) {
    fail_argument("amsgrad", "true needs moments in fp32; leave moment_dtype and fp32_optimizer_states out");
  }
  set_group_options(groups, arguments, {"lr", "bias_correction", "betas", "eps", "weight_decay"});
  return std::make_unique<Adam>(std::move(groups), options);
}

std::unique_ptr<Optimizer> make_plain_adam(const OptimizerArguments& arguments, Groups groups) {
  return make_adam(false, arguments, std::move(groups));
}

std::unique_ptr<Optimizer> make_adamw(const OptimizerArguments& arguments, Groups groups) {
  return make_adam(true, arguments, std::move(groups));
}

std::unique_ptr<Optimizer> make_onebit_adam(const OptimizerArguments& arguments, Groups groups) {
  set_group_options(groups, arguments, {"lr", "betas", "eps", "weight_decay"});
  return std::make_unique<OneBitAdam>(std::move(groups), arguments.values["freeze_step"].get<int64_t>());
}

std::unique_ptr<Optimizer> make_zero_one_adam(const OptimizerArguments& arguments, Groups groups) {
  set_group_options(groups, arguments, {"lr", "betas", "eps", "weight_decay"});
  const auto steps = [&](const char* key) { return arguments.values[key].get<int64_t>(); };
  return std::make_unique<ZeroOneAdam>(
      std::move(groups), ZeroOneOptions{steps("var_freeze_step"), steps("var_update_scaler"),
                                        steps("local_step_scaler"), steps("local_step_clipper")});
}

std::unique_ptr<Optimizer> make_sgd(const OptimizerArguments& arguments, Groups groups) {
  if (arguments.flag("nesterov") &&
      (arguments.number("momentum") == 0 || arguments.number("dampening") != 0)) {
    fail_argument("nesterov", "needs a momentum above 0 and a dampening of 0");
  }
  set_group_options(groups, arguments, {"lr", "momentum", "dampening", "weight_decay", "nesterov"});
  return std::make_unique<Sgd>(std::move(groups));
}

std::unique_ptr<Optimizer> make_lion(const OptimizerArguments& arguments, Groups groups) {
  set_group_options(groups, arguments, {"lr", "betas", "weight_decay"});
  return std::make_unique<Lion>(std::move(groups), arguments.on_host ? "DeepSpeedCPULion" : "FusedLion");
}

std::unique_ptr<Optimizer> make_adagrad(const OptimizerArguments& arguments, Groups groups) {
  set_group_options(groups, arguments,
                    {"lr", "lr_decay", "weight_decay", "eps", "initial_accumulator_value"});
  return std::make_unique<Adagrad>(std::move(groups));
}

std::unique_ptr<Optimizer> make_rmsprop(const OptimizerArguments& arguments, Groups groups) {
  set_group_options(groups, arguments, {"lr", "alpha", "eps", "weight_decay", "momentum", "centered"});
  return make_torch_rmsprop(std::move(groups));
}

void check_order(const OptimizerArguments& arguments, const char* smaller, const char* larger) {
  if (arguments.number(smaller) <= arguments.number(larger)) return;
  fail_argument(smaller, arguments.number(smaller), ", expected at most ", larger, ", ",
                arguments.number(larger));
}

std::unique_ptr<Optimizer> make_lamb(const OptimizerArguments& arguments, Groups groups) {
  check_order(arguments, "min_coeff", "max_coeff");
  set_group_options(
      groups, arguments,
      {"lr", "bias_correction", "betas", "eps", "eps_inside_sqrt", "weight_decay", "max_coeff", "min_coeff"});
  return std::make_unique<Lamb>(std::move(groups));
}

std::unique_ptr<Optimizer> make_onebit_lamb(const OptimizerArguments& arguments, Groups groups) {
  check_order(arguments, "min_coeff", "max_coeff");
  check_order(arguments, "factor_min", "factor_max");
  set_group_options(groups, arguments, {"lr", "betas", "eps", "weight_decay", "max_coeff", "min_coeff"});
  OneBitLambOptions options;
  options.freeze_step = arguments.values["freeze_step"].get<int64_t>();
  options.coeff_beta = arguments.number("coeff_beta");
  options.factor_max = arguments.number("factor_max");
  options.factor_min = arguments.number("factor_min");
  options.factor_threshold = arguments.number("factor_threshold");
  return std::make_unique<OneBitLamb>(std::move(groups), options);
}

// Gives each Muon group only the options that its use_muon asks for. Learning rates missing in the config get
// Muon's own defaults.
std::unique_ptr<Optimizer> make_muon(const OptimizerArguments& arguments, Groups groups) {
  const auto set_rate = [&](Groups& one, const char* option, const char* own) {
    const auto given = arguments.maybe_number(own), lr = arguments.maybe_number("lr");
    if (given || lr) set_defaults(one, {{option, given ? *given : *lr}});
  };
  for (ParamGroup& group : groups) {
    Groups one{std::move(group)};
    const bool decided = one[0].options.contains("use_muon");
    if (!decided || one[0].options.flag("use_muon")) {
      set_rate(one, "lr", "muon_lr");
      set_group_options(one, arguments, {"momentum", "weight_decay", "ns_method"});
    }
    if (!decided || !one[0].options.flag("use_muon")) {
      set_rate(one, decided ? "lr" : "adam_lr", "adam_lr");
      set_group_options(one, arguments, {"betas", "eps", "weight_decay"});
    }
    group = std::move(one[0]);
  }
  return std::make_unique<Muon>(std::move(groups));
}

using MakeOptimizer = std::unique_ptr<Optimizer> (*)(const OptimizerArguments&, Groups);

const std::map<std::string, MakeOptimizer>& optimizer_makers() {
  static const std::map<std::string, MakeOptimizer> optimizer_makers = {{"Adam", make_plain_adam},
                                                                        {"AdamW", make_adamw},
                                                                        {"Adagrad", make_adagrad},
                                                                        {"Lamb", make_lamb},
                                                                        {"Lion", make_lion},
                                                                        {"Muon", make_muon},
                                                                        {"SGD", make_sgd},
                                                                        {"RMSprop", make_rmsprop},
                                                                        {"OneBitAdam", make_onebit_adam},
                                                                        {"OneBitLamb", make_onebit_lamb},
                                                                        {"ZeroOneAdam", make_zero_one_adam}};
  return optimizer_makers;
}

std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Returns why a documented type cannot be made; nullopt for a type unknown to DeepSpeed and torch.
std::optional<std::string> reason_against(const std::string& type) {
  static const std::vector<std::string> not_yet = {"muadam", "muadamw", "musgd"};
  static const std::vector<std::string> torch_in_python = {"Adadelta", "Adafactor", "Adamax", "ASGD",
                                                           "NAdam",    "RAdam",     "Rprop",  "SparseAdam"};
  if (std::find(not_yet.begin(), not_yet.end(), lowercase(type)) != not_yet.end())
    return "is not supported yet";
  if (std::find(torch_in_python.begin(), torch_in_python.end(), type) != torch_in_python.end()) {
    return "is a class of torch.optim in Python that LibTorch does not have: it has Adagrad, Adam, AdamW, "
           "LBFGS, RMSprop and SGD";
  }
  if (type == "LBFGS") return "evaluates the loss within its step, which an engine cannot";
  return std::nullopt;
}

[[noreturn]] void fail_type(const std::string& type) {
  const auto names = config::type_names(config::optimizer_types());
  const std::string nearest = config::nearest_key(type, names);
  const std::string is_unknown =
      "is unknown" + (nearest.empty() ? "" : message(", did you mean \"", nearest, "\"?"));
  raise<ConfigError>("optimizer.type: \"", type, "\" ", reason_against(type).value_or(is_unknown),
                     "; by name there are ", join_names(names),
                     ", and any torch::optim::Optimizer may be passed to initialize()");
}

}  // namespace

bool is_adam(const std::string& type) { return lowercase(type) == "adam" || lowercase(type) == "adamw"; }

bool is_muon(const std::string& type) { return lowercase(type) == "muon"; }

std::unique_ptr<Optimizer> make_optimizer(const std::string& type, const Json& params, Groups groups,
                                          bool on_host) {
  const config::NamedType* named = config::find_type(config::optimizer_types(), type);
  if (named == nullptr) fail_type(type);
  return optimizer_makers().at(named->name)(read_arguments(*named, params, on_host), std::move(groups));
}

}  // namespace deepspeed::optim
