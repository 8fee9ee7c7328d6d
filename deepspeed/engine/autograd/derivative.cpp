// Autograd's graph task says which nodes it executes. Without `inputs` that list is empty and all gradients
// accumulate. With them, torch::autograd::grad() captures gradients, and backward(inputs) accumulates in the
// inputs' nodes.
#include "deepspeed/engine/autograd/derivative.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include "deepspeed/zero/gradients/grad_hooks.h"

namespace deepspeed {
namespace {

using Capture = torch::autograd::GraphTask::ExecInfo::Capture;
using Wrap = std::function<at::Tensor(const at::Tensor&)>;

class WrapCaptured : public Capture::GradCaptureHook {
 public:
  WrapCaptured(const void* key, Wrap wrap) : key_(key), wrap_(std::move(wrap)) {}
  at::Tensor operator()(const at::Tensor& gradient) override {
    return gradient.defined() && gradient.requires_grad() ? wrap_(gradient) : gradient;
  }
  const void* key() const { return key_; }

 private:
  const void* key_;
  Wrap wrap_;
};

bool is_wrapped(const Capture& capture, const void* key) {
  const auto& hooks = capture.DO_NOT_USE_DEPRECATED_get_capture_hooks();
  return std::any_of(hooks.begin(), hooks.end(), [key](const auto& hook) {
    const auto* own = dynamic_cast<const WrapCaptured*>(hook.get());
    return own != nullptr && own->key() == key;
  });
}

}  // namespace

bool is_derivative() {
  const auto* executed = torch::autograd::get_current_graph_task_exec_info();
  if (executed == nullptr || executed->empty()) return false;
  bool trains = false;
  for (const auto& [node, info] : *executed) {
    if (info.captures_) return true;
    trains = trains || (info.needed_ && zero::has_grad_hook(*node));
  }
  return !trains;
}

// Tensor hooks would not work: hooks of inputs outlive the backward, and a captured gradient is not a tensor
// yet.
void wrap_derivatives(const void* key, const Wrap& wrap) {
  const auto* executed = torch::autograd::get_current_graph_task_exec_info();
  if (executed == nullptr || !c10::GradMode::is_enabled()) return;
  for (const auto& [node, info] : *executed) {
    if (!info.captures_) continue;
    for (Capture& capture : *info.captures_) {
      if (!is_wrapped(capture, key))
        capture.DO_NOT_USE_DEPRECATED_register_capture_hook(std::make_unique<WrapCaptured>(key, wrap));
    }
  }
}

}  // namespace deepspeed
