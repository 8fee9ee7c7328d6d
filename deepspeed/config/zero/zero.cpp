// The table of zero_optimization. Its nested sections come first: zenflow, zeropp_loco_param and leaf_module.
#include <utility>

#include "deepspeed/config/table/coerce.h"
#include "deepspeed/config/zero/tables.h"

namespace deepspeed::config {

std::vector<Field> zenflow_keys() {
  return {
      number("topk_ratio", 0.1, "The part of the gradients that counts as important.",
             {strictly_between(0, 1)}),
      text("select_strategy", "auto", "When the important ones are selected anew.",
           {one_of({"auto", "step", "epoch"})}),
      any("select_interval", "auto", "Steps or epochs between two selections."),
      any("update_interval", "auto", "Steps between two updates of the others."),
      boolean("overlap_step", false, "Overlap the host's step with the device's work."),
      boolean("offload", false, "Keep the selected optimizer state on the host."),
      number("auto_ratio", 0.99, "The threshold of the automatic update interval.", {between(0, 1)}),
      integer("full_warm_up_rounds", 0, "Steps at the start that update everything.", {at_least(0)}),
      number("pt_reserved_cores_perc", 0.5, "The part of the cores left to PyTorch.", {between(0, 1)}),
      integer("steps_per_epoch", nullptr, "Steps of one epoch."),
  };
}

namespace {

Option with_quantized_gradients() {
  return effective_where({"zero_optimization.zero_quantized_gradients"}, {true},
                         "only zero_quantized_gradients uses it");
}

}  // namespace

const Table<LocoConfig>& loco_table() {
  using C = LocoConfig;
  static const Table<C> table({
      entry("err_beta", &C::err_beta, "How much the earlier error counts in the one that is kept.",
            {between(0, 1), with_quantized_gradients()}),
      entry("reset_T", &C::reset_T, "Reductions after which errors are forgotten.",
            {above(0), with_quantized_gradients()}),
  });
  return table;
}

namespace {

/// Returns a single name as a list of one; other values unchanged.
Json list_of_one(const Json& given) { return given.is_string() ? Json::array({given}) : given; }

}  // namespace

const Table<LeafModuleConfig>& leaf_module_table() {
  using C = LeafModuleConfig;
  static const Table<C> table({
      entry("classes", &C::classes, "Their classes, by full name.",
            {normalized_by(list_of_one), effective_at_stage(3)}),
      entry("names", &C::names, "Their names in the model.",
            {normalized_by(list_of_one), effective_at_stage(3)}),
      entry("name_suffixes", &C::name_suffixes, "Ends of their names.",
            {normalized_by(list_of_one), effective_at_stage(3)}),
  });
  return table;
}

namespace {

Json device_cpu(const Json& wanted) {
  return wanted == true ? Json::object({{"device", "cpu"}}) : Json::object();
}

std::vector<Entry<ZeroConfig>> entries() {
  using C = ZeroConfig;
  return {
      entry("stage", &C::stage,
            "What is sharded: 1 optimizer state, 2 gradients too, 3 parameters too; 0 nothing.",
            {between(0, 3)}),
      entry("contiguous_gradients", &C::contiguous_gradients,
            "Copy gradients into one buffer as they are made."),
      entry("reduce_scatter", &C::reduce_scatter, "Reduce each part of the gradients to its owner alone."),
      entry("reduce_bucket_size", &C::reduce_bucket_size,
            "Elements reduced at one time, at most. A large model is reduced in 24 buckets or so.",
            {above(0)}),
      entry("use_multi_rank_bucket_allreduce", &C::use_multi_rank_bucket_allreduce,
            "Reduce the parts of several owners in one call."),
      entry("allgather_partitions", &C::allgather_partitions,
            "Gather the updated parameters with all-gather."),
      entry("allgather_bucket_size", &C::allgather_bucket_size, "Elements gathered at one time; even.",
            {at_least(0)}),
      entry("overlap_comm", &C::overlap_comm,
            "Reduce gradients while backward goes on; null: at stage 3 alone."),
      entry("load_from_fp32_weights", &C::load_from_fp32_weights,
            "Load master weights from the checkpoint's float32 ones, not from the model's."),
      entry("elastic_checkpoint", &C::elastic_checkpoint, "Checkpoints for other world sizes.",
            {without_effect("every checkpoint of stages 1 and 2 loads at any number of ranks")}),
      section_entry("offload_param", &C::offload_param, offload_param_table(),
                    "Parameters outside the device.", {or_null(), auto_means_default()}),
      section_entry("offload_optimizer", &C::offload_optimizer, offload_optimizer_table(),
                    "Optimizer state outside the device.", {or_null(), auto_means_default()}),
      kept_section("zenflow", &C::zenflow, zenflow_keys(),
                   "Update important gradients at once and the others on the host, later.",
                   {or_null(), auto_means_default(), not_yet()}),
      entry("sub_group_size", &C::sub_group_size,
            "Elements that are stepped at one time: at stage 3, and at stages 1 and 2 where the optimizer is "
            "offloaded.",
            {at_least(0),
             effective_where({"zero_optimization.stage", "zero_optimization.offload_optimizer.device"},
                             {3, "cpu", "nvme"}, "only stage 3 and offload_optimizer use it")}),
      entry("stage3_prefetch_bucket_size", &C::stage3_prefetch_bucket_size,
            "Elements fetched ahead of their use.",
            {at_least(0), alias("prefetch_bucket_size"), effective_at_stage(3)}),
      entry("stage3_param_persistence_threshold", &C::stage3_param_persistence_threshold,
            "Parameters with fewer elements stay whole.",
            {at_least(0), alias("param_persistence_threshold"), effective_at_stage(3)}),
      entry("stage3_model_persistence_threshold", &C::stage3_model_persistence_threshold,
            "Elements that may stay whole in all.",
            {at_least(0), alias("model_persistence_threshold"), effective_at_stage(3)}),
      entry("stage3_max_live_parameters", &C::stage3_max_live_parameters,
            "Elements that may be whole at one time.",
            {at_least(0), alias("max_live_parameters"), effective_at_stage(3)}),
      entry("stage3_max_reuse_distance", &C::stage3_max_reuse_distance,
            "Keep a parameter whole that is used again within so many elements.",
            {at_least(0), alias("max_reuse_distance"), effective_at_stage(3)}),
      entry("stage3_gather_16bit_weights_on_model_save", &C::stage3_gather_16bit_weights_on_model_save,
            "Gather the whole model where it is saved.",
            {alias("gather_16bit_weights_on_model_save"), effective_at_stage(3)}),
      boolean(
          "stage3_gather_fp16_weights_on_model_save", false, "The former name of the key above.",
          {deprecated("stage3_gather_16bit_weights_on_model_save", [](const Json& value) { return value; })}),
      entry("stage3_module_granularity_threshold", &C::stage3_module_granularity_threshold,
            "Modules with fewer elements a descendant are fetched as one.",
            {alias("module_granularity_threshold"), effective_at_stage(3)}),
      entry("stage3_use_all_reduce_for_fetch_params", &C::stage3_use_all_reduce_for_fetch_params,
            "Fetch with all-reduce in place of all-gather: the same bits, and twice the bytes on the way.",
            {alias("use_all_reduce_for_fetch_params"), effective_at_stage(3)}),
      entry("stage3_allgather_sequential", &C::stage3_allgather_sequential,
            "Fetch each parameter by a collective of its own, and at most one ahead of its use.",
            {alias("allgather_sequential"), effective_at_stage(3)}),
      entry("ignore_unused_parameters", &C::ignore_unused_parameters,
            "Accept parameters that a step gives no gradient."),
      entry("legacy_stage1", &C::legacy_stage1, "The former stage 1, which no longer exists.",
            {accepted_if([](const Json& value) { return as_bool(value) != true; }, "")}),
      entry("round_robin_gradients", &C::round_robin_gradients, "Deal the parameters to the owners in turn."),
      entry("zero_hpz_partition_size", &C::zero_hpz_partition_size,
            "Neighbouring ranks, e.g. those of a node, that keep the gathered parameters once more between "
            "them, so that backward gathers among these ranks alone (ZeRO++); 0 and 1: none do.",
            {at_least(0), effective_at_stage(3)}),
      entry("zero_quantized_weights", &C::zero_quantized_weights,
            "Gather parameters for passes in 8 bits, a scale for each 2048 elements (ZeRO++).",
            {effective_at_stage(3)}),
      entry("zero_quantized_nontrainable_weights", &C::zero_quantized_nontrainable_weights,
            "Gather the parameters that are not trained in 8 bits, whatever zero_quantized_weights says.",
            {effective_at_stage(3)}),
      entry(
          "zero_quantized_weights_dtype", &C::zero_quantized_weights_dtype,
          "What the 8 bits of quantized parameters are: int8 (ZeRO++), or fp8 (e4m3), which keeps the digits "
          "of small elements beside large ones.",
          {one_of({"int8", "fp8"}), effective_at_stage(3)}),
      entry("zero_quantized_gradients", &C::zero_quantized_gradients,
            "Reduce the gradients of matrices in 4 bits, within each node first and then between nodes "
            "(ZeRO++). It needs stage 3; true at another stage is an error."),
      section_entry("zeropp_loco_param", &C::zeropp_loco_param, loco_table(),
                    "Add what rounding to 4 bits took from a gradient to the next one (LoCo).",
                    {or_null(), auto_means_default()}),
      entry("mics_shard_size", &C::mics_shard_size,
            "Consecutive data-parallel ranks that hold the model once between them, so that it is gathered "
            "among these alone; other ranks hold it again (MiCS). Below 1: all ranks hold it once."),
      entry("mics_hierarchical_params_gather", &C::mics_hierarchical_params_gather,
            "Gather parameters between nodes first, among ranks at one place on theirs, and then within each "
            "node.",
            {effective_at_stage(3)}),
      entry("memory_efficient_linear", &C::memory_efficient_linear,
            "Linear layers of stage 3 that keep no gathered weight for backward.",
            {without_effect("no layer of stage 3 keeps one")}),
      entry("pipeline_loading_checkpoint", &C::pipeline_loading_checkpoint,
            "Load a checkpoint on one rank after another, for the host's memory.",
            {without_effect("files are read in parts, which takes little of it")}),
      entry("override_module_apply", &C::override_module_apply,
            "Gather parameters for the initialiser's walk.",
            {without_effect("nothing is initialised after the partitioning")}),
      entry("log_trace_cache_warnings", &C::log_trace_cache_warnings,
            "Warn where stage 3 records a new trace.", {effective_at_stage(3), per_rank()}),
      entry("enable_sanity_checks", &C::enable_sanity_checks, "Check the state of stage 3 as it goes.",
            {without_effect("each use of a parameter is checked anyway")}),
      entry("save_muon_momentum_buffer_in_memory", &C::save_muon_momentum_buffer_in_memory,
            "Keep Muon's momentum on the device.", {not_yet()}),
      section_entry("leaf_module", &C::leaf_module, leaf_module_table(),
                    "Modules that stage 3 fetches as one.", {or_null(), auto_means_default()}),
      boolean("cpu_offload", false, "The former offload_optimizer with device cpu.",
              {or_null(), deprecated("offload_optimizer", device_cpu)}),
      boolean("cpu_offload_param", false, "The former offload_param with device cpu.",
              {or_null(), deprecated("offload_param", device_cpu)}),
      boolean("cpu_offload_use_pin_memory", false, "The former pin_memory of the offload sections.",
              {or_null(), deprecated("", nullptr)}),
  };
}

}  // namespace

const Table<ZeroConfig>& zero_table() {
  static const Table<ZeroConfig> table(entries());
  return table;
}

Json zero_from_truth_value(const Json& given) {
  return given.is_boolean() ? Json::object({{"stage", given.get<bool>() ? 1 : 0}}) : given;
}

}  // namespace deepspeed::config
