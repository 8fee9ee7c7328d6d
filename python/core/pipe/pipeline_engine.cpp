// The engine of a pipeline, which deepspeed.runtime.pipe.engine.PipelineEngine holds. The core decides when a
// stage's layers run, and talks to the other stages, without the interpreter's lock. Python runs the layers
// and reads the data, with the lock.
#include "deepspeed/pipe/engine/pipeline_engine.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/module/pipeline_module.h"

#include "python/core/engine/engine_options.h"
#include "python/core/engine/model.h"
#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/objects/tensor_lists.h"
#include "python/core/ranks/mpu.h"
#include "python/core/ranks/world.h"

namespace deepspeed::python {
namespace {

using pipe::Tensors;

// Describes a layer: its class, the key and the weights that tie it (key None: not tied), its model (None: on
// another stage, or a function), and whether a tied layer has a forward_fn.
using LayerEntry =
    std::tuple<std::string, std::optional<std::string>, std::vector<std::string>, py::object, bool>;

EngineModel model_of(const py::object& model) { return model.is_none() ? EngineModel{} : describe(model); }

pipe::LayerSpec spec_of(const LayerEntry& entry) {
  const auto& [class_name, key, weight_attrs, model, has_forward_fn] = entry;
  const EngineModel described = model_of(model);
  if (!key) {
    return {class_name, [name = class_name, described] { return pipe::Layer{name, {}, described}; }};
  }
  const pipe::TiedModule tied{class_name, nullptr, described};
  return pipe::TiedLayerSpec(
      class_name, pipe::Tie{*key, weight_attrs, [tied] { return tied; },
                            [](const pipe::TiedModule&) { return pipe::TensorFunction(); }, has_forward_fn});
}

/// Returns a function that runs a chunk's layers in Python. forward(chunk, inputs) returns a list of outputs.
std::function<Tensors(int, const Tensors&)> forward_of(const py::dict& stage) {
  return [forward = hold(stage["forward"])](int chunk, const Tensors& inputs) {
    const py::gil_scoped_acquire gil;
    return tensors_of((*forward)(chunk, list_of(inputs)));
  };
}

/// Returns a function that gets the loss from Python, for the latest outputs of forward().
pipe::LossFunction loss_of(const py::dict& stage) {
  return [loss = hold(stage["loss"])](const Tensors&, const Tensors&) {
    const py::gil_scoped_acquire gil;
    return (*loss)().cast<at::Tensor>();
  };
}

std::function<bool(const at::Tensor&)> parallel_parameters_of(const EngineModel& model) {
  std::vector<at::Tensor> marked;
  for (const NamedTensor& param : model.parameters) {
    if (is_marked_parallel(param.tensor)) marked.push_back(param.tensor);
  }
  return [marked](const at::Tensor& param) {
    return std::ranges::any_of(marked, [&](const at::Tensor& one) { return one.is_same(param); });
  };
}

std::function<std::map<std::string, at::Tensor>()> additional_losses_of(const py::dict& stage) {
  if (stage["additional_losses"].is_none()) return {};
  return [losses = hold(stage["additional_losses"])] {
    const py::gil_scoped_acquire gil;
    return (*losses)().cast<std::map<std::string, at::Tensor>>();
  };
}

std::shared_ptr<PipelineModule> make_module(const py::dict& stage) {
  PipelineModuleOptions options;
  options.topology = stage["topology"].cast<ProcessTopology>();
  options.loss_fn = loss_of(stage);
  options.additional_losses = additional_losses_of(stage);
  options.dynamic_shape = stage["dynamic_shape"].cast<bool>();
  options.model_chunks = stage["model_chunks"].cast<int>();
  options.world = current_world();
  options.front_end =
      pipe::FrontEndStage{stage["parts"].cast<Parts>(), describe(stage["model"]), forward_of(stage)};
  options.is_model_parallel_parameter = parallel_parameters_of(options.front_end->model);
  std::vector<pipe::LayerSpec> layers;
  for (const py::handle& entry : stage["layers"]) layers.push_back(spec_of(entry.cast<LayerEntry>()));
  const py::gil_scoped_release release;
  return std::make_shared<PipelineModule>(std::move(layers), std::move(options));
}

std::shared_ptr<PipelineEngine> make_pipeline_engine(const py::dict& stage, const py::dict& config,
                                                     const py::list& groups,
                                                     const std::optional<py::dict>& optimizer,
                                                     const py::object& make_schedule) {
  const InitializeOptions options = initialize_options(config, groups, optimizer, make_schedule);
  auto module = make_module(stage);
  const py::gil_scoped_release release;
  return std::make_shared<PipelineEngine>(std::move(module), options);
}

/// Returns an iterator that calls Python for each micro batch. It is empty if `next` is None. next() returns
/// the inputs, or None at the end. Labels stay with Python, which only uses those of its own stage.
pipe::DataIterator data_of(const py::object& next) {
  if (next.is_none()) return {};
  return pipe::DataIterator([next = hold(next)]() -> std::optional<pipe::MicroBatch> {
    const py::gil_scoped_acquire gil;
    const py::object inputs = (*next)();
    if (inputs.is_none()) return std::nullopt;
    return pipe::MicroBatch{tensors_of(inputs), {}};
  });
}

at::Tensor train_batch(PipelineEngine& engine, const py::object& next) {
  const pipe::DataIterator data = data_of(next);
  const py::gil_scoped_release release;
  return engine.train_batch(data);
}

/// Returns the mean loss, or None if this stage does not have it. If `averages` is false, the last stage also
/// returns the losses of the micro batches.
std::pair<std::optional<at::Tensor>, Tensors> eval_batch(PipelineEngine& engine, const py::object& next,
                                                         bool compute_loss, bool averages, bool bcast_loss,
                                                         std::optional<int> num_micro_batches) {
  const pipe::DataIterator data = data_of(next);
  EvalBatchOptions options{
      .compute_loss = compute_loss, .bcast_loss = bcast_loss, .num_micro_batches = num_micro_batches};
  if (!averages) options.reduce_output.reset();
  const py::gil_scoped_release release;
  EvalBatchResult result = engine.eval_batch(data, options);
  std::optional<at::Tensor> loss;
  if (result.loss.defined()) loss = result.loss;
  return {loss, std::move(result.losses)};
}

/// Translates EndOfData to StopIteration if the data ended between two batches. Within a batch it stays
/// EndOfData.
void translate_end(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const pipe::EndOfData& end) {
    if (end.num_read() > 0) throw;
    py::set_error(PyExc_StopIteration, end.what());
  }
}

}  // namespace

void bind_pipeline_engine(py::module_& module) {
  py::register_exception_translator(&translate_end);
  py::class_<PipelineEngine, TrainingEngine, std::shared_ptr<PipelineEngine>>(module, "PipelineEngine")
      .def("train_batch", &train_batch, "read"_a)
      .def("eval_batch", &eval_batch, "read"_a, "compute_loss"_a, "reduces"_a, "bcast_loss"_a,
           "num_micro_batches"_a)
      .def("reset_activation_shape", &PipelineEngine::reset_activation_shape, NoGil())
      .def("get_additional_losses", &PipelineEngine::get_additional_losses)
      .def("is_gradient_accumulation_boundary", &PipelineEngine::is_gradient_accumulation_boundary);
  module.def("make_pipeline_engine", &make_pipeline_engine, "stage"_a, "config"_a, "groups"_a, "optimizer"_a,
             "make_schedule"_a);
}

}  // namespace deepspeed::python
