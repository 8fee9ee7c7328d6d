// The engines. deepspeed.runtime.engine.DeepSpeedEngine holds an Engine and calls it. PipelineEngine
// (pipe/pipeline_engine.cpp) shares the members of TrainingEngine.
#include "deepspeed/engine/engine.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/assembly/engine_parts.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/engine/step/step_driver.h"
#include "deepspeed/engine/step/training_options.h"
#include "deepspeed/optim/algorithms/lamb.h"
#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/zero_optimizer.h"

#include "python/core/engine/engine_options.h"
#include "python/core/engine/model.h"
#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/objects/hyperparameters.h"
#include "python/core/objects/json.h"
#include "python/core/objects/values.h"
#include "python/core/zero/optimizer_of.h"

namespace deepspeed::python {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;
using EnginePtr = std::shared_ptr<Engine>;

EnginePtr make_engine(const py::dict& model, const py::dict& config, const py::list& groups,
                      const std::optional<py::dict>& optimizer, const py::object& make_schedule,
                      const std::shared_ptr<Mpu>& mpu) {
  const InitializeOptions options = initialize_options(config, groups, optimizer, make_schedule, mpu);
  EngineModel described = describe(model);
  const py::gil_scoped_release release;
  auto engine = std::make_shared<Engine>(std::move(described), options);
  if (const auto& pool = engine->driver().state().parts.pool) pool->let_use_persistent();
  return engine;
}

/// Returns each group's options, parameter names, and index among the client's groups.
py::list param_groups(const TrainingEngine& engine) {
  py::list groups;
  const std::vector<size_t>& given = engine.driver().state().parts.given_groups;
  size_t index = 0;
  for (const optim::ParamGroup& group : optimizer_of(engine, "param_groups").param_groups())
    groups.append(py::make_tuple(to_dict(group.options), py::cast(group.param_names), given.at(index++)));
  return groups;
}

py::tuple load_checkpoint(TrainingEngine& engine, const std::string& directory, const std::string& tag,
                          bool strict, bool optimizer_states, bool scheduler_states, bool module_only,
                          const py::object& custom_load_fn) {
  LoadOptions options;
  options.tag = tag;
  options.load_module_strict = strict;
  options.load_optimizer_states = optimizer_states;
  options.load_lr_scheduler_states = scheduler_states;
  options.load_module_only = module_only;
  if (!custom_load_fn.is_none()) {
    options.custom_load_fn = [load = hold(custom_load_fn)](const NamedTensors& tensors) {
      const py::gil_scoped_acquire gil;
      py::list named;
      for (const NamedTensor& entry : tensors) named.append(py::make_tuple(entry.name, entry.tensor));
      (*load)(named);
    };
  }
  py::dict client_state;
  options.check_client_state = [&](const checkpoint::Dict& stored) {
    const py::gil_scoped_acquire gil;
    client_state = from_named_values(stored, "client_state");
  };
  LoadResult result;
  {
    const py::gil_scoped_release release;
    result = engine.load_checkpoint(directory, options);
  }
  return py::make_tuple(result.path, client_state);
}

void save_checkpoint(TrainingEngine& engine, const std::string& directory, const std::string& tag,
                     const py::dict& client_state, bool save_latest, bool exclude_frozen_parameters) {
  SaveOptions options;
  options.tag = tag;
  options.client_state = to_value(client_state, "client_state").as_dict();
  options.save_latest = save_latest;
  options.exclude_frozen_parameters = exclude_frozen_parameters;
  options.without_waiting_gradients = true;  // DeepSpeed's scripts may save at any time
  const py::gil_scoped_release release;
  engine.save_checkpoint(directory, options);
}

Named module_state_dict(const TrainingEngine& engine, bool exclude_frozen_parameters) {
  Named names;
  for (auto& entry : engine.module_state_dict(exclude_frozen_parameters))
    names.emplace_back(entry.name, entry.tensor);
  return names;
}

void load_module_state_dict(TrainingEngine& engine, const Named& state, bool strict) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : state) tensors.push_back({name, tensor});
  engine.load_module_state_dict(tensors, strict);
}

OffloadStateTypeEnum state_kind(const std::string& name) {
  using enum OffloadStateTypeEnum;
  static const std::map<std::string, OffloadStateTypeEnum> kinds = {
      {"optim_states", optim_states},
      {"hp_params", hp_params},
      {"lp_params", lp_params},
      {"lp_grads", lp_grads},
      {"contiguous_grad_buffer", contiguous_grad_buffer}};
  const auto found = kinds.find(name);
  if (found == kinds.end()) raise<UsageError>("unknown kind of states '", name, "'");
  return found->second;
}

