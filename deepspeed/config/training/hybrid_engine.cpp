#include "deepspeed/config/training/tables.h"

namespace deepspeed::config {

const Table<HybridEngineConfig>& hybrid_engine_table() {
  using C = HybridEngineConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("max_out_tokens", &C::max_out_tokens, "Tokens of a prompt and its answer."),
      entry("inference_tp_size", &C::inference_tp_size, "Ranks of tensor parallelism in generation."),
      entry("release_inference_cache", &C::release_inference_cache, "Free the cache after generation."),
      entry("pin_parameters", &C::pin_parameters, "Keep the parameters of generation."),
      entry("tp_gather_partition_size", &C::tp_gather_partition_size, "Ranks gathered at one time."),
      entry("enable_cuda_graph", &C::enable_cuda_graph, "Generate with CUDA graphs."),
  });
  return table;
}

}  // namespace deepspeed::config
