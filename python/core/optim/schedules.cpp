// The config's schedules for an optimizer without an engine: deepspeed.runtime.lr_schedules.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/schedules/lr_scheduler_factory.h"
#include "deepspeed/optim/slices/param_group.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hyperparameters.h"
#include "python/core/objects/json.h"

namespace deepspeed::python {
namespace {

/// Holds a schedule over copies of a script's groups. write() updates the script's groups.
class OwnSchedule {
 public:
  OwnSchedule(const std::string& type, const py::dict& params, const py::list& groups) {
    for (const py::handle& given : groups) {
      optim::ParamGroup& group = groups_.emplace_back();
      for (const auto& [key, value] : given.cast<py::dict>())
        set_option(group.options, py::str(key).cast<std::string>(), value);
    }
    schedule_ = optim::make_lr_scheduler(type, to_json(params, "scheduler.params"), groups_);
  }

  optim::LrScheduler& schedule() { return *schedule_; }

  /// Copies what schedules change, lr, betas and momentum, to the groups of `optimizer`.
  void write(const py::object& optimizer) {
    const py::list dicts = optimizer.attr("param_groups");
    for (size_t index = 0; index < groups_.size(); ++index) {
      const py::dict options = to_dict(groups_[index].options);
      for (const char* key : {"lr", "betas", "momentum"}) {
        if (options.contains(key) && dicts[index].contains(key)) dicts[index][key] = options[key];
      }
    }
  }

 private:
  std::vector<optim::ParamGroup> groups_;
  std::unique_ptr<optim::LrScheduler> schedule_;
};

}  // namespace

void bind_schedules(py::module_& module) {
  py::class_<OwnSchedule>(module, "Schedule")
      .def(py::init<const std::string&, const py::dict&, const py::list&>(), "name"_a, "params"_a, "groups"_a)
      .def(
          "step",
          [](OwnSchedule& self, std::optional<int64_t> iteration) { self.schedule().step(iteration); },
          "iteration"_a)
      .def("get_lr", [](OwnSchedule& self) { return self.schedule().get_lr(); })
      .def("get_last_lr", [](OwnSchedule& self) { return self.schedule().get_last_lr(); })
      .def("attributes", [](OwnSchedule& self) { return from_json(self.schedule().attributes()); })
      .def("state_dict", [](OwnSchedule& self) { return from_json(self.schedule().state_dict()); })
      .def(
          "load_state_dict",
          [](OwnSchedule& self, const py::dict& state) {
            self.schedule().load_state_dict(to_json(state, "lr_scheduler"));
          },
          "state"_a)
      .def("write", &OwnSchedule::write, "optimizer"_a);
}

}  // namespace deepspeed::python
