// DeepSpeed's own CPU optimizers, recorded by tests/golden/deepspeed_optimizers/record.py, against ours.
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/optim/torch/deepspeed_optimizers.h"

#include "tests/places/places.h"

namespace deepspeed {
namespace {

constexpr int kGoldenSteps = 20;
using Params = std::vector<at::Tensor>;
using Make = std::function<std::unique_ptr<optim::NativeOptimizer>(Params)>;

at::Tensor recorded(const std::string& name, at::IntArrayRef shape) {
  const std::string path =
      (testing::source_folder() / "tests/golden/deepspeed_optimizers/").string() + name + ".bin";
  std::ifstream file(path, std::ios::binary);
  const at::Tensor values = at::empty(shape, at::kFloat);
  file.read(reinterpret_cast<char*>(values.data_ptr()), static_cast<std::streamsize>(values.nbytes()));
  EXPECT_TRUE(file.good() && file.peek() == std::ifstream::traits_type::eof()) << path;
  return values;
}

// The largest difference after 20 steps, and the largest way that a weight went.
std::pair<double, double> difference_and_way(const std::string& name, at::IntArrayRef shape, const Make& make,
                                             double power = 1) {
  const at::Tensor expected = recorded(name, shape);
  const at::Tensor index = at::arange(expected.numel(), at::kDouble);
  const at::Tensor start = (0.11 * index).cos().to(at::kFloat).view(shape), weights = start.clone();
  const auto optimizer = make({weights});
  for (int step = 1; step <= kGoldenSteps; ++step) {
    weights.mutable_grad() = (0.37 * index.pow(power) + 1.1 * step).sin().to(at::kFloat).view(shape);
    optimizer->step();
  }
  return {(weights - expected).abs().max().item<double>(), (start - expected).abs().max().item<double>()};
}

TEST(DeepSpeedGolden, ElementwiseOptimizersAgreeWithDeepSpeeds) {
  const Make uncorrected = [](Params params) {
    return std::make_unique<DeepSpeedCPUAdam>(
        std::move(params), DeepSpeedCPUAdamOptions().lr(0.01).weight_decay(0.1).bias_correction(false));
  };
  const auto adam = [](bool adamw) {
    return [=](Params params) {
      return std::make_unique<DeepSpeedCPUAdam>(
          std::move(params), DeepSpeedCPUAdamOptions().lr(0.01).weight_decay(0.1).adamw_mode(adamw));
    };
  };
  const Make adagrad = [](Params params) {
    return std::make_unique<DeepSpeedCPUAdagrad>(std::move(params),
                                                 DeepSpeedCPUAdagradOptions().lr(0.01).weight_decay(0.1));
  };
  const Make lion = [](Params params) {
    return std::make_unique<DeepSpeedCPULion>(
        std::move(params), DeepSpeedCPULionOptions().lr(0.01).betas({0.9, 0.99}).weight_decay(0.1));
  };
  // DeepSpeed computes 1 - beta in fp32, which is 5e-5 off for 0.999: 2.5e-5 of an update in its root.
  const std::vector<std::tuple<std::string, int64_t, Make>> all = {
      {"cpu_adam", 1003, adam(true)},
      {"cpu_adam_l2", 1003, adam(false)},
      {"cpu_adam_no_correction", 1003, uncorrected},
      {"cpu_adagrad", 1003, adagrad},
      {"cpu_lion", 7, lion}};
  for (const auto& [name, numel, make] : all) {
    const auto [difference, way] = difference_and_way(name, {numel}, make);
    EXPECT_GT(way, 0.01) << name;
    EXPECT_LT(difference, 1e-4 * way + kGoldenSteps * 1.2e-7) << name;
  }
}

// Two groups of a parameter each, the second with options of its own. (There is no file of Lamb: DeepSpeed's
// FusedLamb is a CUDA kernel alone. Its rule is held against the float64 reference.)
template <class Class, class Options>
void expect_agreement_of_groups(const std::string& name, const Options& all, const Options& second) {
  const std::vector<int64_t> numels = {1003, 517};
  const auto expected = recorded(name, {numels[0] + numels[1]}).split_with_sizes(numels);
  std::vector<at::Tensor> start, weights;
  for (const int64_t numel : numels) {
    start.push_back((0.11 * at::arange(numel, at::kDouble)).cos().to(at::kFloat));
    weights.push_back(start.back().clone());
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Params{weights[0]});
  groups.emplace_back(Params{weights[1]}, std::make_unique<Options>(second));
  Class optimizer(groups, all);
  for (int step = 1; step <= kGoldenSteps; ++step) {
    for (const at::Tensor& parameter : weights) {
      const at::Tensor index = at::arange(parameter.numel(), at::kDouble);
      parameter.mutable_grad() = (0.37 * index + 1.1 * step).sin().to(at::kFloat);
    }
    optimizer.step();
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const double difference = (weights[i] - expected[i]).abs().max().item<double>();
    const double way = (start[i] - expected[i]).abs().max().item<double>();
    EXPECT_GT(way, 0.005) << name << i;
    EXPECT_LT(difference, 1e-4 * way + kGoldenSteps * 1.2e-7) << name << i;
  }
}

TEST(DeepSpeedGolden, GroupsWithOptionsOfTheirOwnAgreeWithDeepSpeeds) {
  expect_agreement_of_groups<DeepSpeedCPUAdam>(
      "cpu_adam_groups", DeepSpeedCPUAdamOptions().lr(0.01).weight_decay(0.1),
      DeepSpeedCPUAdamOptions().lr(0.003).betas({0.8, 0.95}).eps(1e-6).weight_decay(0));
  expect_agreement_of_groups<DeepSpeedCPUAdagrad>(
      "cpu_adagrad_groups", DeepSpeedCPUAdagradOptions().lr(0.01).weight_decay(0.1),
      DeepSpeedCPUAdagradOptions().lr(0.003).eps(1e-6).weight_decay(0));
}

// On CPU DeepSpeed's "gram" multiplies in fp32, its "standard" in bf16, whose 2^-9 the iteration enlarges.
TEST(DeepSpeedGolden, MuonAgreesWithDeepSpeeds) {
  struct Recorded {
    std::string method;
    std::vector<int64_t> shape;
    double bound;  // of the way
  };
  for (const Recorded& r : {Recorded{"standard", {5, 7}, 0.06}, Recorded{"gram", {7, 5}, 1e-4}}) {
    const Make make = [&](Params params) {
      return std::make_unique<Muon>(std::move(params),
                                    MuonOptions().lr(0.02).weight_decay(0.1).ns_method(r.method));
    };
    const auto [difference, way] = difference_and_way("muon_" + r.method, r.shape, make, 2);
    EXPECT_GT(way, 0.05) << r.method;
    EXPECT_LT(difference, r.bound * way) << r.method;
  }
}

}  // namespace
}  // namespace deepspeed
