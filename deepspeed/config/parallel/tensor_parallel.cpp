#include "deepspeed/config/parallel/tables.h"

namespace deepspeed::config {
namespace {

std::vector<Field> tensor_parallel_ranks_keys() {
  return {
      integer("tp_size", 1, "How many share a layer.", {at_least(1), not_yet()}),
      integer("tp_grain_size", 1, "Shards are multiples of it.", {at_least(1), not_yet()}),
      any("mpu", nullptr, "An object that knows the groups.", {not_yet()}),
      any("tp_group", nullptr, "The group.", {not_yet()}),
  };
}

}  // namespace

std::vector<Field> tensor_parallel_keys() {
  return {
      text("dtype", "torch.float16", "The type of the shards.", {not_yet()}),
      integer("autotp_size", 0, "Ranks that share a layer; 0: none do.", {at_least(0), not_yet()}),
      boolean("tp_overlap_comm", false, "Overlap collectives with the work.", {not_yet()}),
      section("tensor_parallel", "The ranks.", tensor_parallel_ranks_keys(),
              {alias("tp"), auto_means_default()}),
      any("injection_policy_tuple", nullptr, "The layers that are reduced.", {not_yet()}),
      object("partition_config", nullptr, "How each layer is cut.", {not_yet()}),
      text("preset_model", nullptr, "A model whose cuts are known.",
           {one_of({"llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3"}), not_yet()}),
      boolean("keep_module_on_host", false, "Shards stay on the host.", {not_yet()}),
      boolean("replace_with_kernel_inject", false, "Put kernels in the layers' place.",
              {alias("kernel_inject"), not_yet()}),
  };
}

}  // namespace deepspeed::config