OffloadDeviceEnum state_place(const std::string& name) {
  if (name == "cpu") return OffloadDeviceEnum::cpu;
  if (name == "nvme") return OffloadDeviceEnum::nvme;
  if (name == "none") return OffloadDeviceEnum::none;
  raise<UsageError>("offload_states(): device is '", name, "', expected cpu");
}

void offload_states(TrainingEngine& engine, const std::optional<std::vector<std::string>>& include,
                    const std::string& device, bool pin_memory, bool non_blocking) {
  OffloadStatesOptions options{
      .device = state_place(device), .pin_memory = pin_memory, .non_blocking = non_blocking};
  if (include) {
    options.include.emplace();
    for (const std::string& name : *include) options.include->push_back(state_kind(name));
  }
  engine.offload_states(options);
}

std::vector<at::Device> state_devices(const TrainingEngine& engine, const std::string& kind) {
  return engine.state_devices(state_kind(kind));
}

using TrainingClass = py::class_<TrainingEngine, std::shared_ptr<TrainingEngine>>;
using EngineClass = py::class_<Engine, TrainingEngine, EnginePtr>;

void bind_steps(EngineClass& engine) {
  engine
      .def(
          "backward",
          [](Engine& self, const at::Tensor& loss, bool retain_graph, bool scale_wrt_gas) {
            return self.backward(loss, {.retain_graph = retain_graph, .scale_wrt_gas = scale_wrt_gas});
          },
          NoGil(), "loss"_a, "retain_graph"_a, "scale_wrt_gas"_a)
      .def("scale", &Engine::scale, NoGil(), "loss"_a)
      .def("finish_backward", &Engine::finish_backward, NoGil())
      .def(
          "explain_forward_error",
          [](const Engine& self, const std::string& text) {
            deepspeed::explain_forward_error(self, c10::Error({__func__, __FILE__, __LINE__}, text));
          },
          "text"_a)
      .def("leave_unannounced_gradients",
           [](Engine& self) { self.optimizer()->gradients().leave_unannounced(); })
      .def("allreduce_gradients", &Engine::allreduce_gradients, NoGil(), "bucket_size"_a)
      .def(
          "step",
          [](Engine& self, std::optional<int64_t> last_batch_iteration) {
            self.step({.last_batch_iteration = last_batch_iteration});
          },
          NoGil(), "last_batch_iteration"_a)
      .def("is_gradient_accumulation_boundary", &Engine::is_gradient_accumulation_boundary)
      .def("set_gradient_accumulation_boundary", &Engine::set_gradient_accumulation_boundary, NoGil(),
           "is_boundary"_a);
}

void bind_modes(TrainingClass& engine) {
  engine.def("zero_grad", &TrainingEngine::zero_grad, NoGil())
      .def("train", &TrainingEngine::train, NoGil(), "mode"_a)
      .def(
          "destroy", [](TrainingEngine& self) { self.destroy(); }, NoGil())
      .def("empty_partition_cache", &TrainingEngine::empty_partition_cache, NoGil())
      .def("offload_states", &offload_states, NoGil(), "include"_a, "device"_a, "pin_memory"_a,
           "non_blocking"_a)
      .def("reload_states", &TrainingEngine::reload_states, NoGil(), "non_blocking"_a);
}

void bind_readings(TrainingClass& engine) {
  engine.def("get_global_grad_norm", &TrainingEngine::get_global_grad_norm, NoGil())
      .def("get_pld_theta", &TrainingEngine::get_pld_theta)
      .def("was_step_applied", &TrainingEngine::was_step_applied)
      .def("micro_steps", &TrainingEngine::micro_steps)
      .def("global_steps", &TrainingEngine::global_steps)
      .def("global_samples", &TrainingEngine::global_samples)
      .def("skipped_steps", &TrainingEngine::skipped_steps)
      .def("loss_scale", &TrainingEngine::loss_scale)
      .def("get_lr", &TrainingEngine::get_lr)
      .def("get_mom", &TrainingEngine::get_mom)
      .def("set_lr", &TrainingEngine::set_lr, "lr"_a)
      .def("get_batch_info", &TrainingEngine::get_batch_info)
      .def("set_train_batch_size", &TrainingEngine::set_train_batch_size, "train_batch_size"_a)
      .def("set_train_micro_batch_size", &TrainingEngine::set_train_micro_batch_size, "micro_batch_size"_a)
      .def("gradient_average", &TrainingEngine::gradient_average)
      .def("set_gradient_average", &TrainingEngine::set_gradient_average, NoGil(), "averages"_a)
      .def("zero_optimization_stage",
           [](const TrainingEngine& self) { return self.config().zero_optimization.stage; })
      .def("sparse_tensor_module_names",
           [](const TrainingEngine& self) {
             const auto& names = self.sparse_tensor_module_names();
             return std::vector<std::string>(names.begin(), names.end());
           })
      .def("state_devices", &state_devices, "kind"_a)
      .def("torch_autocast_dtype", [](const TrainingEngine& self) { return self.torch_autocast_dtype(); })
      .def("device", [](const TrainingEngine& self) { return self.device(); })
      .def("seed", &TrainingEngine::seed)
      .def("config", [](const TrainingEngine& self) { return from_json(config::to_json(self.config())); });
}

