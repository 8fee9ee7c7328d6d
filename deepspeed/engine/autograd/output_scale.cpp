// A node at each output multiplies the incoming gradient by the engine's scale. A loss that an engine scaled
// has a node at its root. That node records the scale until the backward ends, so that nodes at outputs can
// exchange it for their own. A derivative that the program asks for passes the nodes at outputs unchanged.
// The result of such a derivative gets a node of its own, since the loss may contain it.
#include "deepspeed/engine/autograd/output_scale.h"

#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "deepspeed/engine/autograd/derivative.h"
#include "deepspeed/tensor/saved_value.h"

namespace deepspeed {
namespace {

/// Maps each running backward, by autograd's id, to its root scale.
class RootScales {
 public:
  static RootScales& instance() {
    static auto& all = *new RootScales;
    return all;
  }

  /// Returns the scale of the calling node's backward. Nothing if no engine began it or scaled its loss.
  std::optional<RootScale> find() {
    const std::lock_guard lock(mutex_);
    const auto entry = of_.find(torch::autograd::get_current_graph_task_id());
    return entry == of_.end() ? std::nullopt : std::optional(entry->second);
  }

  /// Returns the scale of the calling node's backward. Sets it to `scale` first if it had none.
  RootScale find_or_begin(const RootScale& scale) {
    const int task = torch::autograd::get_current_graph_task_id();
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = of_.emplace(task, scale);
    if (is_new) torch::autograd::Engine::get_default_engine().queue_callback([this, task] { end(task); });
    return entry->second;
  }

 private:
  void end(int task) {
    const std::lock_guard lock(mutex_);
    of_.erase(task);
  }

  std::mutex mutex_;
  std::unordered_map<int, RootScale> of_;
};

/// Records in each engine's BackwardOutcome how backwards that reach its outputs end.
class BackwardEnds {
 public:
  static BackwardEnds& instance() {
    static auto& all = *new BackwardEnds;
    return all;
  }

  void watch(const std::shared_ptr<BackwardOutcome>& outcome, bool is_direct) {
    const Key key{torch::autograd::get_current_graph_task_id(), outcome.get()};
    if (key.first < 0) return;  // called outside of a backward
    {
      const std::lock_guard lock(mutex_);
      if (!watched_.insert(key).second) return;
    }
    if (is_direct) ++outcome->num_direct;
    // Autograd destroys its callbacks when the backward ends, even after a failure that skips calling them.
    torch::autograd::Engine::get_default_engine().queue_callback(
        [end = std::make_shared<End>(key, outcome)]() mutable {
          end->is_good = true;
          end.reset();
        });
  }

 private:
  using Key = std::pair<int, const void*>;  // autograd's id of the backward, and the outcome

  struct End {
    End(Key given, std::shared_ptr<BackwardOutcome> of) : key(given), outcome(std::move(of)) {
      ++outcome->num_open;
    }
    ~End() {
      if (!is_good) outcome->has_failed = true;
      --outcome->num_open;
      instance().forget(key);
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;
    Key key;
    std::shared_ptr<BackwardOutcome> outcome;
    bool is_good = false;
  };

  void forget(const Key& key) {
    const std::lock_guard lock(mutex_);
    watched_.erase(key);
  }

  std::mutex mutex_;
  std::set<Key> watched_;
};

at::Tensor multiply(const at::Tensor& gradient, double factor) {
  return gradient.defined() && factor != 1.0 ? gradient.mul(factor) : gradient;
}

class ScaleGradient : public torch::autograd::Function<ScaleGradient> {
 public:
  using Scale = std::shared_ptr<OutputScale>;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& output,
                            Scale scale) {
    save_value(context, std::move(scale));
    return output.detach();  // not a view, so the program may modify it in place
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const Scale scale = saved_value<Scale>(context);
    if (is_derivative()) {
      // Engines that share the tensor would each scale it; only the one nearest to the loss does.
      static const char all_engines = 0;
      wrap_derivatives(&all_engines,
                       [scale](const at::Tensor& made) { return scale_gradient_of(made, scale); });
      return {gradients[0], at::Tensor()};
    }
    const std::optional<RootScale> root = RootScales::instance().find();
    BackwardEnds::instance().watch(scale->outcome, /*is_direct=*/!root || !root->is_divided);
    return {multiply(gradients[0], factor(*scale, root)), at::Tensor()};
  }

 private:
  static double factor(const OutputScale& own, const std::optional<RootScale>& root) {
    if (!root) return own.loss_scale / own.accumulation_steps;
    const double exchanged = own.loss_scale / root->loss_scale;
    return root->is_divided ? exchanged : exchanged / own.accumulation_steps;
  }
};

class BeginScaled : public torch::autograd::Function<BeginScaled> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& loss,
                            const RootScale& scale, double value_scale) {
    save_value(context, scale);
    return value_scale == 1.0 ? loss.view_as(loss) : loss.mul(value_scale);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    // Terms of one loss may be scaled for different engines; all of them use the scale of the first.
    const RootScale root = RootScales::instance().find_or_begin(saved_value<RootScale>(context));
    return {multiply(gradients[0], root.loss_scale / root.divisor), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor scale_gradient_of(const at::Tensor& output, std::shared_ptr<OutputScale> scale) {
  if (!output.defined() || !output.requires_grad()) return output;
  return ScaleGradient::apply(output, std::move(scale));
}

at::Tensor with_root_scale(const at::Tensor& loss, const RootScale& scale) {
  return BeginScaled::apply(loss, scale, 1.0);
}

at::Tensor scale_loss(const at::Tensor& loss, double loss_scale) {
  if (is_scaled_loss(loss)) return loss;
  return BeginScaled::apply(loss, RootScale{loss_scale, 1.0, /*is_divided=*/false}, loss_scale);
}

bool is_in_backward_of_engine() {
  const auto root = RootScales::instance().find();
  return root && root->is_divided;
}

bool is_scaled_loss(const at::Tensor& loss) {
  const auto* node = dynamic_cast<torch::autograd::CppNode<BeginScaled>*>(loss.grad_fn().get());
  return node != nullptr;
}

}  // namespace deepspeed
