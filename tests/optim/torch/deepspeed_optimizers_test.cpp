#include "deepspeed/optim/torch/deepspeed_optimizers.h"

#include <sstream>
#include <string>
#include <vector>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/torch/torch_optimizer.h"

#include "tests/optim/slices/slices.h"
#include "tests/optim/torch/class_params.h"
#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using torch::optim::OptimizerParamGroup;

// Each class, at its defaults but for the rate.
std::vector<std::unique_ptr<optim::NativeOptimizer>> every_class(const Params& params) {
  std::vector<std::unique_ptr<optim::NativeOptimizer>> all;
  all.push_back(std::make_unique<FusedAdam>(params, FusedAdamOptions().lr(0.01)));
  all.push_back(std::make_unique<DeepSpeedCPUAdam>(params, DeepSpeedCPUAdamOptions().lr(0.01)));
  all.push_back(std::make_unique<FusedLamb>(params, FusedLambOptions().lr(0.01)));
  all.push_back(std::make_unique<FusedLion>(params, FusedLionOptions().lr(0.01)));
  all.push_back(std::make_unique<DeepSpeedCPULion>(params, DeepSpeedCPULionOptions().lr(0.01)));
  all.push_back(std::make_unique<DeepSpeedCPUAdagrad>(params, DeepSpeedCPUAdagradOptions().lr(0.01)));
  all.push_back(std::make_unique<Muon>(params, MuonOptions().lr(0.01)));
  return all;
}

const std::vector<std::string> kNames = {"FusedAdam",        "DeepSpeedCPUAdam",    "FusedLamb", "FusedLion",
                                         "DeepSpeedCPULion", "DeepSpeedCPUAdagrad", "Muon"};

TEST(DeepSpeedOptimizers, HaveDeepSpeedsNamesAndDefaults) {
  const auto all = every_class(make_params());
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->name(), kNames[i]);
  EXPECT_EQ(FusedAdamOptions().lr(), 1e-3);
  EXPECT_EQ(FusedLambOptions().max_coeff(), 10);
  EXPECT_EQ(FusedLambOptions().min_coeff(), 0.01);
  EXPECT_EQ(DeepSpeedCPUAdagradOptions().lr(), 1e-2);
  EXPECT_EQ(DeepSpeedCPUAdagradOptions().eps(), 1e-10);
  EXPECT_EQ(MuonOptions().lr(), 0.02);
  EXPECT_EQ(MuonOptions(false).lr(), 3e-4);
}

TEST(DeepSpeedOptimizers, FusedAdamStepsAsTorchsAdamW) {
  const Params ours = make_params(), theirs = make_params();
  FusedAdam fused(ours, FusedAdamOptions().lr(0.01).weight_decay(0.1));
  torch::optim::AdamW plain(theirs, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  for (int i = 0; i < 20; ++i) {
    set_gradients(ours, i);
    set_gradients(theirs, i);
    fused.step();
    plain.step();
  }
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-5, 2e-6)) << i;
}

TEST(DeepSpeedOptimizers, StepSixteenBitParametersInFp32) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (size_t c = 0; c < kNames.size(); ++c) {
      const Params params = make_params(dtype);
      Params wide;
      for (const at::Tensor& p : params) wide.push_back(p.detach().to(at::kFloat).clone());
      const auto narrow = std::move(every_class(params)[c]), fp32 = std::move(every_class(wide)[c]);
      set_gradients(params, 0);
      for (size_t k = 0; k < params.size(); ++k) wide[k].mutable_grad() = params[k].grad().to(at::kFloat);
      narrow->step();
      fp32->step();
      for (size_t k = 0; k < params.size(); ++k) {
        EXPECT_TRUE(at::equal(params[k].detach(), wide[k].to(dtype))) << kNames[c] << " " << dtype;
      }
    }
  }
}

TEST(DeepSpeedOptimizers, LeaveAParameterWithoutAGradientAlone) {
  for (size_t c = 0; c < kNames.size(); ++c) {
    const Params params = make_params();
    const auto optimizer = std::move(every_class(params)[c]);
    set_gradients(params, 0);
    params[1].mutable_grad().reset();
    const at::Tensor first = params[0].detach().clone(), second = params[1].detach().clone();
    optimizer->step();
    EXPECT_FALSE(at::equal(params[0].detach(), first)) << kNames[c];
    EXPECT_TRUE(at::equal(params[1].detach(), second)) << kNames[c];
    EXPECT_EQ(optimizer->state_of(params[0]).step, 1) << kNames[c];
    EXPECT_EQ(optimizer->state_of(params[1]).step, 0) << kNames[c];
  }
}