void bind_optimizer(TrainingClass& engine) {
  engine.def("has_optimizer", [](const TrainingEngine& self) { return self.optimizer() != nullptr; })
      .def("optimizer_class",
           [](const TrainingEngine& self) {
             return optimizer_of(self, "optimizer_class").base_optimizer().name();
           })
      .def("lamb_coeffs",
           [](const TrainingEngine& self) {
             const auto* lamb =
                 dynamic_cast<const optim::Lamb*>(&optimizer_of(self, "get_lamb_coeffs").base_optimizer());
             return lamb != nullptr ? lamb->lamb_coeffs() : std::vector<double>();
           })
      .def("param_groups", &param_groups)
      .def(
          "set_group_option",
          [](TrainingEngine& self, size_t group, const std::string& name, const py::object& value) {
            return set_option(optimizer_of(self, "param_groups").param_groups().at(group).options, name,
                              value);
          },
          "group"_a, "name"_a, "value"_a)
      .def("has_scheduler", [](const TrainingEngine& self) { return self.lr_scheduler() != nullptr; })
      .def(
          "set_scheduler",
          [](TrainingEngine& self, const py::object& make_schedule) {
            self.set_lr_scheduler(schedule_source(make_schedule));
          },
          "make_schedule"_a)
      .def(
          "scheduler_last_lr", [](const TrainingEngine& self) { return self.lr_scheduler()->get_last_lr(); },
          NoGil())
      .def(
          "scheduler_lr", [](const TrainingEngine& self) { return self.lr_scheduler()->get_lr(); }, NoGil())
      .def(
          "scheduler_step",
          [](const TrainingEngine& self, std::optional<int64_t> iteration) {
            self.lr_scheduler()->step(iteration);
          },
          NoGil(), "iteration"_a)
      .def("scheduler_attributes",
           [](const TrainingEngine& self) { return from_json(self.lr_scheduler()->attributes()); })
      .def("scheduler_state",
           [](const TrainingEngine& self) { return from_json(self.lr_scheduler()->state_dict()); })
      .def(
          "load_scheduler_state",
          [](const TrainingEngine& self, const py::dict& state) {
            self.lr_scheduler()->load_state_dict(to_json(state, "lr_scheduler"));
          },
          "state"_a);
}

void bind_saving(TrainingClass& engine) {
  engine
      .def("save_checkpoint", &save_checkpoint, "directory"_a, "tag"_a, "client_state"_a, "save_latest"_a,
           "exclude_frozen_parameters"_a)
      .def("load_checkpoint", &load_checkpoint, "directory"_a, "tag"_a, "strict"_a, "optimizer_states"_a,
           "scheduler_states"_a, "module_only"_a, "custom_load_fn"_a)
      .def("wait_for_checkpoint", &TrainingEngine::wait_for_checkpoint, NoGil())
      .def("checkpoint_is_saved", &TrainingEngine::checkpoint_is_saved)
      .def("save_16bit_model", &TrainingEngine::save_16bit_model, NoGil(), "directory"_a, "filename"_a,
           "exclude_frozen_parameters"_a)
      .def("module_state_dict", &module_state_dict, "exclude_frozen_parameters"_a)
      .def("load_module_state_dict", &load_module_state_dict, NoGil(), "state"_a, "strict"_a);
}

}  // namespace

void bind_engine(py::module_& module) {
  TrainingClass training(module, "TrainingEngine");
  bind_modes(training);
  bind_readings(training);
  bind_optimizer(training);
  bind_saving(training);
  EngineClass engine(module, "Engine");
  bind_steps(engine);
  module.def("make_engine", &make_engine, "model"_a, "config"_a, "groups"_a, "optimizer"_a, "make_schedule"_a,
             "mpu"_a.none(true));
}

}  // namespace deepspeed::python
