#include "deepspeed/plan/memory_needs_live.h"

#include <algorithm>

#include "deepspeed/engine/model/describe_module.h"
#include "deepspeed/plan/memory_needs.h"

namespace deepspeed::zero {

ModelSize model_size(const EngineModel& model) {
  ModelSize size;
  for (const NamedTensor& param : model.parameters) size.total_params += param.tensor.numel();
  for (const ModuleParameters& module : model.modules) {
    int64_t own = 0;
    for (const at::Tensor& param : module.parameters) own += param.numel();
    size.largest_layer_params = std::max(size.largest_layer_params, own);
  }
  return size;
}

void estimate_zero2_model_states_mem_needs_all_live(const std::shared_ptr<torch::nn::Module>& model,
                                                    const PlannedHardware& hardware,
                                                    double additional_buffer_factor, std::ostream& out) {
  const ModelSize size = model_size(describe_module(model));
  estimate_zero2_model_states_mem_needs_all_cold(size.total_params, hardware, additional_buffer_factor, out);
}

void estimate_zero3_model_states_mem_needs_all_live(const std::shared_ptr<torch::nn::Module>& model,
                                                    const PlannedHardware& hardware,
                                                    double additional_buffer_factor, std::ostream& out) {
  const ModelSize size = model_size(describe_module(model));
  estimate_zero3_model_states_mem_needs_all_cold(size.total_params, size.largest_layer_params, hardware,
                                                 additional_buffer_factor, out);
}

}  // namespace deepspeed::zero
