#include "deepspeed/optim/factory.h"

#include <algorithm>
#include <cctype>

#include "deepspeed/base/error.h"
#include "deepspeed/config/nearest_key.h"
#include "deepspeed/optim/adam.h"
#include "deepspeed/optim/json_params.h"
#include "deepspeed/optim/sgd.h"

namespace deepspeed::optim {
namespace {

const std::vector<std::string> kSupported = {"Adam", "AdamW", "SGD"};
// Types of DeepSpeed and torch that are known but not there yet, lower-cased.
const std::vector<std::string> kKnown = {"lamb",   "lion",    "muon",  "adagrad", "onebitadam", "onebitlamb",
                                         "muadam", "muadamw", "musgd", "rmsprop", "adadelta",   "zerooneadam",
                                         "adamax", "nadam",   "radam", "asgd",    "lbfgs",      "rprop"};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void set_default(std::vector<ParamGroup>& groups, const std::string& name, const HyperparameterValue& value) {
  for (ParamGroup& group : groups) {
    if (!group.options.contains(name)) {
      group.options.set(name, value);
    }
  }
}

double non_negative(JsonParams& params, const std::string& key, double fallback) {
  const double value = params.number(key, fallback);
  if (!(value >= 0)) {
    params.fail(key, message(value, ", expected a number of at least 0"));
  }
  return value;
}

std::pair<double, double> betas(JsonParams& params) {
  const auto value = params.pair("betas", {0.9, 0.999});
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
  if (params.flag("amsgrad", false)) {
    params.fail("amsgrad", "true is not supported");
  }
  set_default(groups, "lr", non_negative(params, "lr", 1e-3));
  set_default(groups, "bias_correction", params.flag("bias_correction", true));
  set_default(groups, "betas", betas(params));
  set_default(groups, "eps", non_negative(params, "eps", 1e-8));
  set_default(groups, "weight_decay",
              non_negative(params, "weight_decay", torch_adam && options.adamw_mode ? 0.01 : 0.0));
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
  set_default(groups, "lr", non_negative(params, "lr", 1e-3));
  set_default(groups, "momentum", momentum);
  set_default(groups, "dampening", dampening);
  set_default(groups, "weight_decay", non_negative(params, "weight_decay", 0));
  set_default(groups, "nesterov", nesterov);
  params.reject_unknown();
  return std::make_unique<Sgd>(std::move(groups));
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const std::string& type, const Json& params,
                                          std::vector<ParamGroup> groups) {
  const std::string name = lower(type);
  if (name == "adam" || name == "adamw") {
    return make_adam(name == "adamw", params, std::move(groups));
  }
  if (type == "SGD") {
    return make_sgd(params, std::move(groups));
  }
  if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) {
    raise<ConfigError>("config", "optimizer.type: \"", type,
                       "\" is not supported yet; supported are Adam, AdamW, SGD, ",
                       "and any torch::optim::Optimizer passed as an object");
  }
  const std::string nearest = config::nearest_key(type, kSupported);
  raise<ConfigError>("config", "optimizer.type: \"", type, "\" is unknown",
                     nearest.empty() ? "" : message(", did you mean \"", nearest, "\"?"));
}

}  // namespace deepspeed::optim
