#include "python/core/engine/engine_options.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/slices/optimizer.h"

#include "python/core/objects/hold.h"
#include "python/core/objects/hyperparameters.h"
#include "python/core/objects/json.h"
#include "python/core/optim/schedule.h"
#include "python/core/optim/slice_optimizer.h"
#include "python/core/ranks/world.h"

namespace deepspeed::python {
namespace {

std::vector<ModelParameters> groups_of(const py::list& groups) {
  std::vector<ModelParameters> result;
  for (const py::handle& group : groups) {
    const auto [params, options] = group.cast<std::pair<std::vector<at::Tensor>, py::dict>>();
    result.push_back({params, to_json(options, "model_parameters")});
  }
  return result;
}

SliceOptimizerFactory factory_of(const py::dict& optimizer) {
  return [stepper = hold(optimizer["stepper"]), name = optimizer["name"].cast<std::string>(),
          is_elementwise = optimizer["is_elementwise"].cast<bool>()](std::vector<optim::ParamGroup> groups) {
    return std::make_unique<SliceOptimizer>(std::move(groups), stepper, name, is_elementwise);
  };
}

}  // namespace

optim::LrSchedulerSource schedule_source(const py::object& make_schedule) {
  if (make_schedule.is_none()) return nullptr;
  return [make = hold(make_schedule)](std::vector<optim::ParamGroup>& groups) {
    const py::gil_scoped_acquire gil;
    py::list options;
    for (const optim::ParamGroup& group : groups)
      options.append(py::make_tuple(to_dict(group.options), py::cast(group.param_names)));
    return std::make_shared<Schedule>(hold((*make)(options)));
  };
}

InitializeOptions initialize_options(const py::dict& config, const py::list& groups,
                                     const std::optional<py::dict>& optimizer,
                                     const py::object& make_schedule, const std::shared_ptr<Mpu>& mpu) {
  InitializeOptions options;
  options.config = config::ConfigSource(to_json(config, ""));
  options.world = current_world();
  options.mpu = mpu;
  options.starts_rank_streams = false;  // as in DeepSpeed, scripts seed their ranks themselves
  options.model_parameters = groups_of(groups);
  if (optimizer) options.slice_optimizer = factory_of(*optimizer);
  options.lr_scheduler = schedule_source(make_schedule);
  return options;
}

}  // namespace deepspeed::python
