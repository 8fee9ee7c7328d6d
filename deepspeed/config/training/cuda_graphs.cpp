#include "deepspeed/config/training/tables.h"

namespace deepspeed::config {

const Table<CudaGraphsConfig>& cuda_graphs_table() {
  using C = CudaGraphsConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled,
            "Capture the model's forward and backward as CUDA graphs, and replay them: the host gives the "
            "device two graphs in place of their kernels. What the model decides on the host stays as it was "
            "at the capture."),
      entry("warmup_steps", &C::warmup_steps,
            "Forwards of each shape that run kernel by kernel before it is captured.", {at_least(1)}),
      entry(
          "max_shapes", &C::max_shapes,
          "Shapes of inputs that may have graphs, each with memory of its own; others run kernel by kernel.",
          {at_least(1)}),
  });
  return table;
}

}  // namespace deepspeed::config
