#include "deepspeed/activation/checkpointing.h"

#include <utility>

#include <c10/core/GradMode.h>

#include "deepspeed/activation/keep/configuration.h"
#include "deepspeed/activation/recompute/recomputation.h"
#include "deepspeed/activation/recompute/reentrant_region.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/graphs/device_graph.h"

namespace deepspeed {
namespace {

using activation::Configuration;

void check(const CheckpointOptions& options) {
  if (options.num_checkpoints && *options.num_checkpoints < 1) {
    raise<UsageError>("num_checkpoints is ", *options.num_checkpoints, ", expected 1 or more");
  }
  if (!options.contiguous_checkpointing) return;
  if (!options.partition_activations) {
    raise<UsageError>(
        "Contiguous Checkpointing is only available with partitioned activations: ",
        "contiguous_checkpointing (activation_checkpointing.contiguous_memory_optimization of a ",
        "config) is set and partition_activations is not; set both");
  }
  if (!options.num_checkpoints) {
    raise<UsageError>(
        "Must specify the number of layers with contiguous memory checkpointing: ",
        "contiguous_checkpointing (activation_checkpointing.contiguous_memory_optimization of a ",
        "config) needs num_checkpoints (number_checkpoints there)");
  }
}

void set_checked(Configuration next) {
  check(next.options);
  next.buffers = std::make_shared<activation::SlotBuffers>(next.options.num_checkpoints.value_or(0));
  activation::set_configuration(std::move(next));
}

}  // namespace

namespace checkpointing {

void configure(const comm::ProcessGroup& model_parallel_group, const CheckpointOptions& options) {
  Configuration next;
  next.options = options;
  next.model_parallel_group = model_parallel_group;
  next.is_set = true;
  set_checked(std::move(next));
}

bool is_configured() { return activation::current_configuration()->is_set; }

void reset() { activation::current_configuration()->buffers->clear(); }

void set_num_layers(int64_t num_layers) {
  Configuration next = *activation::current_configuration();
  next.options.num_checkpoints = num_layers;
  set_checked(std::move(next));
}

void partition_activations_in_checkpoint(bool partition) {
  Configuration next = *activation::current_configuration();
  next.options.partition_activations = partition;
  set_checked(std::move(next));
}

TensorList checkpoint_tensors(TensorFunction function, TensorList inputs, const RegionOptions& options) {
  if (!at::GradMode::is_enabled()) return function(std::move(inputs));
  if (device::DeviceGraph::is_capturing()) {
    raise<NotSupportedError>(
        "checkpoint() in a forward that cuda_graphs captures: its backward would set random ",
        "numbers back, which a graph cannot; leave checkpoint() out, or set ",
        "cuda_graphs.enabled to false");
  }
  if (options.use_reentrant) return activation::run_reentrant(std::move(function), inputs, options);
  return activation::run_with_recomputation(std::move(function), inputs, options);
}

}  // namespace checkpointing
}  // namespace deepspeed
