// The parts of the module `deepspeed._core`. Each function is defined in a file of the same name, except that
// bind_ops() is in ops/functional.cpp.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace deepspeed::python {

namespace py = pybind11;
using namespace py::literals;  // "name"_a names an argument

void bind_errors(py::module_& module);
void bind_interrupts(py::module_& module);
void bind_world(py::module_& module);
void bind_mpu(py::module_& module);
void bind_config(py::module_& module);
void bind_parameters(py::module_& module);
void bind_scopes(py::module_& module);
void bind_engine(py::module_& module);
void bind_pipeline_plans(py::module_& module);
void bind_pipeline_engine(py::module_& module);
void bind_random(py::module_& module);
void bind_recomputation(py::module_& module);
void bind_autocast(py::module_& module);
void bind_own_optimizer(py::module_& module);
void bind_schedules(py::module_& module);
void bind_tensor_access(py::module_& module);
void bind_owned_state(py::module_& module);
void bind_state_loading(py::module_& module);
void bind_monitors(py::module_& module);
void bind_ops(py::module_& module);
void bind_transformer(py::module_& module);
void bind_tools(py::module_& module);
void bind_launcher(py::module_& module);

}  // namespace deepspeed::python
