#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/engine/engine.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/engine/step/training_options.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/offload/parked_storages.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

bool includes(const OffloadStatesOptions& options, OffloadStateTypeEnum kind) {
  return !options.include || std::ranges::count(*options.include, kind) > 0;
}

// As in DeepSpeed: what the config offloads already stays where it is.
void check_states_can_move(const Engine& engine) {
  const config::ZeroConfig& zero = engine.config().zero_optimization;
  if (zero.stage != 3) {
    raise<UsageError>("zero_optimization.stage is ", zero.stage,
                      ", expected 3: the states of other stages do not move");
  }
  for (const auto& [key, device] : {std::pair("offload_optimizer", zero.offload_optimizer.device),
                                    std::pair("offload_param", zero.offload_param.device)}) {
    if (device == "none") continue;
    raise<UsageError>("zero_optimization.", key, ".device is \"", device,
                      "\", expected \"none\": what the config offloads does not move");
  }
}

}  // namespace

void Engine::offload_states(const OffloadStatesOptions& options) {
  check_states_can_move(*this);
  zero::ZeroOptimizer& optimizer = require_optimizer("offload_states");
  if (options.device == OffloadDeviceEnum::nvme) {
    raise<UsageError>("device: got nvme, expected cpu or none; for a disk see the config's ",
                      "zero_optimization.offload_optimizer and offload_param");
  }
  if (options.device == OffloadDeviceEnum::none) {
    log::warning("[engine] offload_states(): device is none, so nothing moves");
    return;
  }
  if (device().is_cpu()) return;  // they are there already
  const auto park = [&](const at::Tensor& tensor) {
    parked_states_->park(tensor, options.pin_memory, options.non_blocking);
  };
  const bool has_masters = optimizer.state().has_master_weights();
  for (size_t group = 0; group < optimizer.store().groups().size(); ++group) {
    for (const zero::GroupState& kept : optimizer.state().resident(group)) {
      if (has_masters && includes(options, OffloadStateTypeEnum::hp_params)) park(kept.master);
      if (!includes(options, OffloadStateTypeEnum::optim_states)) continue;
      for (const auto& [name, tensor] : kept.state.tensors) park(tensor);
    }
    if (optimizer.gradients().has_result() && includes(options, OffloadStateTypeEnum::lp_grads))
      park(optimizer.gradient(group));
  }
  if (!includes(options, OffloadStateTypeEnum::lp_params)) return;
  state_->parts.pool->suspend(
      "its shards were moved to the host by offload_states(); call reload_states() first");
  for (const NamedTensor& param : model().parameters) park(zero::shard_of(param.tensor));
}

void Engine::reload_states(bool non_blocking) {
  parked_states_->restore(non_blocking);
  if (state_->parts.pool) state_->parts.pool->resume();
}

void Engine::require_states_here(const char* call) const {
  require_memory_here(call);
  require_whole(*state_, call);
}

void Engine::require_memory_here(const char* call) const {
  if (!parked_states_->empty()) {
    raise<UsageError>(call, "() while states are with the host; call reload_states() first");
  }
  const auto replaced = optimizer() ? optimizer()->store().name_of_replaced() : std::nullopt;
  if (!replaced) return;
  raise<UsageError>(call, "(): parameter '", *replaced,
                    "' got other memory after initialize(), where training does not reach it: set_data(), "
                    "torch::load(), Module::to() and vector_to_parameters() do so. Load and convert before "
                    "initialize(), or give the engine the values: load_weights(), load_module_state_dict(); "
                    "at stage 3 also inside a zero::GatheredParameters with a modifier_rank");
}

}  // namespace deepspeed
