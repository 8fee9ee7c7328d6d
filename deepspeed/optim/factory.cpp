#include "deepspeed/optim/factory.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/nearest_key.h"
#include "deepspeed/optim/adagrad.h"
#include "deepspeed/optim/adam.h"
#include "deepspeed/optim/json_params.h"
#include "deepspeed/optim/lamb.h"
#include "deepspeed/optim/lion.h"
#include "deepspeed/optim/muon.h"
#include "deepspeed/optim/sgd.h"
#include "deepspeed/optim/slice_states.h"

namespace deepspeed::optim {
namespace {

const std::vector<std::string> kSupported = {"Adam", "AdamW", "Adagrad", "Lamb", "Lion", "Muon", "SGD"};
// Types of DeepSpeed and torch that are known but not there yet, lower-cased.
const std::vector<std::string> kKnown = {"onebitadam", "onebitlamb", "muadam",      "muadamw", "musgd",
                                         "rmsprop",    "adadelta",   "zerooneadam", "adamax",  "nadam",
                                         "radam",      "asgd",       "lbfgs",       "rprop"};

double non_negative(JsonParams& params, const std::string& key, double fallback) {
  const double value = params.number(key, fallback);
  if (!(value >= 0)) {
    params.fail(key, message(value, ", expected a number of at least 0"));
  }
  return value;
}

std::pair<double, double> betas(JsonParams& params, std::pair<double, double> fallback = {0.9, 0.999}) {
  const auto value = params.pair("betas", fallback);
  for (const double beta : {value.first, value.second}) {
    if (!(beta >= 0 && beta < 1)) {
      params.fail("betas", message(beta, ", expected numbers in [0, 1)"));
    }
  }
  return value;
}

void reject_max_grad_norm(JsonParams& params) {
  if (params.contains("max_grad_norm")) {
    params.fail("max_grad_norm",
                "is not a parameter of the optimizer; set gradient_clipping at the top level");
  }
}

at::ScalarType moment_dtype(JsonParams& params) {
  const std::string name = params.text("moment_dtype", "fp32");
  if (name != "fp32" && name != "bf16") {
    params.fail("moment_dtype", message("'", name, "', expected \"fp32\" or \"bf16\""));
  }
  if (!params.flag("fp32_optimizer_states", true)) {
    params.fail("fp32_optimizer_states",
                "false is not supported yet; \"moment_dtype\": \"bf16\" halves the states");
  }
  return name == "bf16" ? at::kBFloat16 : at::kFloat;
}

// With torch_adam DeepSpeed takes torch's own classes, whose AdamW has a weight decay of 0.01 by default.
std::unique_ptr<Optimizer> make_adam(bool type_is_adamw, const Json& json, std::vector<ParamGroup> groups) {
  JsonParams params("optimizer.params", json);
  reject_max_grad_norm(params);
  AdamOptions options;
  const bool torch_adam = params.flag("torch_adam", false);
  options.adamw_mode = params.flag("adam_w_mode", true) || type_is_adamw;
  options.moment_dtype = moment_dtype(params);
  if (torch_adam) {
    options.class_name = options.adamw_mode ? "AdamW" : "Adam";
    if (params.contains("bias_correction")) {
      params.fail("bias_correction", "is not accepted together with torch_adam");
    }
  }
  options.amsgrad = params.flag("amsgrad", false);
  if (options.amsgrad && !torch_adam) {
    params.fail("amsgrad", "true is not supported by the fused Adam; it needs \"torch_adam\": true");
  }
  if (options.amsgrad && options.moment_dtype != at::kFloat) {
    params.fail("amsgrad", "true needs \"moment_dtype\": \"fp32\"");
  }
  set_defaults(groups, {{"lr", non_negative(params, "lr", 1e-3)},
                        {"bias_correction", params.flag("bias_correction", true)},
                        {"betas", betas(params)},
                        {"eps", non_negative(params, "eps", 1e-8)},
                        {"weight_decay", non_negative(params, "weight_decay",
                                                      torch_adam && options.adamw_mode ? 0.01 : 0.0)}});
  params.reject_unknown();
  return std::make_unique<Adam>(std::move(groups), options);
}

std::unique_ptr<Optimizer> make_sgd(const Json& json, std::vector<ParamGroup> groups) {
  JsonParams params("optimizer.params", json);
  reject_max_grad_norm(params);
  const bool nesterov = params.flag("nesterov", false);
  const double momentum = non_negative(params, "momentum", 0);
  const double dampening = params.number("dampening", 0);
  if (nesterov && (momentum == 0 || dampening != 0)) {
    params.fail("nesterov", "needs a momentum above 0 and a dampening of 0");
  }
  set_defaults(groups, {{"lr", non_negative(params, "lr", 1e-3)},
                        {"momentum", momentum},
                        {"dampening", dampening},
                        {"weight_decay", non_negative(params, "weight_decay", 0)},
                        {"nesterov", nesterov}});
  params.reject_unknown();
  return std::make_unique<Sgd>(std::move(groups));
}

std::unique_ptr<Optimizer> make_lion(const Json& json, std::vector<ParamGroup> groups) {
  JsonParams params("optimizer.params", json);
  reject_max_grad_norm(params);
  set_defaults(groups, {{"lr", non_negative(params, "lr", 1e-3)},
                        {"betas", betas(params)},
                        {"weight_decay", non_negative(params, "weight_decay", 0)}});
  params.reject_unknown();
  return std::make_unique<Lion>(std::move(groups));
}

std::unique_ptr<Optimizer> make_adagrad(const Json& json, std::vector<ParamGroup> groups) {
  JsonParams params("optimizer.params", json);
  reject_max_grad_norm(params);
  set_defaults(groups, {{"lr", non_negative(params, "lr", 1e-2)},
                        {"lr_decay", non_negative(params, "lr_decay", 0)},
                        {"weight_decay", non_negative(params, "weight_decay", 0)},
                        {"eps", non_negative(params, "eps", 1e-10)},
                        {"initial_accumulator_value", non_negative(params, "initial_accumulator_value", 0)}});
  params.reject_unknown();
  return std::make_unique<Adagrad>(std::move(groups));
}

std::unique_ptr<Optimizer> make_lamb(const Json& json, std::vector<ParamGroup> groups) {
  JsonParams params("optimizer.params", json);
  reject_max_grad_norm(params);
  if (params.flag("amsgrad", false)) {
    params.fail("amsgrad", "true is not supported by Lamb");
  }
  const double max_coeff = non_negative(params, "max_coeff", 10.0);
  const double min_coeff = non_negative(params, "min_coeff", 0.01);
  if (min_coeff > max_coeff) {
    params.fail("min_coeff", message(min_coeff, ", expected at most max_coeff, ", max_coeff));
  }
  set_defaults(groups, {{"lr", non_negative(params, "lr", 1e-3)},
                        {"bias_correction", params.flag("bias_correction", true)},
                        {"betas", betas(params)},
                        {"eps", non_negative(params, "eps", 1e-8)},
                        {"eps_inside_sqrt", params.flag("eps_inside_sqrt", false)},
                        {"weight_decay", non_negative(params, "weight_decay", 0)},
                        {"max_coeff", max_coeff},
                        {"min_coeff", min_coeff}});
  params.reject_unknown();
  return std::make_unique<Lamb>(std::move(groups));
}

// What a group of Muon takes depends on its use_muon; what it does not take stays out of it.
void set_muon_defaults(JsonParams& params, std::vector<ParamGroup>& groups) {
  const double muon_lr = non_negative(params, "muon_lr", non_negative(params, "lr", 0.02));
  const double adam_lr = non_negative(params, "adam_lr", non_negative(params, "lr", 3e-4));
  const double momentum = non_negative(params, "momentum", 0.95);
  const double weight_decay = non_negative(params, "weight_decay", 0);
  const auto adam_betas = betas(params, {0.9, 0.95});
  const double eps = non_negative(params, "eps", 1e-10);
  const std::string method = params.text("ns_method", "gram");
  if (method != "gram" && method != "standard") {
    params.fail("ns_method", message("'", method, "', expected \"gram\" or \"standard\""));
  }
  for (ParamGroup& group : groups) {
    std::vector<ParamGroup> one{std::move(group)};
    const bool decided = one[0].options.contains("use_muon");
    if (!decided || one[0].options.flag("use_muon")) {
      set_defaults(
          one,
          {{"lr", muon_lr}, {"momentum", momentum}, {"weight_decay", weight_decay}, {"ns_method", method}});
    }
    if (!decided || !one[0].options.flag("use_muon")) {
      set_defaults(one, {{decided ? "lr" : "adam_lr", adam_lr},
                         {"betas", adam_betas},
                         {"eps", eps},
                         {"weight_decay", weight_decay}});
    }
    group = std::move(one[0]);
  }
}

std::unique_ptr<Optimizer> make_muon(const Json& json, std::vector<ParamGroup> groups) {
  JsonParams params("optimizer.params", json);
  reject_max_grad_norm(params);
  set_muon_defaults(params, groups);
  params.reject_unknown();
  return std::make_unique<Muon>(std::move(groups));
}

using Make = std::unique_ptr<Optimizer> (*)(const Json& params, std::vector<ParamGroup> groups);

// DeepSpeed's own types, lower-cased, but for Adam.
Make find_native(const std::string& name) {
  static const std::map<std::string, Make> native = {
      {"lion", make_lion}, {"adagrad", make_adagrad}, {"lamb", make_lamb}, {"muon", make_muon}};
  const auto it = native.find(name);
  return it == native.end() ? nullptr : it->second;
}

}  // namespace

bool is_adam(const std::string& type) { return lowercase(type) == "adam" || lowercase(type) == "adamw"; }

bool is_muon(const std::string& type) { return lowercase(type) == "muon"; }

std::unique_ptr<Optimizer> make_optimizer(const std::string& type, const Json& params,
                                          std::vector<ParamGroup> groups) {
  const std::string name = lowercase(type);
  if (is_adam(type)) {
    return make_adam(name == "adamw", params, std::move(groups));
  }
  if (const Make make = find_native(name)) {
    return make(params, std::move(groups));
  }
  if (type == "SGD") {
    return make_sgd(params, std::move(groups));
  }
  if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) {
    raise<ConfigError>("config", "optimizer.type: \"", type,
                       "\" is not supported yet; supported are Adam, AdamW, Adagrad, Lamb, Lion, Muon, SGD, ",
                       "and any torch::optim::Optimizer passed as an object");
  }
  const std::string nearest = config::nearest_key(type, kSupported);
  raise<ConfigError>("config", "optimizer.type: \"", type, "\" is unknown",
                     nearest.empty() ? "" : message(", did you mean \"", nearest, "\"?"));
}

}  // namespace deepspeed::optim
