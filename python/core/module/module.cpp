// The module `deepspeed._core`, which gives the engine to the Python package. The package adapts names and
// arguments. Training, waiting and saving run here, without the interpreter's lock.
#include "python/core/module/bindings.h"

PYBIND11_MODULE(_core, module) {
  deepspeed::python::bind_errors(module);
  deepspeed::python::bind_interrupts(module);
  deepspeed::python::bind_world(module);
  deepspeed::python::bind_mpu(module);
  deepspeed::python::bind_config(module);
  deepspeed::python::bind_parameters(module);
  deepspeed::python::bind_engine(module);
  deepspeed::python::bind_pipeline_plans(module);
  deepspeed::python::bind_pipeline_engine(module);
  deepspeed::python::bind_scopes(module);
  deepspeed::python::bind_random(module);
  deepspeed::python::bind_recomputation(module);
  deepspeed::python::bind_autocast(module);
  deepspeed::python::bind_own_optimizer(module);
  deepspeed::python::bind_schedules(module);
  deepspeed::python::bind_tensor_access(module);
  deepspeed::python::bind_owned_state(module);
  deepspeed::python::bind_state_loading(module);
  deepspeed::python::bind_monitors(module);
  deepspeed::python::bind_ops(module);
  deepspeed::python::bind_transformer(module);
  deepspeed::python::bind_tools(module);
  deepspeed::python::bind_launcher(module);
}
