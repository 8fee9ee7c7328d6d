// How each thread gets its own hooks, although torch has none in C++.
//
// 1. A scope pushes its hooks on the thread's stack. The first one installs two wrappers for the process.
// 2. When a node saves a tensor, torch asks whether it is a leaf. LeafNotingHooks notes which leaf was asked
//    for, because the next question does not get the tensor.
// 3. Torch then asks the engine for default hooks. HookEngine answers with a PackThrough over the innermost
//    hooks, unless they do not want this leaf.
// 4. PackThrough passes the tensor to pack(), and backward's question for it to unpack().
#include "deepspeed/autograd/saved_tensors.h"

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/VariableHooksInterface.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
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

/// Returns whether this thread traces for torch.compile. Traced tensors have no values and are not saved for
/// a backward.
bool is_tracing() {
  return c10::impl::TorchDispatchModeTLS::get_mode(c10::impl::TorchDispatchModeKey::FAKE).has_value();
}

/// Passes one saved tensor to the hooks that were current when it was saved.
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

/// Returns the leaf that needs a gradient and that this thread last queried by is_leaf(). It is null if the
/// last queried tensor was something else. The pointer is only compared: the tensor may be gone.
const at::TensorImpl*& latest_leaf() {
  thread_local const at::TensorImpl* leaf = nullptr;
  return leaf;
}

/// Wraps torch's variable hooks and records which leaf is queried. Code that saves a tensor calls is_leaf()
/// on it right before it asks the engine for default hooks, which do not get the tensor.
class LeafNotingHooks final : public at::impl::VariableHooksInterface {
 public:
  explicit LeafNotingHooks(const VariableHooksInterface& base) : base_(base) {}

  bool is_leaf(const at::TensorBase& tensor) const override {
    const bool is_leaf = base_.is_leaf(tensor);
    latest_leaf() = is_leaf && tensor.requires_grad() ? tensor.unsafeGetTensorImpl() : nullptr;
    return is_leaf;
  }

  at::TensorBase tensor_data(const at::TensorBase& tensor) const override {
    return base_.tensor_data(tensor);
  }
  at::TensorBase variable_data(const at::TensorBase& tensor) const override {
    return base_.variable_data(tensor);
  }
  const NodeHandle& grad_fn(const at::TensorBase& tensor) const override { return base_.grad_fn(tensor); }
  unsigned _register_hook(const at::TensorBase& tensor,
                          std::function<at::TensorBase(const at::TensorBase&)> hook) const override {
    return base_._register_hook(tensor, std::move(hook));
  }
  void remove_hook(const at::TensorBase& tensor, unsigned position) const override {
    base_.remove_hook(tensor, position);
  }
  bool is_view(const at::TensorBase& tensor) const override { return base_.is_view(tensor); }
  const at::TensorBase& base(const at::TensorBase& tensor) const override { return base_.base(tensor); }
  const std::string& name(const at::TensorBase& tensor) const override { return base_.name(tensor); }
  int64_t output_nr(const at::TensorBase& tensor) const override { return base_.output_nr(tensor); }
  void set_data(const at::TensorBase& tensor, const at::TensorBase& data) const override {
    base_.set_data(tensor, data);
  }
  at::TensorBase data(const at::TensorBase& tensor) const override { return base_.data(tensor); }
  int64_t _version(const at::TensorBase& tensor) const override { return base_._version(tensor); }
  void retain_grad(const at::TensorBase& tensor) const override { base_.retain_grad(tensor); }
  bool retains_grad(const at::TensorBase& tensor) const override { return base_.retains_grad(tensor); }
  void _backward(const at::Tensor& tensor, at::TensorList inputs, const std::optional<at::Tensor>& gradient,
                 std::optional<bool> keep_graph, bool create_graph) const override {
    base_._backward(tensor, inputs, gradient, keep_graph, create_graph);
  }
  void requires_grad_(const at::TensorBase& tensor, bool requires_grad) const override {
    base_.requires_grad_(tensor, requires_grad);
  }
  void basic_autograd_not_implemented_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                               torch::jit::Stack* stack) const override {
    base_.basic_autograd_not_implemented_fallback(op, keys, stack);
  }
  std::optional<c10::ScalarType> grad_dtype(const at::TensorBase& tensor) const override {
    return base_.grad_dtype(tensor);
  }
  void set_grad_dtype(const at::TensorBase& tensor,
                      const std::optional<c10::ScalarType>& dtype) const override {
    base_.set_grad_dtype(tensor, dtype);
  }

 private:
  const VariableHooksInterface& base_;
};

/// Wraps the process's autograd engine, which each saved tensor asks for default hooks. Everything else is
/// forwarded. Default hooks that Python code sets count as the innermost ones.
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
    auto* const hooks = current_saved_tensor_hooks();
    if (hooks == nullptr || is_tracing()) return nullptr;
    const at::TensorImpl* const leaf = std::exchange(latest_leaf(), nullptr);
    if (leaf != nullptr && !hooks->takes_leaf(leaf)) return nullptr;
    return std::make_unique<PackThrough>(*hooks);
  }

 private:
  Engine& base_;
};

HookEngine* hook_engine = nullptr;
LeafNotingHooks* leaf_noting_hooks = nullptr;

Engine& get_hook_engine() { return *hook_engine; }

/// Installs LeafNotingHooks and HookEngine unless they are there. Nodes keep using the wrapped engine, so it
/// is never removed. An engine that is set later, for instance by Python's fork handler, is wrapped too.
void install() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (auto* const hooks = at::impl::GetVariableHooks(); hooks != leaf_noting_hooks) {
    leaf_noting_hooks = new LeafNotingHooks(*hooks);
    at::impl::SetVariableHooks(leaf_noting_hooks);
  }
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

// A leaf has no grad_fn, so keeping it cannot form a cycle.
KeptTensor::KeptTensor(const at::Tensor& tensor)
    : value_(tensor.is_leaf() ? tensor : tensor.detach()), version_(tensor._version()) {}

at::Tensor KeptTensor::unpack() {
  if (value_._version() != version_) {
    raise<UsageError>("a tensor of ", value_.scalar_type(), " and sizes ", value_.sizes(),
                      " that backward needs was written in place: it is at version ", value_._version(),
                      ", expected ", version_, "; write into a clone() of it");
  }
  return value_;
}

}  // namespace deepspeed::autograd