TEST(DeepSpeedOptimizers, EvaluateTheClosureWithGradients) {
  const Params params = make_params();
  FusedLion optimizer(params);
  const at::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    const at::Tensor sum = params[0].square().sum();
    sum.backward();
    return sum.detach();
  });
  EXPECT_GT(loss.item<double>(), 0);
  EXPECT_EQ(optimizer.state_of(params[0]).step, 1);
}

TEST(DeepSpeedOptimizers, GroupsHaveOptionsOfTheirOwnThatSchedulersChange) {
  const Params params = make_params(), alone = make_params();
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(Params{params[0]}, std::make_unique<FusedAdamOptions>(FusedAdamOptions().lr(0.1)));
  groups.emplace_back(Params{params[1]});
  FusedAdam optimizer(groups, FusedAdamOptions().lr(0.01).weight_decay(0.1));
  torch::optim::StepLR schedule(optimizer, /*step_size=*/1, /*gamma=*/0.5);
  FusedAdam first({alone[0]}, FusedAdamOptions().lr(0.1)),
      second({alone[1]}, FusedAdamOptions().lr(0.01).weight_decay(0.1));
  for (int i = 0; i < 3; ++i) {
    set_gradients(params, i);
    set_gradients(alone, i);
    optimizer.step();
    first.step();
    second.step();
    schedule.step();
    first.param_groups()[0].options().set_lr(optimizer.param_groups()[0].options().get_lr());
    second.param_groups()[0].options().set_lr(optimizer.param_groups()[1].options().get_lr());
  }
  EXPECT_LT(optimizer.param_groups()[0].options().get_lr(), 0.06) << "the schedule had no effect";
  EXPECT_TRUE(at::equal(params[0], alone[0]));
  EXPECT_TRUE(at::equal(params[1], alone[1]));
}

TEST(DeepSpeedOptimizers, KeepTheOptionsOfAGroupThatComesLater) {
  FusedAdam optimizer(make_params(), FusedAdamOptions().lr(0.01).weight_decay(0.1));
  optimizer.add_param_group(
      OptimizerParamGroup(make_params(), std::make_unique<FusedAdamOptions>(FusedAdamOptions().lr(0.5))));
  optimizer.add_param_group(OptimizerParamGroup(make_params()));
  const auto options_of = [&](size_t group) -> const FusedAdamOptions& {
    return static_cast<const FusedAdamOptions&>(optimizer.param_groups().at(group).options());
  };
  EXPECT_EQ(options_of(1).lr(), 0.5);
  EXPECT_EQ(options_of(1).weight_decay(), 0.0);
  EXPECT_EQ(options_of(2).lr(), 0.01);
}

TEST(DeepSpeedOptimizers, ResumeBitForBitFromTorchSave) {
  for (size_t c = 0; c < kNames.size(); ++c) {
    const Params params = make_params();
    const auto first = std::move(every_class(params)[c]);
    for (int i = 0; i < 3; ++i) {
      set_gradients(params, i);
      first->step();
    }
    first->param_groups()[0].options().set_lr(0.005);
    std::stringstream file;
    torch::serialize::OutputArchive written;
    first->save(written);
    written.save_to(file);
    Params resumed;
    for (const at::Tensor& p : params) resumed.push_back(p.detach().clone().requires_grad_());
    const auto second = std::move(every_class(resumed)[c]);
    torch::serialize::InputArchive read;
    read.load_from(file);
    second->load(read);
    EXPECT_EQ(second->param_groups()[0].options().get_lr(), 0.005) << kNames[c];
    EXPECT_EQ(second->state_of(resumed[0]).step, 3) << kNames[c];
    for (int i = 3; i < 5; ++i) {
      set_gradients(params, i);
      set_gradients(resumed, i);
      first->step();
      second->step();
    }
    for (size_t k = 0; k < params.size(); ++k) EXPECT_TRUE(at::equal(params[k], resumed[k])) << kNames[c];
    // Another class refuses the archive.
    const auto other = std::move(every_class(resumed)[(c + 1) % kNames.size()]);
    EXPECT_ERROR(UsageError, other->load(read), "the archive is of a " + kNames[c],
                 "expected a " + other->name())
        << kNames[c];
  }
}

