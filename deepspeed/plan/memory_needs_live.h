// DeepSpeed's planning functions for a model that is there: plan/memory_needs.h with its numbers.
#pragma once

#include <cstdint>
#include <iostream>
#include <memory>

#include "deepspeed/engine/model/model.h"
#include "deepspeed/plan/memory_needs.h"

namespace deepspeed::zero {

struct ModelSize {
  int64_t total_params = 0;          // of all parameters, shared ones once
  int64_t largest_layer_params = 0;  // of the largest module, without its children's
};

ModelSize model_size(const EngineModel& model);

/// Print a table of all placements. Throw UsageError as the functions for numbers, and where there is no
/// model.
void estimate_zero2_model_states_mem_needs_all_live(const std::shared_ptr<torch::nn::Module>& model,
                                                    const PlannedHardware& hardware = {},
                                                    double additional_buffer_factor = 1.5,
                                                    std::ostream& out = std::cout);
void estimate_zero3_model_states_mem_needs_all_live(const std::shared_ptr<torch::nn::Module>& model,
                                                    const PlannedHardware& hardware = {},
                                                    double additional_buffer_factor = 1.5,
                                                    std::ostream& out = std::cout);

}  // namespace deepspeed::zero
