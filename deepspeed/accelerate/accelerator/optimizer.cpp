// Optimizers of torch are replaced by DeepSpeed's for the CPU where states are offloaded.
#include "deepspeed/accelerate/accelerator/optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/optim/torch/deepspeed_optimizers.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed::accelerate {
namespace {

/// Makes the optimizer `Result`, whose groups are those of `given` with their options converted.
template <class Result, class Options, class Given, class Convert>
std::shared_ptr<torch::optim::Optimizer> converted(const torch::optim::Optimizer& given,
                                                   const Convert& convert) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& group : given.param_groups()) {
    auto options = std::make_unique<Options>(convert(static_cast<const Given&>(group.options())));
    groups.emplace_back(group.params(), std::move(options));
  }
  return std::make_shared<Result>(groups,
                                  convert(static_cast<const Given&>(given.param_groups().front().options())));
}

template <class Given>
DeepSpeedCPUAdamOptions adam_options(const Given& given, bool decoupled) {
  if (given.amsgrad())
    raise<NotSupportedError>(
        "amsgrad is not kept by DeepSpeedCPUAdam, which offload_optimizer needs: turn one of them off");
  return DeepSpeedCPUAdamOptions()
      .lr(given.lr())
      .betas(std::make_pair(std::get<0>(given.betas()), std::get<1>(given.betas())))
      .eps(given.eps())
      .weight_decay(given.weight_decay())
      .adamw_mode(decoupled);
}

}  // namespace

DummyOptim::DummyOptim(std::vector<at::Tensor> params, double lr, double weight_decay)
    : groups{{std::move(params), Json::object()}}, lr(lr), weight_decay(weight_decay) {}

bool AcceleratedOptimizer::step_was_skipped() const {
  return engine_->global_steps() > 0 && !engine_->was_step_applied();
}

std::vector<double> AcceleratedOptimizer::get_lr() const { return engine_->get_lr(); }

void AcceleratedOptimizer::pass_rates_on() const {
  if (!torch_optimizer_ || engine_->lr_scheduler()) return;
  auto& groups = engine_->optimizer()->param_groups();
  for (size_t i = 0; i < torch_optimizer_->param_groups().size(); ++i)
    groups[i].set_lr(torch_optimizer_->param_groups()[i].options().get_lr());
}

void AcceleratedOptimizer::take_rates() const {
  if (!torch_optimizer_) return;
  const auto& groups = engine_->optimizer()->param_groups();
  for (size_t i = 0; i < torch_optimizer_->param_groups().size(); ++i)
    torch_optimizer_->param_groups()[i].options().set_lr(groups[i].lr());
}

std::shared_ptr<torch::optim::Optimizer> cpu_optimizer_for(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<const DeepSpeedCPUAdam*>(&optimizer) ||
      dynamic_cast<const DeepSpeedCPUAdagrad*>(&optimizer))
    return nullptr;
  if (dynamic_cast<const AdamW*>(&optimizer))
    return converted<DeepSpeedCPUAdam, DeepSpeedCPUAdamOptions, AdamWOptions>(
        optimizer, [](const AdamWOptions& given) { return adam_options(given, true); });
  if (dynamic_cast<const Adam*>(&optimizer))
    return converted<DeepSpeedCPUAdam, DeepSpeedCPUAdamOptions, AdamOptions>(
        optimizer, [](const AdamOptions& given) { return adam_options(given, false); });
  if (dynamic_cast<const Adagrad*>(&optimizer))
    return converted<DeepSpeedCPUAdagrad, DeepSpeedCPUAdagradOptions,
                     AdagradOptions>(optimizer, [](const AdagradOptions& given) {
      return DeepSpeedCPUAdagradOptions().lr(given.lr()).eps(given.eps()).weight_decay(given.weight_decay());
    });
  raise<NotSupportedError>(
      "offload_optimizer needs DeepSpeed's CPU Adam or Adagrad: give torch's Adam, AdamW or Adagrad, a "
      "DummyOptim ",
      "with the section `optimizer`, or set zero_force_ds_cpu_optimizer to false");
}

}  // namespace deepspeed::accelerate
