#include "deepspeed/config/precision.h"

namespace deepspeed::config {

const Table<Fp16Config>& fp16_table() {
  using C = Fp16Config;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Train in float16 with loss scaling."),
      entry("auto_cast", &C::auto_cast, "Cast the floating-point inputs of forward to float16.", {not_yet()}),
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
            "Keep master weights and gradients in float16 too; needs ZeRO.", {not_yet()}),
  });
  return table;
}

const Table<Bf16Config>& bf16_table() {
  using C = Bf16Config;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Train in bfloat16."),
      entry("immediate_grad_update", &C::immediate_grad_update,
            "Add each gradient to its float32 sum as soon as backward has made it.", {not_yet()}),
      entry("check_grad_overflow", &C::check_grad_overflow, "Skip steps whose gradients are not finite."),
      entry("bf16_master_weights_and_grads", &C::bf16_master_weights_and_grads,
            "Keep master weights and gradients in bfloat16 too; needs ZeRO.", {not_yet()}),
      entry("bf16_optimizer_states", &C::bf16_optimizer_states,
            "Keep the optimizer's state in bfloat16; needs bf16_master_weights_and_grads.", {not_yet()}),
  });
  return table;
}

}  // namespace deepspeed::config
