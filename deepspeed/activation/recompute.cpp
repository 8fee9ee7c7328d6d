// pack() of a region keeps a number only: the place of a saved tensor among those of the region. The first
// unpack() runs the function again on detached inputs, with a provider that puts the nth tensor that is saved
// into the nth place, and ends the run by an exception when the last one is there. The inputs are saved
// through a node of their own, so that the hooks of an outer region see them, which is all that nesting
// needs.
#include "deepspeed/activation/recompute.h"

#include <chrono>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/activation/computing_state.h"
#include "deepspeed/activation/kept_results.h"
#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/device/accelerator/current_device.h"

namespace deepspeed::checkpointing {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::CppNode;
using torch::autograd::variable_list;

// Saves what is kept of the inputs in autograd. Its output is not used.
struct SaveInputs : torch::autograd::Function<SaveInputs> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor&, const variable_list& inputs) {
    context->save_for_backward(inputs);
    return at::empty({0});
  }
  static variable_list backward(AutogradContext*, const variable_list&) {
    raise<UsageError>("internal: a node that only saves tensors was run");
  }
};

/// The borders of a region's run: waits for the device and logs the time, where the options ask for it.
class Borders {
 public:
  Borders(const CheckpointOptions& options, const char* what) : options_(options), what_(what) {
    if (options_.synchronize) device::synchronize();
  }
  ~Borders() {
    if (options_.synchronize) device::synchronize();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin_;
    if (options_.profile) log::info("[activation] ", what_, ": ", time.count(), " ms");
  }
  Borders(const Borders&) = delete;
  Borders& operator=(const Borders&) = delete;

 private:
  const CheckpointOptions& options_;
  const char* what_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Thrown through the function when all that backward needs is there.
struct RunIsLongEnough {};

struct Place {
  at::Tensor value;  // undefined until it was computed again
};

class Region : public std::enable_shared_from_this<Region>, public autograd::SavedTensorProvider {
 public:
  Region(TensorFunction function, const RecomputeOptions& options)
      : function_(std::move(function)),
        options_(options),
        generators_(GeneratorStates::now()),
        autocast_(AutocastState::now()) {}

  Tensors run(const Tensors& inputs) {
    const Borders borders(keeping().options, "forward");
    save(inputs);
    const autograd::SavedTensorScope packing(this);
    const KeepingScope keeping_scope(options_.keeps_results ? &results_ : nullptr);
    return function_(inputs);
  }

  std::unique_ptr<autograd::SavedTensor> pack(const at::Tensor&) override;
  void compute_again();

 private:
  class Filling;

  const Keeping& keeping() const {
    static const Keeping as_they_are;
    return options_.keeping ? *options_.keeping : as_they_are;
  }

  void save(const Tensors& inputs) {
    variable_list kept;
    for (size_t place = 0; place < inputs.size(); ++place) {
      needs_grad_.push_back(inputs[place].defined() && inputs[place].requires_grad());
      kept_.push_back(keep_input(inputs[place], place, keeping()));
      kept.push_back(std::exchange(kept_.back().kept, at::Tensor()));
    }
    saver_ = SaveInputs::apply(at::empty({0}).requires_grad_(), kept).grad_fn();
  }

  Tensors restored_inputs() const {
    const auto saved = static_cast<CppNode<SaveInputs>*>(saver_.get())->ctx_.get_saved_variables();
    Tensors inputs;
    for (size_t place = 0; place < saved.size(); ++place) {
      const at::Tensor whole = restore_input(kept_[place], saved[place], keeping());
      inputs.push_back(whole.defined() ? whole.detach().requires_grad_(needs_grad_[place]) : whole);
    }
    return inputs;
  }

  TensorFunction function_;
  RecomputeOptions options_;
  GeneratorStates generators_;
  AutocastState autocast_;
  std::vector<KeptInput> kept_;
  std::vector<bool> needs_grad_;
  std::shared_ptr<torch::autograd::Node> saver_;
  std::vector<std::weak_ptr<Place>> places_;  // of the saved tensors, in their order
  KeptResults results_;
};

class SavedPlace : public autograd::SavedTensor {
 public:
  SavedPlace(std::shared_ptr<Region> region, std::shared_ptr<Place> place)
      : region_(std::move(region)), place_(std::move(place)) {}
  at::Tensor unpack() override {
    if (!place_->value.defined()) region_->compute_again();
    if (place_->value.defined()) return place_->value;
    raise<UsageError>(
        "a recomputed region saves less tensors for backward than its forward did: it must compute "
        "the same each time");
  }

 private:
  std::shared_ptr<Region> region_;
  std::shared_ptr<Place> place_;
};

std::unique_ptr<autograd::SavedTensor> Region::pack(const at::Tensor&) {
  auto place = std::make_shared<Place>();
  places_.push_back(place);
  return std::make_unique<SavedPlace>(shared_from_this(), std::move(place));
}

/// Takes what the second run saves.
class Region::Filling : public autograd::SavedTensorProvider {
 public:
  explicit Filling(Region& region) : region_(region) {}

  std::unique_ptr<autograd::SavedTensor> pack(const at::Tensor& tensor) override {
    if (next_ >= region_.places_.size()) {
      raise<UsageError>(
          "a recomputed region saves more tensors for backward than its forward did: it must "
          "compute the same each time");
    }
    const auto place = region_.places_[next_++].lock();
    if (place && !place->value.defined()) place->value = tensor.detach();
    if (next_ == region_.places_.size()) throw RunIsLongEnough();
    return std::make_unique<Own>(tensor.detach());
  }

 private:
  // For a backward inside of the second run.
  struct Own : autograd::SavedTensor {
    explicit Own(at::Tensor tensor) : value(std::move(tensor)) {}
    at::Tensor unpack() override { return value; }
    at::Tensor value;
  };
  Region& region_;
  size_t next_ = 0;
};

void Region::compute_again() {
  const auto alive = shared_from_this();
  const Borders borders(keeping().options, "recomputation");
  // Before the filling provider is on: the inputs may belong to an outer region, which computes again first.
  const Tensors inputs = restored_inputs();
  Filling filling(*this);
  const c10::AutoGradMode with_grad(true);
  const GeneratorScope generators(generators_);
  const AutocastScope autocast(autocast_);
  const autograd::SavedTensorScope filling_scope(&filling);
  if (options_.keeps_results) results_.begin_replay();
  const KeepingScope keeping_scope(options_.keeps_results ? &results_ : nullptr);
  try {
    function_(inputs);
  } catch (const RunIsLongEnough&) {
    // All places are filled.
  }
}

}  // namespace

Tensors recompute(const TensorFunction& function, const Tensors& inputs, const RecomputeOptions& options) {
  if (!c10::GradMode::is_enabled()) return function(inputs);
  return std::make_shared<Region>(function, options)->run(inputs);
}

}  // namespace deepspeed::checkpointing
