// DeepSpeed's own optimizers and those of torch.optim, with their arguments.
#include <algorithm>
#include <utility>

#include "deepspeed/config/table/coerce.h"
#include "deepspeed/config/table/named_type.h"

namespace deepspeed::config {
namespace {

using Fields = std::vector<Field>;

Field rate(double default_value) { return number("lr", default_value, "The learning rate.", {at_least(0)}); }

Field betas(double beta1, double beta2) {
  const auto is_beta = [](const Json& value) {
    return value.is_number() && value.get<double>() >= 0 && value.get<double>() < 1;
  };
  const auto accepts = [is_beta](const Json& value) {
    return value.is_array() && value.size() == 2 && std::all_of(value.begin(), value.end(), is_beta);
  };
  return any("betas", Json::array({beta1, beta2}), "How much of the old moments a step keeps.",
             {accepted_if(accepts, "a list of two numbers in [0, 1)")});
}

Field eps(double default_value) {
  return number("eps", default_value, "Added to the root of the second moment.", {at_least(0)});
}

Field weight_decay(const char* meaning) { return number("weight_decay", 0.0, meaning, {at_least(0)}); }

Field bias_correction() { return boolean("bias_correction", true, "Make up for moments that start at 0."); }

constexpr const char* kDecoupled = "The part of the weights, times lr, that a step takes off them.";
constexpr const char* kL2 = "The part of the weights that is added to the gradient.";

Fields adam_params(Field adam_w_mode) {
  return {
      rate(1e-3),
      betas(0.9, 0.999),
      eps(1e-8),
      weight_decay(
          "The part of the weights that a step takes off them, or adds to the gradient (adam_w_mode); 0.01 "
          "for AdamW with torch_adam."),
      bias_correction(),
      std::move(adam_w_mode),
      boolean("torch_adam", false, "The defaults and arguments of torch.optim's Adam and AdamW."),
      boolean("amsgrad", false, "Divide by the largest second moment so far; needs torch_adam."),
      boolean("fp32_optimizer_states", true,
              "Moments in fp32; false: in bf16, half the memory, rounded stochastically (moment_dtype)."),
      text("moment_dtype", nullptr,
           "The dtype of the moments, fp32 unless told; bf16 is rounded stochastically. Not in DeepSpeed.",
           {one_of({"fp32", "bf16"})}),
  };
}

NamedType adam() {
  return {"Adam", "Adam and, unless adam_w_mode is false, AdamW: one fused pass.",
          adam_params(boolean("adam_w_mode", true,
                              "Decoupled weight decay; false: the decay is added to the gradient.")),
          true};
}

NamedType adamw() {
  return {"AdamW", "Adam with decoupled weight decay: one fused pass.",
          adam_params(
              boolean("adam_w_mode", true, "Of Adam.", {without_effect("AdamW always decouples its decay")})),
          true};
}

NamedType adagrad() {
  return {"Adagrad",
          "torch.optim's Adagrad.",
          {rate(1e-2),
           number("lr_decay", 0.0, "The rate of step t is lr / (1 + (t - 1) lr_decay).", {at_least(0)}),
           weight_decay(kL2),
           number("initial_accumulator_value", 0.0, "Where the sums of squares start.", {at_least(0)}),
           eps(1e-10)},
          true};
}

NamedType lamb() {
  const auto is_false = [](const Json& value) { return as_bool(value) != true; };
  return {"Lamb",
          "Adam with a rate for each parameter, by the ratio of the norms of its weights and its update.",
          {rate(1e-3), bias_correction(), betas(0.9, 0.999), eps(1e-8),
           boolean("eps_inside_sqrt", false, "Add eps under the root."), weight_decay(kDecoupled),
           number("max_coeff", 10.0, "The largest ratio.", {at_least(0)}),
           number("min_coeff", 0.01, "The smallest ratio.", {at_least(0)}),
           boolean("amsgrad", false, "Not a part of Lamb.", {accepted_if(is_false, "")})},
          true,
          true};
}

NamedType lion() {
  return {"Lion",
          "The sign of an interpolated momentum.",
          {rate(1e-3), betas(0.9, 0.999), weight_decay(kDecoupled)},
          true};
}

NamedType muon() {
  return {
      "Muon",
      "Orthogonalized momentum for matrices whose names have neither embed nor lm_head; AdamW for the rest.",
      {number("lr", nullptr, "The rate of both kinds, where they have none of their own.", {at_least(0)}),
       number("muon_lr", nullptr, "The rate of the matrices; lr, else 0.02, where it is absent.",
              {at_least(0)}),
       number("adam_lr", nullptr, "The rate of the rest; lr, else 3e-4, where it is absent.", {at_least(0)}),
       number("momentum", 0.95, "Of the matrices: how much of the old momentum a step keeps.", {at_least(0)}),
       text("ns_method", "gram", "The iteration that orthogonalizes.", {one_of({"gram", "standard"})}),
       betas(0.9, 0.95), eps(1e-10), weight_decay(kDecoupled)},
      true};
}

NamedType sgd() {
  return {"SGD",
          "torch.optim's SGD.",
          {rate(1e-3), number("momentum", 0.0, "How much of the old momentum a step keeps.", {at_least(0)}),
           number("dampening", 0.0, "The part of the gradient that does not reach the momentum."),
           weight_decay(kL2), boolean("nesterov", false, "Nesterov's momentum.")},
          false,
          true};
}

NamedType rmsprop() {
  return {"RMSprop",
          "torch.optim's RMSprop.",
          {rate(1e-2), number("alpha", 0.99, "How much of the old mean square a step keeps.", {at_least(0)}),
           eps(1e-8), weight_decay(kL2),
           number("momentum", 0.0, "How much of the old momentum a step keeps.", {at_least(0)}),
           boolean("centered", false, "Divide by an estimate of the standard deviation.")},
          false,
          true};
}

Field is_off(const char* key, const char* meaning) {
  const auto is_false = [](const Json& value) { return as_bool(value) != true; };
  return boolean(key, false, meaning, {accepted_if(is_false, "")});
}

/// Returns the arguments of a 1-bit optimizer: the common ones, then `own`. Its ranks exchange 1 bit per
/// element.
Fields one_bit_params(std::vector<Field> own) {
  Fields params = {rate(1e-3), betas(0.9, 0.999), eps(1e-8), weight_decay(kDecoupled)};
  for (Field& field : own) params.push_back(std::move(field));
  params.push_back(boolean("bias_correction", true, "Of Adam and Lamb.",
                           {without_effect("1-bit optimizers never make up for moments that start at 0")}));
  params.push_back(is_off("eps_inside_sqrt", "Of other optimizers."));
  params.push_back(is_off("amsgrad", "Not a part of 1-bit optimizers."));
  params.push_back(
      boolean("cuda_aware", false, "Of MPI.", {without_effect("ranks meet over the engine's backend")}));
  params.push_back(text("comm_backend_name", "nccl",
                        "The backend of the exchange: the engine's own, whatever its name.",
                        {accepted_if([](const Json& value) { return value == "nccl"; },
                                     "\"nccl\", for the engine's own backend, or the key left out")}));
  return params;
}

NamedType onebit_adam() {
  return {"OneBitAdam",
          "Adam whose ranks, once the second moments stay as they are, exchange momenta in 1 bit an element.",
          one_bit_params(
              {integer("freeze_step", 100000, "Steps with second moments that change.", {at_least(0)})}),
          true,
          false,
          true,
          1};
}

NamedType onebit_lamb() {
  return {"OneBitLamb",
          "Lamb whose ranks, once second moments and ratios stay as they are, exchange momenta in 1 bit an "
          "element.",
          one_bit_params(
              {integer("freeze_step", 100000, "Steps with second moments that change.", {at_least(1)}),
               number("max_coeff", 10.0, "The largest ratio.", {at_least(0)}),
               number("min_coeff", 0.01, "The smallest ratio.", {at_least(0)}),
               number("coeff_beta", 0.9, "How much of a ratio's old average a step keeps, up to freeze_step.",
                      {between(0, 1)}),
               number("factor_max", 4.0, "The largest factor of a ratio behind freeze_step.", {at_least(0)}),
               number("factor_min", 0.5, "The smallest factor.", {at_least(0)}),
               number("factor_threshold", 0.1, "How much a step may change the factor, relatively.",
                      {between(0, 1)})}),
          true,
          false,
          true,
          1};
}

NamedType zero_one_adam() {
  return {
      "ZeroOneAdam",
      "Adam whose ranks exchange gradients in 1 bit an element, and later, ever more rarely, what steps of "
      "their own have changed.",
      one_bit_params(
          {integer("var_freeze_step", 100000, "The last step that may change the second moments.",
                   {at_least(1)}),
           integer("var_update_scaler", 16,
                   "Changes of the second moments after which they come half as often.", {at_least(1)}),
           integer("local_step_scaler", 32678,
                   "Steps of ranks' own after which these exchange half as often.", {at_least(1)}),
           integer("local_step_clipper", 16, "The most steps from one exchange to the next.",
                   {at_least(1)})}),
      true,
      false,
      true,
      0};
}

}  // namespace

const std::vector<NamedType>& optimizer_types() {
  static const std::vector<NamedType> types = {adam(),        adamw(),       adagrad(),      lamb(),
                                               lion(),        muon(),        sgd(),          rmsprop(),
                                               onebit_adam(), onebit_lamb(), zero_one_adam()};
  return types;
}

}  // namespace deepspeed::config
