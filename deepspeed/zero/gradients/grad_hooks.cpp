#include "deepspeed/zero/gradients/grad_hooks.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {
namespace {

// Shared by all hooks. Autograd may call from several threads, and may outlive the engine.
struct Target {
  std::mutex mutex;
  GradReducer* reducer = nullptr;
};

class Hook : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::shared_ptr<Target> target, size_t group, size_t param)
      : target_(std::move(target)), group_(group), param_(param) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    const std::lock_guard lock(target_->mutex);
    if (target_->reducer != nullptr) target_->reducer->on_gradient(group_, param_);
    return outputs;
  }

 private:
  std::shared_ptr<Target> target_;
  size_t group_;
  size_t param_;
};

using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<at::Tensor>()));

}  // namespace

class GradHooks::Impl {
 public:
  Impl(ParamStore& store, GradReducer& reducer) : target_(std::make_shared<Target>()) {
    target_->reducer = &reducer;
    for (size_t group = 0; group < store.groups().size(); ++group) {
      const auto& params = store.groups()[group].params;
      for (size_t param = 0; param < params.size(); ++param) {
        Accumulator accumulator = torch::autograd::impl::grad_accumulator(params[param].tensor);
        const uintptr_t key = accumulator->add_post_hook(std::make_unique<Hook>(target_, group, param));
        hooks_.emplace_back(std::move(accumulator), key);
      }
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(target_->mutex);
      target_->reducer = nullptr;
    }
    for (auto& [accumulator, key] : hooks_) accumulator->del_post_hook(key);
  }

  void on_unit_done(size_t unit) {
    const std::lock_guard lock(target_->mutex);
    target_->reducer->on_unit_done(unit);
  }

 private:
  std::shared_ptr<Target> target_;
  // An accumulator is recreated without its hook once its last handle is gone, so keep a handle.
  std::vector<std::pair<Accumulator, uintptr_t>> hooks_;
};

GradHooks::GradHooks(ParamStore& store, GradReducer& reducer)
    : impl_(std::make_unique<Impl>(store, reducer)) {}
GradHooks::~GradHooks() = default;

void GradHooks::on_unit_done(size_t unit) { impl_->on_unit_done(unit); }

bool has_grad_hook(torch::autograd::Node& node) {
  const auto& hooks = node.post_hooks();
  return std::any_of(hooks.begin(), hooks.end(),
                     [](const auto& hook) { return dynamic_cast<const Hook*>(hook.get()) != nullptr; });
}

}  // namespace deepspeed::zero
