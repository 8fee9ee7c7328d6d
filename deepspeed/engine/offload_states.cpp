#include <algorithm>
#include <functional>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/engine/step/training_options.h"
#include "deepspeed/engine/training_engine.h"
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

// As in DeepSpeed, states that the config offloads already cannot be moved.
void check_states_can_move(const TrainingEngine& engine) {
  const config::ZeroConfig& zero = engine.config().zero_optimization;
  if (zero.stage == 0) {
    raise<UsageError>("zero_optimization.stage is 0, expected 1, 2 or 3: the states of stage 0 do not move");
  }
  for (const auto& [key, device] : {std::pair("offload_optimizer", zero.offload_optimizer.device),
                                    std::pair("offload_param", zero.offload_param.device)}) {
    if (device == "none") continue;
    raise<UsageError>("zero_optimization.", key, ".device is \"", device,
                      "\", expected \"none\": what the config offloads does not move");
  }
}

constexpr OffloadStateTypeEnum kMovableKinds[] = {
    OffloadStateTypeEnum::hp_params, OffloadStateTypeEnum::optim_states, OffloadStateTypeEnum::lp_grads,
    OffloadStateTypeEnum::lp_params};

/// Calls `visit` with each tensor of this kind in this rank's memory. Gradient buffers exist only during a
/// backward, so that kind visits nothing.
void visit_states(const TrainingEngine& engine, const zero::ZeroOptimizer& optimizer,
                  OffloadStateTypeEnum kind, const std::function<void(const at::Tensor&)>& visit) {
  using enum OffloadStateTypeEnum;
  const bool has_masters = optimizer.state().has_master_weights();
  for (size_t group = 0; group < optimizer.store().groups().size(); ++group) {
    for (const zero::GroupState& kept : optimizer.state().resident(group)) {
      if (kind == hp_params && has_masters) visit(kept.master);
      if (kind != optim_states) continue;
      for (const auto& [name, tensor] : kept.state.tensors) visit(tensor);
    }
    if (kind == lp_grads && optimizer.gradients().has_result()) visit(optimizer.gradient(group));
  }
  if (kind != lp_params) return;
  for (const NamedTensor& param : engine.model().parameters) {
    if (!zero::is_partitioned(param.tensor)) {
      visit(param.tensor);
    } else if (zero::held_bytes(param.tensor) > 0) {
      visit(zero::shard_of(param.tensor));
    }
  }
}

}  // namespace

void TrainingEngine::offload_states(const OffloadStatesOptions& options) {
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
  if (device().is_cpu()) return;  // the states are in host memory already
  const bool empties =
      config().zero_optimization.stage < 3;  // at stage 3 the pool blocks access to shards instead
  for (const OffloadStateTypeEnum kind : kMovableKinds) {
    if (!includes(options, kind)) continue;
    const bool is_params = kind == OffloadStateTypeEnum::lp_params;
    if (is_params && !empties) {
      state_->parts.pool->suspend(
          "its shards were moved to the host by offload_states(); call reload_states() first");
    }
    visit_states(*this, optimizer, kind, [&](const at::Tensor& tensor) {
      parked_states_->park(tensor, options.pin_memory, options.non_blocking);
      if (is_params && empties) parked_states_->empty(tensor);
    });
  }
}

std::vector<at::Device> TrainingEngine::state_devices(OffloadStateTypeEnum kind) const {
  if (!optimizer()) raise<UsageError>("state_devices() needs an optimizer");
  std::vector<at::Device> devices;
  visit_states(*this, *optimizer(), kind, [&](const at::Tensor& tensor) {
    const at::Device device = parked_states_->holds(tensor) ? at::Device(at::kCPU) : tensor.device();
    if (std::ranges::count(devices, device) == 0) devices.push_back(device);
  });
  return devices;
}

void TrainingEngine::reload_states(bool non_blocking) {
  parked_states_->restore(non_blocking);
  if (state_->parts.pool) state_->parts.pool->resume();
}

void TrainingEngine::require_states_here(const char* call) const {
  require_memory_here(call);
  require_whole(*state_, call);
}

void TrainingEngine::require_memory_here(const char* call) const {
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
