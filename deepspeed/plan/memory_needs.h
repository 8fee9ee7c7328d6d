// DeepSpeed's planning functions. They compute what parameters, gradients and optimizer states take under
// ZeRO, given only the number of parameters, with a 16-bit model and Adam.
//
// Source of the formulas: DeepSpeed 0.19.6, docs "Memory Requirements" and stage_1_and_2.py, stage3.py.
#pragma once

#include <cstdint>
#include <iostream>
#include <memory>

#include "deepspeed/base/export.h"

namespace torch::nn {
class Module;
}

namespace deepspeed::zero {

/// Holds the bytes that a training needs.
struct MemoryNeeds {
  int64_t cpu_mem = 0;  // of one node's host
  int64_t gpu_mem = 0;  // of one device
};

/// Describes the hardware; all nodes are equal.
struct PlannedHardware {
  int64_t num_gpus_per_node = 1;
  int64_t num_nodes = 1;
};

struct Zero3Placement {
  bool cpu_offload = true;         // of the optimizer
  bool cpu_offload_params = true;  // used only with cpu_offload
  bool zero_init = true;           // the model is built partitioned, never as a whole on a host
};

/// Estimates the memory that ZeRO stage 2 needs. additional_buffer_factor scales the host's memory, for
/// buffers besides the states. All functions throw UsageError for counts below 1 (parameters: below 0) and
/// for a factor below 0.
DEEPSPEED_API MemoryNeeds estimate_zero2_model_states_mem_needs(int64_t total_params,
                                                                const PlannedHardware& hardware = {},
                                                                bool cpu_offload = true,
                                                                double additional_buffer_factor = 1.5);
/// Estimates the memory that ZeRO stage 3 needs. largest_layer_params: parameters of the largest module,
/// without its children's.
DEEPSPEED_API MemoryNeeds estimate_zero3_model_states_mem_needs(int64_t total_params,
                                                                int64_t largest_layer_params,
                                                                const PlannedHardware& hardware = {},
                                                                const Zero3Placement& placement = {},
                                                                double additional_buffer_factor = 1.5);

/// Prints the estimates for all combinations of the placement options.
DEEPSPEED_API void estimate_zero2_model_states_mem_needs_all_cold(int64_t total_params,
                                                                  const PlannedHardware& hardware = {},
                                                                  double additional_buffer_factor = 1.5,
                                                                  std::ostream& out = std::cout);
DEEPSPEED_API void estimate_zero3_model_states_mem_needs_all_cold(int64_t total_params,
                                                                  int64_t largest_layer_params,
                                                                  const PlannedHardware& hardware = {},
                                                                  double additional_buffer_factor = 1.5,
                                                                  std::ostream& out = std::cout);

/// Prints those estimates for a model, whose parameters are counted. Throws UsageError like the functions for
/// numbers, and if the model is null.
DEEPSPEED_API void estimate_zero2_model_states_mem_needs_all_live(
    const std::shared_ptr<torch::nn::Module>& model, const PlannedHardware& hardware = {},
    double additional_buffer_factor = 1.5, std::ostream& out = std::cout);
DEEPSPEED_API void estimate_zero3_model_states_mem_needs_all_live(
    const std::shared_ptr<torch::nn::Module>& model, const PlannedHardware& hardware = {},
    double additional_buffer_factor = 1.5, std::ostream& out = std::cout);

}  // namespace deepspeed::zero