TEST(DeepSpeedOptimizers, MuonTakesGroupsForAdam) {
  const Params params = make_params(), vector = {at::ones({3})};
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(params);
  groups.emplace_back(vector, std::make_unique<MuonOptions>(false));
  Muon optimizer(groups);
  set_gradients(params, 0);
  set_gradients(vector, 1);
  optimizer.step();
  EXPECT_EQ(optimizer.state_of(params[0]).tensors[0].first, "momentum_buffer");
  EXPECT_EQ(optimizer.state_of(vector[0]).tensors[0].first, "exp_avg");
  // Adam's first step is the rate, whatever the gradient.
  EXPECT_TRUE(at::allclose((1 - vector[0]).abs(), at::full({3}, 3e-4), 1e-2, 0));
}

TEST(DeepSpeedOptimizers, FusedLambClipsAndTellsItsCoefficients) {
  const Params clipped = make_params(), scaled = make_params();
  FusedLamb a(clipped, FusedLambOptions().max_grad_norm(0.5).eps(0.1)),
      b(scaled, FusedLambOptions().eps(0.1));
  EXPECT_TRUE(a.get_lamb_coeffs().empty());
  set_gradients(clipped, 0);
  const double norm =
      std::hypot(clipped[0].grad().norm().item<double>(), clipped[1].grad().norm().item<double>());
  for (size_t k = 0; k < scaled.size(); ++k)
    scaled[k].mutable_grad() = clipped[k].grad() * (0.5 / (norm + 1e-6));
  a.step();
  b.step();
  for (size_t k = 0; k < scaled.size(); ++k) EXPECT_TRUE(at::allclose(clipped[k], scaled[k], 1e-6, 1e-7));
  ASSERT_EQ(a.get_lamb_coeffs().size(), 2U);
  EXPECT_NEAR(a.get_lamb_coeffs()[0], b.get_lamb_coeffs()[0], 1e-3);
}

TEST(DeepSpeedOptimizers, AdagradTakesSparseGradientsWithoutDecay) {
  const at::Tensor weights = at::ones({4, 2}), dense = at::ones({4, 2});
  const at::Tensor rows = at::tensor({3.0F, 4.0F}).view({1, 2});
  const at::Tensor sparse = at::sparse_coo_tensor(at::tensor({2}, at::kLong).view({1, 1}), rows, {4, 2});
  weights.mutable_grad() = sparse;
  dense.mutable_grad() = sparse.to_dense();
  DeepSpeedCPUAdagrad(Params{weights}).step();
  DeepSpeedCPUAdagrad(Params{dense}).step();
  EXPECT_TRUE(at::equal(weights, dense));
  EXPECT_TRUE(weights[0].eq(1).all().item<bool>());
  EXPECT_FALSE(weights[2].eq(1).any().item<bool>());
  EXPECT_ERROR(NotSupportedError,
               DeepSpeedCPUAdagrad(Params{weights}, DeepSpeedCPUAdagradOptions().weight_decay(0.1)).step(),
               "DeepSpeedCPUAdagrad: ", "weight_decay 0.1", "set it to 0");
  EXPECT_ERROR(UsageError, FusedLion(Params{weights}).step(), "FusedLion takes no sparse gradients",
               "use DeepSpeedCPUAdagrad");
}

