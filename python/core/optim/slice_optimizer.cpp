#include "python/core/optim/slice_optimizer.h"

#include <tuple>
#include <utility>

namespace deepspeed::python {
namespace {

using NamedStates = std::vector<std::pair<std::string, at::Tensor>>;

// Returns a slice's parameters as (begin, end, shape); none if the optimizer works element by element.
py::list places_of(const optim::FlatSlice& slice) {
  py::list places;
  if (slice.segments == nullptr) return places;
  for (const optim::Segment& segment : *slice.segments)
    places.append(py::make_tuple(segment.in_slice.begin, segment.in_slice.end, segment.shape));
  return places;
}

}  // namespace

SliceOptimizer::SliceOptimizer(std::vector<optim::ParamGroup> groups, std::shared_ptr<py::object> stepper,
                               std::string name, bool is_elementwise)
    : Optimizer(std::move(groups)),
      stepper_(std::move(stepper)),
      name_(std::move(name)),
      is_elementwise_(is_elementwise) {}

void SliceOptimizer::step(const optim::FlatSlice& slice, double gradient_scale) {
  const py::gil_scoped_acquire gil;
  stepper_->attr("step")(slice.id, slice.group, slice.master, slice.gradient, gradient_scale,
                         is_elementwise_ ? py::object(py::none()) : py::object(places_of(slice)));
  if (slice.low_precision.defined()) slice.low_precision.copy_(slice.master);
}

optim::SliceState SliceOptimizer::state(size_t slice_id) const {
  const py::gil_scoped_acquire gil;
  auto [tensors, step] = stepper_->attr("state")(slice_id).cast<std::tuple<NamedStates, int64_t>>();
  return {std::move(tensors), step};
}

void SliceOptimizer::load_state(size_t slice_id, const optim::SliceState& state) {
  const py::gil_scoped_acquire gil;
  stepper_->attr("load_state")(slice_id, state.tensors, state.step);
}

void SliceOptimizer::check_state(const optim::SliceState& state) const {
  const py::gil_scoped_acquire gil;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.tensors) names.push_back(name);
  stepper_->attr("check_state")(names);
}

int64_t SliceOptimizer::state_bytes() const {
  const py::gil_scoped_acquire gil;
  return stepper_->attr("state_bytes")().cast<int64_t>();
}

}  // namespace deepspeed::python
