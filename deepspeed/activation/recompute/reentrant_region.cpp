#include "deepspeed/activation/recompute/reentrant_region.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include "deepspeed/autograd/split_backward.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/tensor/saved_value.h"

namespace deepspeed::activation {

using RegionPtr = std::shared_ptr<ReentrantRegion>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

/// Stops autocast from caching casts made without gradients, which later code would reuse.
class NoKeptCasts {
 public:
  NoKeptCasts() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~NoKeptCasts() { at::autocast::set_autocast_cache_enabled(before_); }
  NoKeptCasts(const NoKeptCasts&) = delete;
  NoKeptCasts& operator=(const NoKeptCasts&) = delete;

 private:
  bool before_;
};

void check_backward_is_whole(const Region& region) {
  if (torch::autograd::Engine::get_default_engine().is_checkpoint_valid()) return;
  if (autograd::current_weight_backward() != nullptr) return;
  raise<UsageError>("Checkpointing is not compatible with .grad(), which computes only some gradients: ",
                    region.options.name, " is reentrant; use backward(), or use_reentrant = false");
}

/// Returns whether the process calls the region for the first time. A region is identified by
/// RegionOptions::identity, its function's type and its name. Returns false once 10,000 regions are known.
bool is_first_of_region(const Region& region) {
  constexpr size_t kMostKept = 10000;  // for regions that pass a new function at each call
  static std::mutex mutex;
  static auto& seen = *new std::set<std::tuple<const void*, std::string, std::string>>;
  const std::lock_guard lock(mutex);
  if (seen.size() >= kMostKept) return false;
  return seen.emplace(region.options.identity, region.function.target_type().name(), region.options.name)
      .second;
}

/// Runs the backward of the recomputed graph from `outputs`, with their gradients. Returns the gradients of
/// `leaves`.
TensorList backward_of(const TensorList& outputs, const variable_list& gradients, const TensorList& leaves) {
  TensorList roots, root_gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
    roots.push_back(outputs[i]);
    root_gradients.push_back(gradients[i]);
  }
  if (auto* later = autograd::current_weight_backward()) {
    return autograd::backward_inputs(roots, root_gradients, leaves, *later);
  }
  if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
  TensorList found;
  for (const at::Tensor& leaf : leaves) found.push_back(leaf.defined() ? leaf.grad() : at::Tensor());
  return found;
}

}  // namespace

variable_list ReentrantNode::forward(AutogradContext* context, RegionPtr region, at::TensorList inputs) {
  const RegionTimer timer(*region, "forward");
  context->set_materialize_grads(false);
  context->save_for_backward(inputs.vec());
  const NoKeptCasts no_kept_casts;
  variable_list outputs = region->run_on(inputs.vec());
  variable_list without_gradient;
  for (const at::Tensor& output : outputs) {
    if (!torch::autograd::isDifferentiableType(output.scalar_type())) without_gradient.push_back(output);
  }
  context->mark_non_differentiable(without_gradient);
  save_value(context, std::move(region));
  return outputs;
}

variable_list ReentrantNode::backward(AutogradContext* context, variable_list gradients) {
  const auto region = saved_value<RegionPtr>(context);
  check_backward_is_whole(*region);
  const RegionTimer timer(*region, "recomputation");
  const TensorList leaves = region->leaves_of(context->get_saved_variables());
  TensorList outputs;
  {
    const RepeatRegion repeat(*region);
    region->repeat([&] { outputs = region->run_on(leaves); });
  }
  const MeterScope meter(region->meters);
  variable_list found = backward_of(outputs, gradients, leaves);
  found.insert(found.begin(), at::Tensor());  // for the region
  return found;
}

TensorList ReentrantRegion::run_on(const TensorList& inputs) {
  TensorList outputs = function(inputs);
  is_defined_.clear();
  for (const at::Tensor& output : outputs) is_defined_.push_back(output.defined());
  std::erase_if(outputs, [](const at::Tensor& output) { return !output.defined(); });
  return outputs;
}

TensorList ReentrantRegion::with_undefined(TensorList defined) const {
  TensorList outputs;
  auto next = defined.begin();
  for (const bool is_defined : is_defined_) outputs.push_back(is_defined ? std::move(*next++) : at::Tensor());
  return outputs;
}

TensorList run_reentrant(TensorFunction function, const TensorList& inputs, RegionOptions options) {
  if (options.keep) {
    raise<UsageError>("RegionOptions::keep needs use_reentrant = false: ", options.name, " has both");
  }
  auto region = std::make_shared<ReentrantRegion>(std::move(function), inputs, std::move(options));
  const auto& needs = region->needs_grad;
  const bool has_gradient = std::find(needs.begin(), needs.end(), true) != needs.end();
  if (!has_gradient && is_first_of_region(*region)) {
    log::warning(region->options.name,
                 " is reentrant and no input of it needs a gradient: its parameters get none; use "
                 "use_reentrant = false");
  }
  TensorList outputs;
  save_inputs_through(*region, [&] { outputs = ReentrantNode::apply(region, at::TensorList(inputs)); });
  return region->with_undefined(std::move(outputs));
}

}  // namespace deepspeed::activation
