#include "deepspeed/config/training/tables.h"

namespace deepspeed::config {

const Table<CompileConfig>& compile_table() {
  using C = CompileConfig;
  static const Table<C> table({
      entry("deepcompile", &C::deepcompile, "Turns the section on.", {not_yet()}),
      entry("free_activation", &C::free_activation, "Free activations early."),
      entry("free_activation_threshold", &C::free_activation_threshold, "Only those of so many bytes."),
      entry("offload_activation", &C::offload_activation, "Keep activations on the host."),
      entry("offload_activation_pin_memory", &C::offload_activation_pin_memory, "In page-locked memory."),
      entry("offload_opt_states", &C::offload_opt_states, "Keep the optimizer's state on the host."),
      entry("double_buffer", &C::double_buffer, "Gather into two buffers in turn."),
      entry("symmetric_memory", &C::symmetric_memory, "Collectives in symmetric memory."),
      entry("debug_log", &C::debug_log, "Log what is done."),
      entry("offload_parameters", &C::offload_parameters, "Keep parameters on the host."),
      entry("sync_before_reduce", &C::sync_before_reduce, "Wait for the device before a reduction."),
      entry("sync_after_reduce", &C::sync_after_reduce, "Wait for the device after a reduction."),
      entry("sync_before_allgather", &C::sync_before_allgather, "Wait for the device before a gather."),
      entry("sync_after_allgather", &C::sync_after_allgather, "Wait for the device after a gather."),
      entry("keep_int_input_tensors", &C::keep_int_input_tensors, "Keep inputs of whole numbers."),
      entry("keep_all_input_tensors", &C::keep_all_input_tensors, "Keep all inputs."),
      entry("passes", &C::passes, "The passes.", {one_of({"z1", "z3", "autosp", "autotp"})}),
  });
  return table;
}

}  // namespace deepspeed::config
