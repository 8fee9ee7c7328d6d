#include "deepspeed/plan/memory_needs.h"

#include <algorithm>
#include <iomanip>
#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"

namespace deepspeed::zero {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

void check_plan(int64_t total_params, const PlannedHardware& hardware, double factor) {
  if (total_params < 0) {
    raise<UsageError>("total_params is ", total_params, ", expected 0 or more");
  }
  if (hardware.num_gpus_per_node < 1 || hardware.num_nodes < 1) {
    raise<UsageError>(hardware.num_nodes, " nodes of ", hardware.num_gpus_per_node,
                      " GPUs, expected at least one of each");
  }
  if (!(factor >= 0.0)) {
    raise<UsageError>("additional_buffer_factor is ", factor, ", expected 0 or more");
  }
}

void check_largest_layer(int64_t total_params, int64_t largest_layer_params) {
  if (largest_layer_params >= 0 && largest_layer_params <= total_params) return;
  raise<UsageError>("largest_layer_params is ", largest_layer_params, ", expected 0 to total_params, ",
                    total_params);
}

std::string describe_plan(int64_t total_params, const PlannedHardware& hardware) {
  return message("Model states of ", total_params / 1'000'000, "M parameters on ", hardware.num_nodes,
                 hardware.num_nodes == 1 ? " node" : " nodes", " of ", hardware.num_gpus_per_node,
                 hardware.num_gpus_per_node == 1 ? " GPU" : " GPUs");
}

void print_row(std::ostream& out, const MemoryNeeds& needs, const std::string& options) {
  const auto print = [&](int64_t bytes) -> std::ostream& {
    return out << std::setw(9) << std::fixed << std::setprecision(2) << double(bytes) / kGibibyte
               << " GiB | ";
  };
  print(needs.cpu_mem);
  print(needs.gpu_mem) << options << "\n";
}

void print_head(std::ostream& out, const std::string& what) {
  out << what << "\n"
      << std::setw(13) << "a node's host"
      << " | " << std::setw(13) << "a GPU"
      << " | with\n";
}

std::string device_name(bool offloaded) { return offloaded ? "cpu " : "none"; }

}  // namespace

MemoryNeeds estimate_zero2_model_states_mem_needs(int64_t total_params, const PlannedHardware& hardware,
                                                  bool cpu_offload, double additional_buffer_factor) {
  check_plan(total_params, hardware, additional_buffer_factor);
  const auto params = double(total_params);
  const auto gpus = double(hardware.num_nodes * hardware.num_gpus_per_node);
  if (cpu_offload) {
    return {int64_t(params * std::max(4.0 * gpus, 16.0) * additional_buffer_factor), 2 * total_params};
  }
  // Bytes per parameter on a device: 2 for the whole 16-bit model. Of the partitioned rest: 2 + 4 for
  // gradients, 4 for masters, 8 for moments.
  return {int64_t(params * 4.0 * double(hardware.num_gpus_per_node) * additional_buffer_factor),
          2 * total_params + int64_t(18.0 * params / gpus)};
}

MemoryNeeds estimate_zero3_model_states_mem_needs(int64_t total_params, int64_t largest_layer_params,
                                                  const PlannedHardware& hardware,
                                                  const Zero3Placement& placement,
                                                  double additional_buffer_factor) {
  check_plan(total_params, hardware, additional_buffer_factor);
  check_largest_layer(total_params, largest_layer_params);
  const auto params = double(total_params);
  const auto gpus_per_node = double(hardware.num_gpus_per_node);
  const double gpus = double(hardware.num_nodes) * gpus_per_node;
  const int64_t largest_layer = 4 * largest_layer_params;
  const auto host = [&](double bytes_of_all) { return int64_t(bytes_of_all * additional_buffer_factor); };
  if (!placement.cpu_offload) {
    const double built = placement.zero_init ? double(largest_layer_params) : params;
    return {host(built * 4.0 * gpus_per_node), largest_layer + int64_t(18.0 * params / gpus)};
  }
  // A host holds its part of the states, or every rank's whole fp32 model while it is built. Rounding follows
  // DeepSpeed's order.
  const double state_bytes = placement.cpu_offload_params ? 18.0 : 16.0;
  const double part = 1.0 / double(hardware.num_nodes);
  const int64_t shards = placement.cpu_offload_params ? 0 : int64_t(2.0 * params / gpus);
  return {host(placement.zero_init ? params * state_bytes * part
                                   : params * std::max(4.0 * gpus_per_node, state_bytes * part)),
          largest_layer + shards};
}

void estimate_zero2_model_states_mem_needs_all_cold(int64_t total_params, const PlannedHardware& hardware,
                                                    double additional_buffer_factor, std::ostream& out) {
  check_plan(total_params, hardware, additional_buffer_factor);
  print_head(out, describe_plan(total_params, hardware) + ", ZeRO stage 2");
  for (const bool offload : {true, false}) {
    print_row(
        out, estimate_zero2_model_states_mem_needs(total_params, hardware, offload, additional_buffer_factor),
        "offload_optimizer " + device_name(offload));
  }
}

void estimate_zero3_model_states_mem_needs_all_cold(int64_t total_params, int64_t largest_layer_params,
                                                    const PlannedHardware& hardware,
                                                    double additional_buffer_factor, std::ostream& out) {
  check_plan(total_params, hardware, additional_buffer_factor);
  check_largest_layer(total_params, largest_layer_params);
  print_head(out, describe_plan(total_params, hardware) + message(", ", largest_layer_params / 1'000'000,
                                                                  "M in the largest layer, ZeRO stage 3"));
  for (const auto& [optimizer, params] : {std::pair(true, true), {true, false}, {false, false}}) {
    for (const bool zero_init : {true, false}) {
      print_row(
          out,
          estimate_zero3_model_states_mem_needs(total_params, largest_layer_params, hardware,
                                                {optimizer, params, zero_init}, additional_buffer_factor),
          message("offload_param ", device_name(params), ", offload_optimizer ", device_name(optimizer),
                  ", zero_init ", zero_init ? 1 : 0));
    }
  }
}

}  // namespace deepspeed::zero
