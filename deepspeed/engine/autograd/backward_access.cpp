#include "deepspeed/engine/autograd/backward_access.h"

#include <mutex>
#include <set>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "deepspeed/engine/autograd/derivative.h"
#include "deepspeed/tensor/saved_value.h"
#include "deepspeed/zero/param_access.h"

namespace deepspeed {
namespace {

using PoolPtr = std::shared_ptr<zero::GatherPool>;

/// Keeps the stage 3 access windows of running backwards, one for each backward and pool.
class BackwardWindows {
 public:
  static BackwardWindows& instance() {
    static auto& all = *new BackwardWindows;
    return all;
  }

  void open(const PoolPtr& pool) {
    const Key key{torch::autograd::get_current_graph_task_id(), pool.get()};
    {
      const std::lock_guard lock(mutex_);
      if (!open_.insert(key).second) return;
    }
    // Autograd destroys its callbacks when the backward ends, even after a failure that skips calling them.
    torch::autograd::Engine::get_default_engine().queue_callback(
        [window = std::make_shared<Window>(key, pool)]() mutable { window.reset(); });
  }

 private:
  using Key = std::pair<int, const void*>;  // autograd's id of the backward, and the pool

  struct Window {
    Window(Key given, const PoolPtr& pool) : key(given), access(pool, zero::AccessMode::kBackward) {}
    ~Window() { instance().forget(key); }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;
    Key key;
    zero::ParameterAccess access;
  };

  void forget(const Key& key) {
    const std::lock_guard lock(mutex_);
    open_.erase(key);
  }

  std::mutex mutex_;
  std::set<Key> open_;
};

class OpenAccess : public torch::autograd::Function<OpenAccess> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& output,
                            PoolPtr pool) {
    save_value(context, std::move(pool));
    return output.detach();  // not a view, so the program may modify it in place: `loss *= n`
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto pool = saved_value<PoolPtr>(context);
    BackwardWindows::instance().open(pool);
    // The backward of a derivative uses the parameters again, but may not pass through the outputs.
    wrap_derivatives(pool.get(),
                     [pool](const at::Tensor& made) { return open_access_in_backward(made, pool); });
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor open_access_in_backward(const at::Tensor& output, std::shared_ptr<zero::GatherPool> pool) {
  if (!pool || !output.defined() || !output.requires_grad()) return output;
  return OpenAccess::apply(output, std::move(pool));
}

}  // namespace deepspeed
