#include "deepspeed/config/training/tables.h"

namespace deepspeed::config {

std::vector<Field> compile_keys() {
  return {
      boolean("deepcompile", false, "Turns the section on.", {not_yet()}),
      boolean("free_activation", false, "Free activations early."),
      integer("free_activation_threshold", 10485760, "Only those of so many bytes."),
      boolean("offload_activation", false, "Keep activations on the host."),
      boolean("offload_activation_pin_memory", true, "In page-locked memory."),
      boolean("offload_opt_states", false, "Keep the optimizer's state on the host."),
      boolean("double_buffer", true, "Gather into two buffers in turn."),
      boolean("symmetric_memory", false, "Collectives in symmetric memory."),
      boolean("debug_log", false, "Log what is done."),
      boolean("offload_parameters", false, "Keep parameters on the host."),
      boolean("sync_before_reduce", false, "Wait for the device before a reduction."),
      boolean("sync_after_reduce", false, "Wait for the device after a reduction."),
      boolean("sync_before_allgather", false, "Wait for the device before a gather."),
      boolean("sync_after_allgather", false, "Wait for the device after a gather."),
      boolean("keep_int_input_tensors", true, "Keep inputs of whole numbers."),
      boolean("keep_all_input_tensors", false, "Keep all inputs."),
      texts("passes", nullptr, "The passes.", {one_of({"z1", "z3", "autosp", "autotp"})}),
  };
}

}  // namespace deepspeed::config
