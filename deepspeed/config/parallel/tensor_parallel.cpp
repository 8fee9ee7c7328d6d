#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {
namespace {

const Table<TensorParallelRanksConfig>& tensor_parallel_ranks_table() {
  using C = TensorParallelRanksConfig;
  static const Table<C> table({
      entry("tp_size", &C::tp_size, "How many share a layer.", {at_least(1), not_yet()}),
      entry("tp_grain_size", &C::tp_grain_size, "Shards are multiples of it.", {at_least(1), not_yet()}),
      any_entry("mpu", &C::mpu, "An object that knows the groups.", {not_yet()}),
      any_entry("tp_group", &C::tp_group, "The group.", {not_yet()}),
  });
  return table;
}

}  // namespace

const Table<TensorParallelConfig>& tensor_parallel_table() {
  using C = TensorParallelConfig;
  static const Table<C> table({
      entry("dtype", &C::dtype, "The type of the shards.", {not_yet()}),
      entry("autotp_size", &C::autotp_size, "Ranks that share a layer; 0: none do.",
            {at_least(0), not_yet()}),
      entry("tp_overlap_comm", &C::tp_overlap_comm, "Overlap collectives with the work.", {not_yet()}),
      section_entry("tensor_parallel", &C::tensor_parallel, tensor_parallel_ranks_table(), "The ranks.",
                    {alias("tp"), auto_means_default()}),
      any_entry("injection_policy_tuple", &C::injection_policy_tuple, "The layers that are reduced.",
                {not_yet()}),
      entry("partition_config", &C::partition_config, "How each layer is cut.", {not_yet()}),
      entry("preset_model", &C::preset_model, "A model whose cuts are known.",
            {one_of({"llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3"}), not_yet()}),
      entry("keep_module_on_host", &C::keep_module_on_host, "Shards stay on the host.", {not_yet()}),
      entry("replace_with_kernel_inject", &C::replace_with_kernel_inject, "Put kernels in the layers' place.",
            {alias("kernel_inject"), not_yet()}),
  });
  return table;
}

}  // namespace deepspeed::config
