#include "deepspeed/zero/update/step_options.h"

#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {
namespace {

void check_exchange(const StepOptions& options, const ParamStore& store, const optim::Optimizer& optimizer,
                    const ZeroGroups& ranks) {
  if (!optimizer.compresses_exchange()) return;
  const std::string name = optimizer.name();
  if (store.partitions_gradients()) {
    raise<UsageError>("optimizer ", name, " at ZeRO stage ", store.stage(),
                      ", expected 0 or 1: each rank's own gradients ",
                      "are whole until their momentum is exchanged");
  }
  if (options.gradient_clipping > 0.0) {
    raise<UsageError>("optimizer ", name, " with gradient_clipping ", options.gradient_clipping,
                      ", expected 0: no rank knows the norm of what it exchanges");
  }
  if (!options.check_overflow) {
    raise<UsageError>("optimizer ", name,
                      " without an overflow check, expected one: what compression takes from a value ",
                      "that is not finite comes back in all steps; set bf16.check_grad_overflow to true");
  }
  if (options.offload.is_on())
    raise<UsageError>("optimizer ", name, " with zero_optimization.offload_optimizer, expected none");
  if (store.has_doubles())
    raise<UsageError>("optimizer ", name, " with parameters in Double, expected Float");
  if (ranks.model)
    raise<UsageError>("optimizer.type is ", name,
                      ", whose ranks exchange compressed momenta of whole models, but ranks share this model "
                      "out, as stages of a pipeline or slices of an mpu: use Adam or AdamW");
}

void check_super_offload(const StepOptions& options, const ParamStore& store,
                         const optim::Optimizer& optimizer, const ZeroGroups& ranks) {
  if (!options.offload.super_offload) return;
  if (!store.partitions_gradients() || options.offload.device != OffloadDevice::kCpu ||
      store.home() == ParamHome::kDisk) {
    raise<UsageError>("super_offload at stage ", store.stage(),
                      ", expected stage 2 or 3, with the optimizer offloaded to the CPU and no parameters on "
                      "a disk");
  }
  if (ranks.has_replicas()) {
    raise<UsageError>("super_offload with shards that ", ranks.replica.size(),
                      " ranks hold each, whose gradients are added up only after backward; set "
                      "zero_optimization.mics_shard_size or offload_optimizer.super_offload to its default");
  }
  if (options.gradient_clipping > 0.0) {
    raise<UsageError>("super_offload with clipping to ", options.gradient_clipping,
                      ", whose norm is known only after backward, expected 0");
  }
  if (store.has_doubles()) {
    raise<UsageError>("super_offload with parameters in Double, expected Float, Half or BFloat16; set ",
                      "zero_optimization.offload_optimizer.super_offload to false");
  }
  if (!optimizer.writes_over_gradients()) {
    raise<UsageError>("super_offload with optimizer ", optimizer.name(),
                      ", expected Adam or AdamW, without amsgrad");
  }
  if (options.check_overflow && (!optimizer.takes_steps_back() || options.sixteen_bit_masters)) {
    raise<UsageError>(
        "super_offload with an overflow check, after which a step is taken back, and states of 16 ",
        "bits, which hold too little for that; set bf16.check_grad_overflow to false");
  }
}

void check_offload(const StepOptions& options, const ParamStore& store, const optim::Optimizer& optimizer,
                   const ZeroGroups& ranks) {
  if (!options.offload.is_on()) return;
  if (!store.partitions_states()) raise<UsageError>("offloading at stage 0, expected stage 1, 2 or 3");
  if (options.offload.ratio != 1.0 && !store.partitions_parameters()) {
    raise<UsageError>("offloading of a part, ", options.offload.ratio, ", at stage ", store.stage(),
                      ", expected stage 3");
  }
  check_super_offload(options, store, optimizer, ranks);
}

}  // namespace

void check_step_options(const StepOptions& options, const ParamStore& store,
                        const optim::Optimizer& optimizer, const ZeroGroups& ranks) {
  if (store.partitions_states() && !optimizer.steps_cut_parameters()) {
    raise<UsageError>("optimizer ", optimizer.name(), " needs whole parameters, which ZeRO stage ",
                      store.stage(), " cuts; use stage 0");
  }
  if (options.sixteen_bit_masters && store.dtype() == at::kFloat)
    raise<UsageError>("16-bit masters of a model in fp32; enable fp16 or bf16");
  if (options.split_masters && (store.dtype() != at::kBFloat16 || options.sixteen_bit_masters)) {
    raise<UsageError>("split masters of a model in ", store.dtype(),
                      options.sixteen_bit_masters ? " with 16-bit masters" : "",
                      ", expected one in BFloat16 with fp32 masters");
  }
  if (options.split_masters && !optimizer.steps_split_masters()) {
    raise<UsageError>("split masters with optimizer ", optimizer.name(),
                      ", expected Adam or AdamW, without amsgrad");
  }
  if (store.has_doubles() && optimizer.state_dtype() != at::kFloat) {
    raise<UsageError>(
        "optimizer ", optimizer.name(), " with states in ", optimizer.state_dtype(),
        " of parameters in Double, whose states are Double; ask for fp32 states, or convert the ",
        "parameters to Float");
  }
  check_offload(options, store, optimizer, ranks);
  check_exchange(options, store, optimizer, ranks);
}

}  // namespace deepspeed::zero
