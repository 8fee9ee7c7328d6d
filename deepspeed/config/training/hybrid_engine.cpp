#include "deepspeed/config/training/tables.h"

namespace deepspeed::config {

std::vector<Field> hybrid_engine_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      integer("max_out_tokens", 512, "Tokens of a prompt and its answer."),
      integer("inference_tp_size", 1, "Ranks of tensor parallelism in generation."),
      boolean("release_inference_cache", false, "Free the cache after generation."),
      boolean("pin_parameters", true, "Keep the parameters of generation."),
      integer("tp_gather_partition_size", 8, "Ranks gathered at one time."),
      boolean("enable_cuda_graph", false, "Generate with CUDA graphs."),
  };
}

}  // namespace deepspeed::config
