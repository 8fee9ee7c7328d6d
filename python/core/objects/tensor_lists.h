// Converts lists of tensors between the core and Python, which uses None for an undefined tensor.
#pragma once

#include <optional>
#include <vector>

#include <torch/csrc/utils/pybind.h>

namespace deepspeed::python {

namespace py = pybind11;

inline py::list list_of(const std::vector<at::Tensor>& tensors) {
  py::list list;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) {
      list.append(tensor);
    } else {
      list.append(py::none());
    }
  }
  return list;
}

inline std::vector<at::Tensor> tensors_of(const py::handle& list) {
  std::vector<at::Tensor> tensors;
  for (auto& tensor : list.cast<std::vector<std::optional<at::Tensor>>>())
    tensors.push_back(tensor.value_or(at::Tensor()));
  return tensors;
}

}  // namespace deepspeed::python
