#include "deepspeed/autograd/saved_tensors.h"

#include <mutex>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "deepspeed/autograd/node_handle.h"
#include "deepspeed/base/error.h"

namespace deepspeed::autograd {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

std::vector<SavedTensorHooks*>& hooks_of_thread() {
  thread_local std::vector<SavedTensorHooks*> stack;
  return stack;
}

/// Hands one saved tensor of autograd to the hooks that were current when it was saved.
class PackThrough : public SavedVariableHooks {
 public:
  explicit PackThrough(SavedTensorHooks& hooks) : hooks_(&hooks) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    packed_ = std::exchange(hooks_, nullptr)->pack(tensor);
  }
  at::Tensor call_unpack_hook() override { return packed_->unpack(); }

 private:
  SavedTensorHooks* hooks_;
  std::unique_ptr<PackedTensor> packed_;
};

/// Stands before the process's engine of autograd, which each saved tensor asks for default hooks; all else
/// it leaves to that engine. Hooks that Python code has set there are the innermost ones.
class HookEngine final : public Engine {
 public:
  explicit HookEngine(Engine& base) : base_(base) {}

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return base_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, NodeHandle root,
      torch::autograd::InputBuffer&& buffer) override {
    return base_.execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return base_.make_anomaly_metadata();
  }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (auto hooks = base_.get_default_saved_variable_hooks()) return hooks;
    if (auto* hooks = current_saved_tensor_hooks()) return std::make_unique<PackThrough>(*hooks);
    return nullptr;
  }

 private:
  Engine& base_;
};

HookEngine* hook_engine = nullptr;

Engine& get_hook_engine() { return *hook_engine; }

/// Puts the engine in front. Nodes keep using it, so it is never taken away; a stub that is set later, by
/// Python's fork handler for instance, is followed by another one of ours.
void install() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Engine& current = Engine::get_default_engine();
  if (&current == hook_engine) return;
  hook_engine = new HookEngine(current);
  torch::autograd::set_default_engine_stub(&get_hook_engine);
}

}  // namespace

SavedTensorHooks* current_saved_tensor_hooks() {
  const auto& stack = hooks_of_thread();
  return stack.empty() ? nullptr : stack.back();
}

SavedTensorScope::SavedTensorScope(SavedTensorHooks& hooks) {
  install();
  hooks_of_thread().push_back(&hooks);
}
SavedTensorScope::~SavedTensorScope() { hooks_of_thread().pop_back(); }

NoSavedTensorHooks::NoSavedTensorHooks() { hooks_of_thread().push_back(nullptr); }
NoSavedTensorHooks::~NoSavedTensorHooks() { hooks_of_thread().pop_back(); }

KeptTensor::KeptTensor(const at::Tensor& tensor) : value_(tensor.detach()), version_(tensor._version()) {}

at::Tensor KeptTensor::unpack() {
  if (value_._version() != version_) {
    raise<UsageError>("a tensor of ", value_.scalar_type(), " and sizes ", value_.sizes(),
                      " that backward needs was written in place: it is at version ", value_._version(),
                      ", expected ", version_, "; write into a clone() of it");
  }
  return value_;
}

}  // namespace deepspeed::autograd
