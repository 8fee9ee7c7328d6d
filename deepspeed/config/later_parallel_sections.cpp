#include "deepspeed/config/later_sections.h"

namespace deepspeed::config {
namespace {

Field activation_checkpointing() {
  return section(
      "activation_checkpointing", "Activations that backward computes again.",
      {
          boolean("partition_activations", false, "Share them out among model-parallel ranks.", {not_yet()}),
          boolean("cpu_checkpointing", false, "Keep them on the host.", {not_yet()}),
          boolean("contiguous_memory_optimization", false, "Copy them into one buffer.", {not_yet()}),
          integer("number_checkpoints", nullptr, "How many there are.", {not_yet()}),
          boolean("synchronize_checkpoint_boundary", false, "Wait for the device at each one.", {not_yet()}),
          boolean("profile", false, "Log their times.", {not_yet()}),
      });
}

Field aio() {
  return section("aio", "Asynchronous files, as offloading to NVMe uses them.",
                 {
                     integer("block_size", 1048576, "Bytes of one request.", {above(0)}),
                     integer("queue_depth", 8, "Requests under way.", {above(0)}),
                     integer("intra_op_parallelism", 1, "Threads of one transfer.", {above(0)}),
                     boolean("single_submit", false, "Submit requests one at a time."),
                     boolean("overlap_events", true, "Submit while others complete."),
                     boolean("use_gds", false, "GPUDirect Storage.", {not_yet()}),
                 });
}

Field pipeline() {
  return section(
      "pipeline", "Pipeline parallelism.",
      {
          any("stages", "auto", "How many stages.", {not_yet()}),
          text("partition", "best", "How layers are shared out.", {not_yet()}),
          boolean("seed_layers", false, "A seed for each layer.", {not_yet()}),
          integer("activation_checkpoint_interval", 0, "Layers between two checkpoints.", {not_yet()}),
          boolean("pipe_partitioned", true, "Send activations in parts.", {not_yet()}),
          boolean("grad_partitioned", true, "Send their gradients in parts.", {not_yet()}),
          boolean("use_reentrant", true, "Activation checkpointing of the reentrant kind.", {not_yet()}),
      });
}

Field sparse_attention() {
  const auto direction = one_of({"bidirectional", "unidirectional"});
  return section(
      "sparse_attention", "Block-sparse attention.",
      {
          text("mode", "fixed", "The layout.",
               {one_of({"dense", "fixed", "variable", "bigbird", "bslongformer"})}),
          integer("block", 16, "The side of a block.", {above(0)}),
          boolean("different_layout_per_head", false, "A layout for each head."),
          integer("num_local_blocks", 4, "Blocks of a local window.", {above(0)}),
          integer("num_global_blocks", 1, "Global blocks.", {at_least(0)}),
          text("attention", "bidirectional", "Whether positions see later ones.", {direction}),
          boolean("horizontal_global_attention", false, "Global blocks attend to all."),
          integer("num_different_global_patterns", 1, "Patterns of global blocks.", {above(0)}),
          integer("num_random_blocks", 0, "Random blocks a row.", {at_least(0)}),
          integers("local_window_blocks", Json::array({4}), "Blocks of each local window."),
          integers("global_block_indices", Json::array({0}), "Global blocks, or where their ranges begin."),
          integers("global_block_end_indices", nullptr, "Where the ranges of global blocks end."),
          integer("num_sliding_window_blocks", 3, "Blocks of the sliding window.", {above(0)}),
      },
      {not_yet()});
}

Field hybrid_engine() {
  return section("hybrid_engine", "Training and generation in turn.",
                 {
                     enabled_switch(),
                     integer("max_out_tokens", 512, "Tokens of a prompt and its answer."),
                     integer("inference_tp_size", 1, "Ranks of tensor parallelism in generation."),
                     boolean("release_inference_cache", false, "Free the cache after generation."),
                     boolean("pin_parameters", true, "Keep the parameters of generation."),
                     integer("tp_gather_partition_size", 8, "Ranks gathered at one time."),
                     boolean("enable_cuda_graph", false, "Generate with CUDA graphs."),
                 },
                 {auto_means_default()});
}

Field compile() {
  return section("compile", "Compiled training.",
                 {
                     boolean("deepcompile", false, "Turns the section on.", {not_yet()}),
                     boolean("free_activation", false, "Free activations early."),
                     integer("free_activation_threshold", 10485760, "Only those of so many bytes."),
                     boolean("offload_activation", false, "Keep activations on the host."),
                     boolean("offload_activation_pin_memory", true, "In page-locked memory."),
                     boolean("offload_opt_states", false, "Keep the optimizer's state on the host."),
                     boolean("double_buffer", true, "Gather into two buffers in turn."),
                     boolean("symmetric_memory", false, "Collectives in symmetric memory."),
                     boolean("debug_log", false, "Log what is done."),
                     boolean("offload_parameters", false, "Keep parameters on the host."),
                     boolean("sync_before_reduce", false, "Wait for the device before a reduction."),
                     boolean("sync_after_reduce", false, "Wait for the device after a reduction."),
                     boolean("sync_before_allgather", false, "Wait for the device before a gather."),
                     boolean("sync_after_allgather", false, "Wait for the device after a gather."),
                     boolean("keep_int_input_tensors", true, "Keep inputs of whole numbers."),
                     boolean("keep_all_input_tensors", false, "Keep all inputs."),
                     strings("passes", nullptr, "The passes: z1, z3, autosp, autotp."),
                 },
                 {auto_means_default()});
}

Field tensor_parallel() {
  return section(
      "tensor_parallel", "Tensor parallelism.",
      {
          text("dtype", "torch.float16", "The type of the shards.", {not_yet()}),
          integer("autotp_size", 0, "Ranks that share a layer; 0: none do.", {at_least(0), not_yet()}),
          boolean("tp_overlap_comm", false, "Overlap collectives with the work.", {not_yet()}),
          section("tensor_parallel", "The ranks.",
                  {
                      integer("tp_size", 1, "How many share a layer.", {at_least(1), not_yet()}),
                      integer("tp_grain_size", 1, "Shards are multiples of it.", {at_least(1), not_yet()}),
                      any("mpu", nullptr, "An object that knows the groups.", {not_yet()}),
                      any("tp_group", nullptr, "The group.", {not_yet()}),
                  },
                  {alias("tp"), auto_means_default()}),
          any("injection_policy_tuple", nullptr, "The layers that are reduced.", {not_yet()}),
          object("partition_config", nullptr, "How each layer is cut.", {not_yet()}),
          text("preset_model", nullptr, "A model whose cuts are known.",
               {one_of({"llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3"}), not_yet()}),
          boolean("keep_module_on_host", false, "Shards stay on the host.", {not_yet()}),
          boolean("replace_with_kernel_inject", false, "Put kernels in the layers' place.",
                  {alias("kernel_inject"), not_yet()}),
      },
      {auto_means_default()});
}

Field expert_parallel() {
  return section(
      "expert_parallel", "Expert parallelism.",
      {
          enabled_switch(),
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
          text("combine_impl", "auto", "How outputs combine.",
               {one_of({"auto", "weighted_sum", "legacy_bmm"})}),
          integer("num_expert_groups", nullptr, "Groups of experts."),
          integer("num_limited_groups", nullptr, "Groups that a token may go to."),
          text("score_func", "auto", "Scores from logits.", {one_of({"auto", "softmax", "sigmoid"})}),
          any("top_k", "auto", "Experts of a token."),
          any("load_balance_coeff", nullptr, "Not to be set.",
              {accepted_if([](const Json& value) { return value.is_null(); }, "which can only be null")}),
          any("routed_scaling_factor", "auto", "Multiplies what the experts give."),
          text("expert_w1", nullptr, "The name of the first weight."),
          text("expert_w2", nullptr, "The name of the second weight."),
          text("expert_w3", nullptr, "The name of the third weight."),
          text("num_experts_attr", nullptr, "The name of the number of experts."),
          text("top_k_attr", nullptr, "The name of top_k."),
          boolean("has_shared_experts", nullptr, "Experts that see every token."),
          text("shared_experts_pattern", nullptr, "Their names."),
          text("shared_experts_gate_pattern", nullptr, "The names of their gates."),
      });
}

}  // namespace

std::vector<Field> later_parallel_sections() {
  return {activation_checkpointing(),
          aio(),
          pipeline(),
          sparse_attention(),
          hybrid_engine(),
          compile(),
          tensor_parallel(),
          expert_parallel()};
}

}  // namespace deepspeed::config
