// Scopes of a training step that Python opens and closes. Each begins when it is constructed.
#include "deepspeed/engine/step/scopes.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/engine/assembly/engine_parts.h"
#include "deepspeed/engine/autograd/derivative.h"
#include "deepspeed/engine/engine.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/engine/step/step_driver.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/param_access.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"

namespace deepspeed::python {
namespace {

/// Holds a forward of the engine open from construction to close().
class Forward {
 public:
  explicit Forward(const TrainingEngine& engine) { scope_.emplace(engine.driver()); }
  at::Tensor output(const at::Tensor& tensor) const { return scope_->output(tensor); }
  bool has_graphs() const { return scope_->has_graphs(); }
  /// Runs `call` as a device graph. `rest` describes the arguments that are not tensors. `call` takes
  /// tensors, and returns tensors and any object. Returns both.
  py::tuple run_graphed(const std::vector<at::Tensor>& tensors, const std::string& rest,
                        const py::function& call) const {
    ForwardResult result;
    {
      const py::gil_scoped_release released;  // the capture runs a backward
      result = scope_->run_graph({tensors, rest}, [&](const std::vector<at::Tensor>& given) {
        const py::gil_scoped_acquire gil;
        const auto [made, frame] = call(given).cast<std::pair<std::vector<at::Tensor>, py::object>>();
        return ForwardResult{made, hold(frame)};
      });
    }
    return py::make_tuple(result.tensors, *static_cast<const py::object*>(result.frame.get()));
  }
  void close() { scope_.reset(); }

 private:
  std::optional<ForwardScope> scope_;
};

/// Lets calls of the module that bypass the engine read stage 3's parameters, until close().
class Access {
 public:
  explicit Access(const TrainingEngine& engine) {
    const TrainingState& state = engine.driver().state();
    const auto mode = state.is_training ? zero::AccessMode::kForward : zero::AccessMode::kEvaluation;
    if (state.parts.pool) window_.emplace(state.parts.pool, mode);
  }
  void close() { window_.reset(); }

 private:
  std::optional<zero::ParameterAccess> window_;
};

/// Keeps a module's own parameters whole from construction to close(). A module may read them without torch
/// operators, as kernels that take addresses do.
class ModuleUse {
 public:
  explicit ModuleUse(const std::vector<at::Tensor>& params) {
    try {
      for (const at::Tensor& param : params) begin(param);
    } catch (...) {
      close();
      throw;
    }
  }
  ~ModuleUse() { close(); }

  void close() {
    for (const auto& storage : std::exchange(used_, {})) storage->pool()->end_module(*storage);
  }

 private:
  void begin(const at::Tensor& param) {
    auto storage = zero::partitioned_storage_of(param);
    if (storage && storage->pool()->begin_module(*storage)) used_.push_back(std::move(storage));
  }

  std::vector<std::shared_ptr<zero::PartitionedStorage>> used_;
};

/// Holds the scope of coalesce_grad_reduction() open from construction to close() or forget().
class OpenCoalescedReduction {
 public:
  explicit OpenCoalescedReduction(Engine& engine)
      : scope_(new CoalescedReduction(engine.coalesce_grad_reduction())) {}
  ~OpenCoalescedReduction() { forget(); }

  /// Reduces the summed gradients and ends the scope. Collective.
  void close() { delete scope_.release(); }  // may throw, unlike the destructor call in unique_ptr::reset()
  /// Ends the scope as an exception would: drops the gradients that it has summed.
  void forget() {
    if (const auto held = std::move(scope_)) held->forget();
  }

 private:
  std::unique_ptr<CoalescedReduction> scope_;
};

/// Holds the scope of no_sync() open from construction to close().
struct OpenNoSync {
  explicit OpenNoSync(Engine& engine) : scope(new NoSync(engine.no_sync())) {}
  std::unique_ptr<NoSync> scope;
};

}  // namespace

void bind_scopes(py::module_& module) {
  module.def("is_derivative", &is_derivative);
  py::class_<Forward>(module, "Forward")
      .def(py::init<const TrainingEngine&>(), NoGil(), py::keep_alive<1, 2>(), "engine"_a)
      .def("output", &Forward::output, NoGil(), "tensor"_a)
      .def("has_graphs", &Forward::has_graphs)
      .def("run_graphed", &Forward::run_graphed, "tensors"_a, "rest"_a, "call"_a)
      .def("close", &Forward::close, NoGil());
  py::class_<Access>(module, "Access")
      .def(py::init<const TrainingEngine&>(), NoGil(), "engine"_a)
      .def("close", &Access::close, NoGil());
  py::class_<ModuleUse>(module, "ModuleUse")
      .def(py::init<const std::vector<at::Tensor>&>(), NoGil(), "params"_a)
      .def("close", &ModuleUse::close, NoGil());
  py::class_<OpenNoSync>(module, "NoSync")
      .def(py::init<Engine&>(), NoGil(), py::keep_alive<1, 2>(), "engine"_a)
      .def(
          "close", [](OpenNoSync& open) { open.scope.reset(); }, NoGil());
  py::class_<OpenCoalescedReduction>(module, "CoalescedReduction")
      .def(py::init<Engine&>(), NoGil(), py::keep_alive<1, 2>(), "engine"_a)
      .def("close", &OpenCoalescedReduction::close, NoGil())
      .def("forget", &OpenCoalescedReduction::forget, NoGil());
}

}  // namespace deepspeed::python
