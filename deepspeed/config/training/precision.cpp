#include <algorithm>
#include <cctype>
#include <utility>

#include "deepspeed/base/text.h"
#include "deepspeed/config/training/tables.h"

namespace deepspeed::config {
namespace {

/// Returns the short name of a dtype that has several: "fp16" for "torch.float16".
Json short_dtype(const Json& given) {
  if (!given.is_string()) return given;
  const std::string name = lowercase(given.get<std::string>());
  static const std::pair<const char*, const char*> kSpellings[] = {
      {"float32", "fp32"}, {"float", "fp32"},         {"torch.float32", "fp32"}, {"float16", "fp16"},
      {"half", "fp16"},    {"torch.float16", "fp16"}, {"bfloat16", "bf16"},      {"torch.bfloat16", "bf16"}};
  for (const auto& [spelling, short_name] : kSpellings) {
    if (name == spelling) return short_name;
  }
  return given;
}

/// Returns the option of a key that takes a dtype. Any documented spelling is accepted, the short one is
/// stored.
Option a_dtype() {
  return [](Field& field) {
    one_of({"fp32", "fp16", "bf16"})(field);
    normalized_by(short_dtype)(field);
  };
}

}  // namespace

const Table<Fp16Section>& fp16_table() {
  using C = Fp16Section;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Train in float16 with loss scaling."),
      entry("auto_cast", &C::auto_cast, "Cast the floating-point inputs of forward to float16."),
      entry("loss_scale", &C::loss_scale, "The loss scale; 0 adapts it to the gradients as training goes.",
            {at_least(0), no_truth_value()}),
      entry("initial_scale_power", &C::initial_scale_power, "A dynamic scale starts at 2 to this power.",
            {between(0, 127)}),
      entry("loss_scale_window", &C::loss_scale_window,
            "Steps without overflow after which the scale doubles.", {no_truth_value()}),
      entry("hysteresis", &C::hysteresis, "Overflows that it takes to halve the scale.", {at_least(1)}),
      entry("consecutive_hysteresis", &C::consecutive_hysteresis,
            "A step without overflow starts the count of hysteresis again."),
      entry("min_loss_scale", &C::min_loss_scale, "A dynamic scale does not fall below this.",
            {no_truth_value()}),
      entry("fp16_master_weights_and_grads", &C::fp16_master_weights_and_grads,
            "Keep master weights and gradients in float16 too; needs ZeRO and offload_optimizer."),
  });
  return table;
}

const Table<Bf16Config>& bf16_table() {
  using C = Bf16Config;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Train in bfloat16."),
      entry("immediate_grad_update", &C::immediate_grad_update,
            "Add each gradient to a float32 sum as soon as backward has made it."),
      entry("check_grad_overflow", &C::check_grad_overflow, "Skip steps whose gradients are not finite."),
      entry("bf16_master_weights_and_grads", &C::bf16_master_weights_and_grads,
            "Keep master weights and gradients in bfloat16 too; needs ZeRO, and bf16_optimizer_states or "
            "offload_optimizer."),
      entry("bf16_optimizer_states", &C::bf16_optimizer_states,
            "Keep the moments of Adam in bfloat16; needs bf16_master_weights_and_grads."),
      entry("split_master_weights", &C::split_master_weights,
            "Keep of each float32 master weight the lower half alone, beside the model's weight as the upper "
            "one: exact, 2 bytes a parameter less; Adam and AdamW."),
  });
  return table;
}

const Table<AmpConfig>& amp_table() {
  using C = AmpConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.",
            {required(), never("Apex is a Python package; torch_autocast or fp16 takes its place")}),
  });
  return table;
}

const Table<TorchAutocastConfig>& torch_autocast_table() {
  using C = TorchAutocastConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on."),
      entry("dtype", &C::dtype, "The lower precision; float16, torch.float16, ... mean the same.",
            {a_dtype()}),
      entry("lower_precision_safe_modules", &C::lower_precision_safe_modules,
            "Classes of modules whose gradients are reduced in it."),
  });
  return table;
}

const Table<DataTypesConfig>& data_types_table() {
  using C = DataTypesConfig;
  static const Table<C> table({
      entry("grad_accum_dtype", &C::grad_accum_dtype, "Of accumulated gradients; null: the model's.",
            {a_dtype()}),
      entry("param_dtype", &C::param_dtype, "Of parameters, as fp16 and bf16 say it.", {a_dtype()}),
      entry("buffer_dtype", &C::buffer_dtype, "Of floating-point buffers; null: as they are.", {a_dtype()}),
  });
  return table;
}

}  // namespace deepspeed::config
