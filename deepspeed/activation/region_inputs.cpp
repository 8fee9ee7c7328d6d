#include "deepspeed/activation/region_inputs.h"

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpointing {

at::Tensor ContiguousBuffers::put(size_t place, const at::Tensor& part, at::Device device,
                                  std::shared_ptr<void>& lease) {
  if (buffers_.size() <= place) buffers_.resize(place + 1);
  Buffer& buffer = buffers_[place];
  if (!buffer.memory.defined())
    buffer.memory = at::empty({num_checkpoints_ * part.numel()}, part.options().device(device));
  lease = buffer.lease.lock();
  if (!lease) {
    lease = std::make_shared<int>(0);
    buffer.lease = lease;
    buffer.used = 0;
  }
  if (buffer.used + part.numel() > buffer.memory.numel() ||
      buffer.memory.scalar_type() != part.scalar_type()) {
    raise<UsageError>("contiguous_checkpointing: the buffers have room for ", num_checkpoints_,
                      " regions of equal inputs, and there are more; raise num_checkpoints, and call "
                      "checkpointing::reset() after a forward without a backward");
  }
  const at::Tensor own = buffer.memory.narrow(0, buffer.used, part.numel());
  buffer.used += part.numel();
  own.copy_(part);
  return own.variable_data();  // autograd counts writes to it apart from those to its neighbours
}

KeptInput keep_input(const at::Tensor& input, size_t place, const Keeping& keeping) {
  KeptInput kept;
  kept.kept = input;
  if (!input.defined()) return kept;
  kept.sizes = input.sizes().vec();
  kept.device = input.device();
  const int ranks = keeping.partitions() ? keeping.model_group.size() : 1;
  const CheckpointOptions& options = keeping.options;
  if (!input.is_floating_point() || input.numel() < ranks) return kept;
  at::Tensor part = input.detach();
  if (keeping.partitions()) {
    if (input.numel() % ranks != 0) {
      raise<UsageError>("partition_activations: an input of a recomputed region has ", input.numel(),
                        " elements, which the ", ranks, " model-parallel ranks do not divide");
    }
    const int64_t size = input.numel() / ranks;
    part = part.reshape({-1}).narrow(0, size * keeping.model_group.rank(), size);
    kept.is_part = true;
  }
  const at::Device device = options.checkpoint_in_cpu ? at::Device(at::kCPU) : kept.device;
  if (options.contiguous_checkpointing) {
    kept.kept = keeping.buffers->put(place, part, device, kept.lease);
  } else if (kept.is_part || options.checkpoint_in_cpu) {
    kept.kept = at::empty(
        part.sizes(), part.options().device(device).pinned_memory(device.is_cpu() && !kept.device.is_cpu()));
    kept.kept.copy_(part, /*non_blocking=*/true);
  }
  return kept;
}

at::Tensor restore_input(const KeptInput& input, const at::Tensor& kept, const Keeping& keeping) {
  if (!kept.defined()) return kept;
  const at::Tensor here = kept.detach().to(input.device, /*non_blocking=*/true);
  if (!input.is_part) return here.view(input.sizes);
  const at::Tensor whole = at::empty(input.sizes, here.options());
  keeping.model_group.all_gather(whole.view({-1}), here.contiguous());
  return whole;
}

}  // namespace deepspeed::checkpointing
