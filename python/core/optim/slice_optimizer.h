// A Python optimizer of any class, behind the interface that every ZeRO stage steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::python {

namespace py = pybind11;

/// Passes each slice to a Python SliceStepper (deepspeed/_slices.py), which steps the client's optimizer. If
/// `is_elementwise` is false, slices must hold whole parameters, which only stage 0 provides.
class SliceOptimizer : public optim::Optimizer {
 public:
  SliceOptimizer(std::vector<optim::ParamGroup> groups, std::shared_ptr<py::object> stepper, std::string name,
                 bool is_elementwise);

  std::string name() const override { return name_; }
  bool is_elementwise() const override { return is_elementwise_; }
  void step(const optim::FlatSlice& slice, double gradient_scale) override;
  optim::SliceState state(size_t slice_id) const override;
  void load_state(size_t slice_id, const optim::SliceState& state) override;
  void check_state(const optim::SliceState& state) const override;
  int64_t state_bytes() const override;

 private:
  std::shared_ptr<py::object> stepper_;
  std::string name_;
  bool is_elementwise_;
};

}  // namespace deepspeed::python
