// Describes a Python torch.nn.Module to the core's engine.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/engine/model/model.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Converts the dict that deepspeed/_model.py collects. Its keys are `parameters` and `buffers` [(name,
/// tensor)], `shared` [(alias, first name)], `modules` [(class, is an embedding, its own parameters)],
/// `parts` [(name, class, parameters, modules below, is a leaf)], `set_training` (callable of a bool) and
/// `owner`.
EngineModel describe(const py::dict& model);

}  // namespace deepspeed::python
