#include "deepspeed/activation/recompute/region.h"

#include <exception>
#include <utility>

#include "deepspeed/activation/keep/input_store.h"
#include "deepspeed/autograd/error_place.h"
#include "deepspeed/base/log.h"
#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::activation {

Region::Region(TensorFunction given, const TensorList& inputs, RegionOptions given_options)
    : function(std::move(given)),
      options(std::move(given_options)),
      configuration(current_configuration()),
      generators(GeneratorStates::now()),
      autocast(AutocastState::now()),
      meters(current_meters()) {
  for (const at::Tensor& input : inputs) {
    needs_grad.push_back(input.defined() && input.requires_grad());
    is_result.push_back(needs_grad.back() && !input.is_leaf());
  }
}

TensorList Region::leaves_of(const TensorList& saved) const {
  TensorList leaves;
  for (size_t i = 0; i < saved.size(); ++i) {
    leaves.push_back(saved[i].defined() ? saved[i].detach().requires_grad_(needs_grad[i]) : at::Tensor());
  }
  return leaves;
}

TensorList Region::inputs_of(const TensorList& saved) const {
  TensorList inputs;
  for (size_t i = 0; i < saved.size(); ++i)
    inputs.push_back(is_result[i] ? saved[i].detach().requires_grad_() : saved[i]);
  return inputs;
}

TensorList Region::stand_ins(const TensorList& inputs) const {
  TensorList stand_ins;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_result[i]) stand_ins.push_back(inputs[i]);
  }
  return stand_ins;
}

void Region::repeat(const std::function<void()>& work) const {
  if (!options.names_errors) return work();
  autograd::with_place(work, [this] { return "the recomputation of " + options.name; });
}

RepeatRegion::RepeatRegion(const Region& region)
    : generators_(region.generators), autocast_(region.autocast), gradients_(true), meter_(region.meters) {}

RegionTimer::RegionTimer(const Region& region, const char* what) : region_(region), what_(what) {
  const auto& options = region.configuration->options;
  if (options.synchronize || options.profile) device::synchronize();
  start_ = std::chrono::steady_clock::now();
}

RegionTimer::~RegionTimer() {
  try {
    const auto& options = region_.configuration->options;
    if (options.synchronize || options.profile) device::synchronize();
    if (!options.profile) return;
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start_;
    log::info("activation checkpointing: ", what_, " of ", region_.options.name, " took ", taken.count(),
              " ms");
  } catch (const std::exception& error) {
    log::error("activation.region: the end of ", region_.options.name, " failed: ", error.what());
  }
}

void save_inputs_through(const Region& region, const std::function<void()>& apply) {
  const auto& options = region.configuration->options;
  const bool moves_inputs = options.partition_activations || options.checkpoint_in_cpu;
  const auto* hooks = autograd::current_saved_tensor_hooks();
  const bool is_in_region = dynamic_cast<const RegionHooks*>(hooks) != nullptr;
  if (is_in_region || (hooks != nullptr && !moves_inputs)) return apply();
  InputStore store(region.configuration, region.options.name);
  const autograd::SavedTensorScope scope(store);
  apply();
}

}  // namespace deepspeed::activation
