#include "python/core/optim/schedule.h"

#include "python/core/objects/json.h"

namespace deepspeed::python {

void Schedule::step() {
  const py::gil_scoped_acquire gil;
  object_->attr("step")();
}

void Schedule::step(int64_t last_batch_iteration) {
  const py::gil_scoped_acquire gil;
  object_->attr("step")(last_batch_iteration);
}

std::vector<double> Schedule::get_lr() const {
  const py::gil_scoped_acquire gil;
  return object_->attr("rates")().cast<std::vector<double>>();
}

Json Schedule::state_dict() const {
  const py::gil_scoped_acquire gil;
  return to_json(object_->attr("state_dict")(), "lr_scheduler");
}

void Schedule::load_state_dict(const Json& state) {
  const py::gil_scoped_acquire gil;
  object_->attr("load_state_dict")(from_json(state));
}

}  // namespace deepspeed::python
