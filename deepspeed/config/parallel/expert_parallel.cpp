#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {

std::vector<Field> expert_parallel_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      integer("autoep_size", 1, "Ranks that share the experts.", {at_least(1)}),
      integer("expert_tensor_parallel_size", 1, "Ranks that share one expert.", {at_least(1)}),
      boolean("validate_folding_routing", false, "Check the routing."),
      text("preset_model", nullptr, "A model whose layers are known."),
      text("moe_layer_pattern", nullptr, "Names of the layers."),
      text("expert_pattern", nullptr, "Names of the experts."),
      text("router_pattern", nullptr, "Names of the routers."),
      boolean("use_grouped_mm", true, "One product for all experts."),
      boolean("disable_triton_grouped_mm", false, "Without Triton."),
      boolean("route_norm", nullptr, "Normalise the routing weights."),
      number("route_scale", 1.0, "Multiplies the routing weights."),
      text("score_apply", "auto", "Where the weights act.", {one_of({"auto", "pre", "post"})}),
      text("combine_impl", "auto", "How outputs combine.", {one_of({"auto", "weighted_sum", "legacy_bmm"})}),
      integer("num_expert_groups", nullptr, "Groups of experts."),
      integer("num_limited_groups", nullptr, "Groups that a token may go to."),
      text("score_func", "auto", "Scores from logits.", {one_of({"auto", "softmax", "sigmoid"})}),
      any("top_k", "auto", "Experts of a token."),
      any("load_balance_coeff", nullptr, "Not to be set.",
          {accepted_if([](const Json& value) { return value.is_null(); }, "null and nothing else")}),
      any("routed_scaling_factor", "auto", "Multiplies what the experts give."),
      text("expert_w1", nullptr, "The name of the first weight."),
      text("expert_w2", nullptr, "The name of the second weight."),
      text("expert_w3", nullptr, "The name of the third weight."),
      text("num_experts_attr", nullptr, "The name of the number of experts."),
      text("top_k_attr", nullptr, "The name of top_k."),
      boolean("has_shared_experts", nullptr, "Experts that see every token."),
      text("shared_experts_pattern", nullptr, "Their names."),
      text("shared_experts_gate_pattern", nullptr, "The names of their gates."),
  };
}

}  // namespace deepspeed::config
