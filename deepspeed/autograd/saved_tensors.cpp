// Every saved tensor asks the default engine for hooks. HookEngine answers that question and leaves all else
// to the engine before it, which is Python's in a process that has one. It is put in place at the first use,
// once, and lives as long as the process.
#include "deepspeed/autograd/saved_tensors.h"

#include <mutex>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "deepspeed/base/error.h"

namespace deepspeed::autograd {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

// The output of an operator is kept without its graph, which would keep itself alive.
class AsItIs : public SavedTensor {
 public:
  explicit AsItIs(const at::Tensor& tensor)
      : value_(tensor.is_leaf() ? tensor : tensor.detach()), version_(value_._version()) {}
  at::Tensor unpack() override {
    if (value_._version() != version_)
      raise<UsageError>("a tensor that backward needs was written to in place after its use");
    return value_;
  }

 private:
  at::Tensor value_;
  int64_t version_;
};

std::vector<SavedTensorProvider*>& providers() {
  static thread_local std::vector<SavedTensorProvider*> stack;
  return stack;
}

class Hooks : public SavedVariableHooks {
 public:
  explicit Hooks(SavedTensorProvider& provider) : provider_(provider) {}
  void call_pack_hook(const at::Tensor& tensor) override { saved_ = provider_.pack(tensor); }
  at::Tensor call_unpack_hook() override { return saved_->unpack(); }

 private:
  SavedTensorProvider& provider_;
  std::unique_ptr<SavedTensor> saved_;
};

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
      const std::shared_ptr<torch::autograd::GraphTask>& task, std::shared_ptr<torch::autograd::Node> root,
      torch::autograd::InputBuffer&& buffer) override {
    return base_.execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return base_.make_anomaly_metadata();
  }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (providers().empty()) return base_.get_default_saved_variable_hooks();
    if (providers().back() == nullptr) return nullptr;
    return std::make_unique<Hooks>(*providers().back());
  }

 private:
  Engine& base_;
};

HookEngine* hook_engine = nullptr;

Engine& get_hook_engine() { return *hook_engine; }

// A stub that is set later, by Python's fork handler for instance, is followed by ours again.
void install() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Engine& current = Engine::get_default_engine();
  if (&current == hook_engine) return;
  hook_engine = new HookEngine(current);
  torch::autograd::set_default_engine_stub(&get_hook_engine);
}

}  // namespace

std::unique_ptr<SavedTensor> keep_as_it_is(const at::Tensor& tensor) {
  return std::make_unique<AsItIs>(tensor);
}

SavedTensorScope::SavedTensorScope(SavedTensorProvider* provider) {
  install();
  providers().push_back(provider);
}

SavedTensorScope::~SavedTensorScope() { providers().pop_back(); }

}  // namespace deepspeed::autograd
