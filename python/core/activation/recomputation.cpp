// deepspeed.checkpointing: the core keeps a Python function's inputs and calls the function again in
// backward.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "deepspeed/checkpointing.h"
#include "deepspeed/comm/mpu.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/objects/tensor_lists.h"

namespace deepspeed::python {
namespace {

using checkpointing::RegionOptions;
using checkpointing::TensorFunction;
using checkpointing::TensorList;

/// Returns a function that calls `function` in Python, on any thread that runs backward.
TensorFunction function_of(const py::object& function) {
  return [held = hold(function)](TensorList inputs) {
    const py::gil_scoped_acquire gil;
    py::list list = list_of(inputs);
    inputs.clear();
    return tensors_of((*held)(list));
  };
}

// Early stopping is off: its exception may not pass through the interpreter's frames.
py::list checkpoint_tensors(const py::object& function, const py::list& inputs, bool use_reentrant,
                            const std::string& name, uintptr_t identity) {
  RegionOptions options{
      .use_reentrant = use_reentrant, .stop_early = false, .name = name, .names_errors = false};
  options.identity = reinterpret_cast<const void*>(identity);
  TensorFunction run = function_of(function);
  TensorList tensors = tensors_of(inputs);
  TensorList outputs;
  {
    const py::gil_scoped_release release;
    outputs = checkpointing::checkpoint_tensors(std::move(run), std::move(tensors), options);
  }
  return list_of(outputs);
}

void configure(const std::shared_ptr<Mpu>& mpu, bool partition_activations, bool contiguous_checkpointing,
               std::optional<int64_t> num_checkpoints, bool checkpoint_in_cpu, bool synchronize,
               bool profile) {
  checkpointing::configure(mpu, {.partition_activations = partition_activations,
                                 .contiguous_checkpointing = contiguous_checkpointing,
                                 .num_checkpoints = num_checkpoints,
                                 .checkpoint_in_cpu = checkpoint_in_cpu,
                                 .synchronize = synchronize,
                                 .profile = profile});
}

}  // namespace

void bind_recomputation(py::module_& module) {
  module.def("checkpoint_tensors", &checkpoint_tensors, "function"_a, "inputs"_a, "use_reentrant"_a, "name"_a,
             "identity"_a);
  module.def("configure_checkpointing", &configure, NoGil(), "mpu"_a.none(true), "partition_activations"_a,
             "contiguous_checkpointing"_a, "num_checkpoints"_a, "checkpoint_in_cpu"_a, "synchronize"_a,
             "profile"_a);
  module.def("reset_checkpointing", &checkpointing::reset);
}

}  // namespace deepspeed::python
