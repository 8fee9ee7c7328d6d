// Every class of deepspeed_optimizers.h against its float64 reference: element by element, 100 steps, two
// groups with options of their own, odd sizes, one parameter transposed. (amsgrad is refused by all of them;
// torch_adam's is held against the reference in optimizers_test.cpp.)
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/optim/torch/deepspeed_optimizers.h"

#include "tests/optim/algorithms/float64_reference.h"
#include "tests/optim/slices/slices.h"

namespace deepspeed {
namespace {

using torch::optim::OptimizerParamGroup;
using Params = std::vector<at::Tensor>;
using Rule =
    std::function<void(optim::reference::Parameter&, const at::Tensor&, const optim::Hyperparameters&)>;

constexpr int kClassSteps = 100;

struct ClassCase {
  std::string what;
  std::function<std::unique_ptr<optim::NativeOptimizer>(const Params& first, const Params& second)> make;
  Rule rule;
};

template <class Class, class Options>
ClassCase two_groups(std::string what, const Options& first, const Options& second, Rule rule) {
  return {std::move(what),
          [=](const Params& of_first, const Params& of_second) {
            std::vector<OptimizerParamGroup> groups;
            groups.emplace_back(of_first);  // the defaults'
            groups.emplace_back(of_second, std::make_unique<Options>(second));
            return std::make_unique<Class>(groups, first);
          },
          std::move(rule)};
}

Rule adam_rule(bool decoupled) {
  return [=](auto& x, auto& g, auto& h) { optim::reference::adam(x, g, h, decoupled, false); };
}

void muon_rule(optim::reference::Parameter& x, const at::Tensor& g, const optim::Hyperparameters& h) {
  if (h.flag("use_muon")) {
    optim::reference::muon(x, g, h);
  } else {
    optim::reference::adam(x, g, h, true, false);
  }
}

void cpu_adagrad_rule(optim::reference::Parameter& x, const at::Tensor& g, const optim::Hyperparameters& h) {
  optim::Hyperparameters all = h;
  all.set("lr_decay", 0.0);
  all.set("initial_accumulator_value", 0.0);
  optim::reference::adagrad(x, g, all, true);
}

std::vector<ClassCase> class_cases() {
  std::vector<ClassCase> cases;
  for (const bool decoupled : {true, false}) {
    const std::string mode = decoupled ? " decoupled" : " L2";
    const auto fused = FusedAdamOptions().lr(0.01).adam_w_mode(decoupled);
    cases.push_back(two_groups<FusedAdam>(
        "FusedAdam" + mode, FusedAdamOptions(fused).weight_decay(0.1),
        FusedAdamOptions(fused).lr(3e-3).betas({0.8, 0.95}).eps(1e-6).bias_correction(false),
        adam_rule(decoupled)));
    const auto cpu = DeepSpeedCPUAdamOptions().lr(0.01).adamw_mode(decoupled);
    cases.push_back(two_groups<DeepSpeedCPUAdam>(
        "DeepSpeedCPUAdam" + mode, DeepSpeedCPUAdamOptions(cpu).bias_correction(false).weight_decay(0.1),
        DeepSpeedCPUAdamOptions(cpu).lr(3e-3).betas({0.8, 0.95}).weight_decay(0.2), adam_rule(decoupled)));
  }
  cases.push_back(two_groups<FusedLamb>("FusedLamb", FusedLambOptions().lr(0.01).weight_decay(0.1),
                                        FusedLambOptions()
                                            .lr(3e-3)
                                            .bias_correction(false)
                                            .eps_inside_sqrt(true)
                                            .eps(1e-6)
                                            .max_coeff(0.5)
                                            .min_coeff(0.2),
                                        optim::reference::lamb));
  cases.push_back(two_groups<FusedLion>("FusedLion", FusedLionOptions().lr(0.01).weight_decay(0.1),
                                        FusedLionOptions().lr(3e-3).betas({0.8, 0.95}),
                                        optim::reference::lion));
  cases.push_back(two_groups<DeepSpeedCPULion>(
      "DeepSpeedCPULion", DeepSpeedCPULionOptions().lr(0.01),
      DeepSpeedCPULionOptions().lr(3e-3).betas({0.8, 0.95}).weight_decay(0.1), optim::reference::lion));
  cases.push_back(two_groups<DeepSpeedCPUAdagrad>(
      "DeepSpeedCPUAdagrad", DeepSpeedCPUAdagradOptions().lr(0.01).weight_decay(0.1),
      DeepSpeedCPUAdagradOptions().lr(3e-3).eps(1e-6), cpu_adagrad_rule));
  for (const std::string method : {"gram", "standard"}) {
    cases.push_back(
        two_groups<Muon>("Muon " + method, MuonOptions().lr(0.01).weight_decay(0.1).ns_method(method),
                         MuonOptions(false).lr(3e-3).weight_decay(0.1).betas({0.8, 0.95}), muon_rule));
  }
  return cases;
}

struct Tracked {
  at::Tensor parameter;
  optim::reference::Parameter expected;
};

void step_both(std::vector<Tracked>& tracked, optim::NativeOptimizer& optimizer, const Rule& rule, int step) {
  for (size_t k = 0; k < tracked.size(); ++k) {
    const auto generator =
        at::detail::createCPUGenerator(static_cast<uint64_t>(1000 * k) + static_cast<uint64_t>(step));
    tracked[k].parameter.mutable_grad() = at::randn(tracked[k].parameter.sizes(), generator, at::kFloat);
  }
  optimizer.step();
  size_t k = 0;
  for (const auto& group : optimizer.param_groups()) {
    const auto options = dynamic_cast<const optim::NativeOptions&>(group.options()).hyperparameters();
    for (size_t i = 0; i < group.params().size(); ++i, ++k) {
      rule(tracked[k].expected, tracked[k].parameter.grad().to(at::kDouble), options);
    }
  }
}

TEST(OptimizerClasses, EqualTheirReferenceOver100StepsInGroupsWithOptionsOfTheirOwn) {
  for (const ClassCase& c : class_cases()) {
    const auto matrices = optim::test_gradients(2, {5, 7}), vectors = optim::test_gradients(2, {33});
    const Params first = {matrices[0].clone(), matrices[1].t().clone().t()};
    const Params second = {vectors[0].clone(), vectors[1].narrow(0, 0, 1).clone()};
    const auto optimizer = c.make(first, second);
    std::vector<Tracked> tracked;
    for (const Params* params : {&first, &second}) {
      for (const at::Tensor& p : *params) tracked.push_back({p, {p.to(at::kDouble), {}, 0}});
    }
    for (int step = 0; step < kClassSteps; ++step) step_both(tracked, *optimizer, c.rule, step);
    for (size_t k = 0; k < tracked.size(); ++k) {
      // 100 roundings of a weight near 2 to fp32, and 2e-4 of the rate a step.
      const at::Tensor difference = (tracked[k].parameter.to(at::kDouble) - tracked[k].expected.p).abs();
      EXPECT_LT(difference.max().item<double>(), kClassSteps * (1.2e-7 + 2e-4 * 0.01)) << c.what << k;
      EXPECT_EQ(optimizer->state_of(tracked[k].parameter).step, kClassSteps) << c.what;
    }
  }
}

}  // namespace
}  // namespace deepspeed
