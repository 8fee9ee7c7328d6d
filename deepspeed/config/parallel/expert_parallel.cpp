#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {

const Table<ExpertParallelConfig>& expert_parallel_table() {
  using C = ExpertParallelConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("autoep_size", &C::autoep_size, "Ranks that share the experts.", {at_least(1)}),
      entry("expert_tensor_parallel_size", &C::expert_tensor_parallel_size, "Ranks that share one expert.",
            {at_least(1)}),
      entry("validate_folding_routing", &C::validate_folding_routing, "Check the routing."),
      entry("preset_model", &C::preset_model, "A model whose layers are known."),
      entry("moe_layer_pattern", &C::moe_layer_pattern, "Names of the layers."),
      entry("expert_pattern", &C::expert_pattern, "Names of the experts."),
      entry("router_pattern", &C::router_pattern, "Names of the routers."),
      entry("use_grouped_mm", &C::use_grouped_mm, "One product for all experts."),
      entry("disable_triton_grouped_mm", &C::disable_triton_grouped_mm, "Without Triton."),
      entry("route_norm", &C::route_norm, "Normalise the routing weights."),
      entry("route_scale", &C::route_scale, "Multiplies the routing weights."),
      entry("score_apply", &C::score_apply, "Where the weights act.", {one_of({"auto", "pre", "post"})}),
      entry("combine_impl", &C::combine_impl, "How outputs combine.",
            {one_of({"auto", "weighted_sum", "legacy_bmm"})}),
      entry("num_expert_groups", &C::num_expert_groups, "Groups of experts."),
      entry("num_limited_groups", &C::num_limited_groups, "Groups that a token may go to."),
      entry("score_func", &C::score_func, "Scores from logits.", {one_of({"auto", "softmax", "sigmoid"})}),
      any_entry("top_k", &C::top_k, "Experts of a token."),
      any_entry("load_balance_coeff", &C::load_balance_coeff, "Not to be set.",
                {accepted_if([](const Json& value) { return value.is_null(); }, "null and nothing else")}),
      any_entry("routed_scaling_factor", &C::routed_scaling_factor, "Multiplies what the experts give."),
      entry("expert_w1", &C::expert_w1, "The name of the first weight."),
      entry("expert_w2", &C::expert_w2, "The name of the second weight."),
      entry("expert_w3", &C::expert_w3, "The name of the third weight."),
      entry("num_experts_attr", &C::num_experts_attr, "The name of the number of experts."),
      entry("top_k_attr", &C::top_k_attr, "The name of top_k."),
      entry("has_shared_experts", &C::has_shared_experts, "Experts that see every token."),
      entry("shared_experts_pattern", &C::shared_experts_pattern, "Their names."),
      entry("shared_experts_gate_pattern", &C::shared_experts_gate_pattern, "The names of their gates."),
  });
  return table;
}

}  // namespace deepspeed::config
