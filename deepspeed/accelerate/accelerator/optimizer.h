// Optimizers around prepare(): the stand-in for the config's, and what a program gets back.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/engine/assembly/initialize_options.h"

namespace torch::optim {
class Optimizer;
}

namespace deepspeed {
class TrainingEngine;
}

namespace deepspeed::accelerate {

/// Stands for the optimizer that the config's section `optimizer` describes.
class DEEPSPEED_API DummyOptim {
 public:
  /// `lr` and `weight_decay` fill the section's "auto" values.
  explicit DummyOptim(std::vector<at::Tensor> params, double lr = 0.001, double weight_decay = 0.0);
  explicit DummyOptim(std::vector<ModelParameters> groups, double lr = 0.001, double weight_decay = 0.0)
      : groups(std::move(groups)), lr(lr), weight_decay(weight_decay) {}

  std::vector<ModelParameters> groups;
  double lr;
  double weight_decay;
};

/// Is the optimizer that prepare() returns. Accelerator::backward() steps, so its own calls do nothing.
class DEEPSPEED_API AcceleratedOptimizer {
 public:
  using TorchOptimizer = std::shared_ptr<torch::optim::Optimizer>;

  /// torch_optimizer: the program's own; null for the config's.
  AcceleratedOptimizer(std::shared_ptr<TrainingEngine> engine, TorchOptimizer torch_optimizer)
      : engine_(std::move(engine)), torch_optimizer_(std::move(torch_optimizer)) {}

  void step() {}
  void zero_grad(bool /*set_to_none*/ = true) {}
  /// Returns whether the last step was left out, as after an overflow of fp16.
  bool step_was_skipped() const;
  /// Returns the learning rates of the groups.
  std::vector<double> get_lr() const;
  const TorchOptimizer& torch_optimizer() const { return torch_optimizer_; }
  /// Gives the rates of the program's optimizer to the engine, unless the engine has a schedule.
  void pass_rates_on() const;
  /// Gives the engine's rates to the program's optimizer, as after a load.
  void take_rates() const;

 private:
  std::shared_ptr<TrainingEngine> engine_;
  TorchOptimizer torch_optimizer_;
};

/// Returns DeepSpeed's optimizer for the CPU that takes the place of torch's Adam, AdamW or Adagrad, with its
/// groups and rates. Throws NotSupportedError for another class, with the way out.
DEEPSPEED_API std::shared_ptr<torch::optim::Optimizer> cpu_optimizer_for(
    const torch::optim::Optimizer& optimizer);

}  // namespace deepspeed::accelerate