TEST(DeepSpeedOptimizers, RefuseWhatTheyCannotDo) {
  const Params params = make_params();
  EXPECT_ERROR(NotSupportedError, FusedAdam(params, FusedAdamOptions().amsgrad(true)),
               "FusedAdam: amsgrad is true, expected false", "torch::optim::Adam");
  EXPECT_ERROR(NotSupportedError, DeepSpeedCPUAdam(params, DeepSpeedCPUAdamOptions().amsgrad(true)),
               "DeepSpeedCPUAdam: amsgrad is true, expected false", "torch::optim::Adam");
  EXPECT_ERROR(NotSupportedError, FusedLamb(params, FusedLambOptions().amsgrad(true)),
               "FusedLamb: amsgrad is true", "leave it false");
  EXPECT_ERROR(NotSupportedError, DeepSpeedCPUAdagrad(params, DeepSpeedCPUAdagradOptions().amsgrad(true)),
               "DeepSpeedCPUAdagrad: amsgrad is true", "leave it false");
  EXPECT_ERROR(UsageError, FusedAdam(params, FusedAdamOptions().betas({0.9, 1.0})),
               "FusedAdam: betas are 0.9 and 1, expected numbers in [0, 1)");
  EXPECT_ERROR(UsageError, FusedLion(params, FusedLionOptions().lr(-1)),
               "FusedLion: lr is -1, expected a number of at least 0");
  EXPECT_ERROR(UsageError, Muon(params, MuonOptions().ns_method("grams")), "ns_method is 'grams'",
               "\"gram\" or \"standard\"");
  std::vector<OptimizerParamGroup> foreign;
  foreign.emplace_back(params, std::make_unique<torch::optim::AdamOptions>());
  EXPECT_ERROR(UsageError, FusedAdam{foreign}, "options of a parameter group are torch::optim::AdamOptions",
               "such as deepspeed::FusedAdamOptions");
  std::vector<OptimizerParamGroup> differing;
  differing.emplace_back(params, std::make_unique<FusedAdamOptions>(FusedAdamOptions().adam_w_mode(false)));
  EXPECT_ERROR(UsageError, FusedAdam{differing}, "FusedAdam: adam_w_mode of a parameter group differs");
  const Params complex = {at::ones({2}, at::kComplexFloat)};
  FusedAdam optimizer(complex);
  complex[0].mutable_grad() = at::ones({2}, at::kComplexFloat);
  EXPECT_ERROR(UsageError, optimizer.step(), "FusedAdam: a parameter of shape [2] has dtype ComplexFloat",
               "expected Float, Double, Half or BFloat16");
  EXPECT_ERROR(UsageError, optimizer.state_of(at::ones({2})),
               "shape [2] is not a parameter of this optimizer");
}

TEST(DeepSpeedOptimizers, StepParametersOfFp64InIt) {
  for (size_t c = 0; c < kNames.size(); ++c) {
    SCOPED_TRACE(kNames[c]);
    const at::Tensor start = optim::test_gradients(1, {4, 5})[0].to(at::kDouble);
    const at::Tensor wide = start.clone(), narrow = start.to(at::kFloat);
    const auto step = [&](const at::Tensor& parameter) {
      const auto optimizer = std::move(every_class({parameter})[c]);
      for (int i = 1; i <= 3; ++i) {
        parameter.mutable_grad() = start.mul(0.3 * i).to(parameter.scalar_type());
        optimizer->step();
      }
    };
    step(wide);
    step(narrow);
    EXPECT_TRUE(at::allclose(wide, narrow.to(at::kDouble), 1e-3, 1e-5));
    EXPECT_FALSE(at::equal(wide, wide.to(at::kFloat).to(at::kDouble)));
  }
}

TEST(DeepSpeedOptimizers, StepTheFlatSlicesOfAnEngine) {
  for (size_t c = 0; c < kNames.size(); ++c) {
    const at::Tensor weights = optim::test_gradients(1, {4, 5})[0], parameter = weights.clone();
    const auto alone = std::move(every_class({parameter})[c]);
    const at::Tensor given = weights.clone();
    std::shared_ptr<torch::optim::Optimizer> passed = std::move(every_class({given})[c]);
    optim::TorchOptimizer adapted(passed, {{"w", given}});
    EXPECT_EQ(adapted.name(), kNames[c]);
    EXPECT_EQ(adapted.is_elementwise(), kNames[c] != "FusedLamb" && kNames[c] != "Muon");
    optim::TestSlice slice(weights);
    for (const at::Tensor& gradient : optim::test_gradients(4, {4, 5})) {
      parameter.mutable_grad() = gradient;
      alone->step();
      slice.step(adapted, gradient);
    }
    EXPECT_TRUE(at::equal(slice.slice.master.view({4, 5}), parameter)) << kNames[c];
    EXPECT_EQ(adapted.state(0).step, 4) << kNames[c];
    EXPECT_EQ(adapted.state_bytes(), alone->state_bytes()) << kNames[c];
  }
  const Params params = {at::ones({2})};
  const auto clips = std::make_shared<FusedLamb>(params, FusedLambOptions().max_grad_norm(1));
  EXPECT_ERROR(UsageError, optim::TorchOptimizer(clips, {{"w", params[0]}}),
               "max_grad_norm is not accepted in an engine", "set gradient_clipping");
}

}  // namespace
}  // namespace deepspeed
