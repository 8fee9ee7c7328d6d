// The config's optimizers for parameters without an engine: the classes of deepspeed.ops.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/optim/algorithms/lamb.h"
#include "deepspeed/optim/factory.h"
#include "deepspeed/optim/slices/optimizer.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/objects/hyperparameters.h"
#include "python/core/objects/json.h"

namespace deepspeed::python {
namespace {

/// Steps each parameter as a separate slice, with options passed to each step.
class OwnOptimizer {
 public:
  OwnOptimizer(const std::string& type, const py::dict& params, const py::dict& options, bool on_host) {
    std::vector<optim::ParamGroup> groups(1);
    set_options(groups[0].options, options);
    optimizer_ = optim::make_optimizer(type, to_json(params, "params"), std::move(groups), on_host);
  }

  /// Steps the parameter `id`. values: (n), contiguous, updated in place; shape: of the whole parameter.
  void step(size_t id, const at::Tensor& values, const at::Tensor& gradient, const py::dict& options,
            const std::vector<int64_t>& shape) {
    optim::Hyperparameters hyperparameters = optimizer_->param_groups()[0].options;
    set_options(hyperparameters, options);
    const std::vector<optim::Segment> segments = {{0, {0, values.numel()}, 0, shape}};
    optim::FlatSlice slice;
    slice.id = id;
    slice.master = values;
    slice.gradient = gradient;
    slice.options = &hyperparameters;
    slice.segments = &segments;
    const py::gil_scoped_release release;
    optimizer_->step(slice, 1.0);
  }

  std::pair<std::vector<std::pair<std::string, at::Tensor>>, int64_t> state(size_t id) const {
    optim::SliceState state = optimizer_->state(id);
    return {std::move(state.tensors), state.step};
  }

  void load_state(size_t id, std::vector<std::pair<std::string, at::Tensor>> tensors, int64_t step) {
    optimizer_->load_state(id, {std::move(tensors), step});
  }

  std::vector<double> lamb_coeffs() const {
    const auto* lamb = dynamic_cast<const optim::Lamb*>(optimizer_.get());
    return lamb != nullptr ? lamb->lamb_coeffs() : std::vector<double>();
  }

  bool steps_sixteen_bits() const { return optimizer_->steps_sixteen_bit_masters(); }

 private:
  static void set_options(optim::Hyperparameters& into, const py::dict& options) {
    for (const auto& [key, value] : options) set_option(into, py::str(key).cast<std::string>(), value);
  }

  std::unique_ptr<optim::Optimizer> optimizer_;
};

}  // namespace

void bind_own_optimizer(py::module_& module) {
  py::class_<OwnOptimizer>(module, "OwnOptimizer")
      .def(py::init<const std::string&, const py::dict&, const py::dict&, bool>(), "name"_a, "params"_a,
           "options"_a, "is_for_cpu"_a)
      .def("step", &OwnOptimizer::step, "number"_a, "values"_a, "gradient"_a, "options"_a, "shape"_a)
      .def("state", &OwnOptimizer::state, "number"_a)
      .def("load_state", &OwnOptimizer::load_state, "number"_a, "tensors"_a, "step"_a)
      .def("lamb_coeffs", &OwnOptimizer::lamb_coeffs)
      .def("steps_sixteen_bits", &OwnOptimizer::steps_sixteen_bits);
}

}  // namespace deepspeed::python
