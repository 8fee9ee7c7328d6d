#include "deepspeed/optim/factory.h"

#include <string>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/config/table/named_type.h"

#include "tests/optim/slices/slices.h"
#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

std::unique_ptr<Optimizer> make_from_config(const std::string& type, const char* params = "{}") {
  return make_optimizer(type, Json::parse(params), std::vector<ParamGroup>(1));
}

// Steps ours and torch's side by side: all that may differ is where they round, by half an ulp of a weight
// (2.4e-7 at 4) a step.
void expect_same_as_torch(
    Optimizer& ours, const std::function<std::unique_ptr<torch::optim::Optimizer>(at::Tensor)>& make_torch) {
  const at::Tensor start = test_gradients(1, {101})[0] * 2;
  at::Tensor weights = start.clone().requires_grad_();
  const auto theirs = make_torch(weights);
  TestSlice slice(start);
  for (const at::Tensor& gradient : test_gradients(20, {101})) {
    slice.step(ours, gradient, 0.5);
    weights.mutable_grad() = gradient * 0.5;
    theirs->step();
  }
  EXPECT_LT((slice.slice.master - weights.detach()).abs().max().item<double>(), 5e-6);
}

TEST(MakeOptimizer, AdamWGivesTorchsUpdates) {
  const auto ours =
      make_from_config("adamW", R"({"lr": 0.01, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.1})");
  EXPECT_EQ(ours->name(), "FusedAdam");
  EXPECT_TRUE(ours->is_elementwise());
  expect_same_as_torch(*ours, [](at::Tensor w) {
    return std::make_unique<torch::optim::AdamW>(
        std::vector{w}, torch::optim::AdamWOptions(0.01).betas({0.8, 0.99}).eps(1e-6).weight_decay(0.1));
  });
}

TEST(MakeOptimizer, AdamIsDecoupledUnlessTold) {
  expect_same_as_torch(*make_from_config("Adam", R"({"weight_decay": 0.1})"), [](at::Tensor w) {
    return std::make_unique<torch::optim::AdamW>(std::vector{w},
                                                 torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
  });
  expect_same_as_torch(*make_from_config("Adam", R"({"weight_decay": 0.1, "adam_w_mode": false})"),
                       [](at::Tensor w) {
                         return std::make_unique<torch::optim::Adam>(
                             std::vector{w}, torch::optim::AdamOptions(1e-3).weight_decay(0.1));
                       });
  EXPECT_EQ(
      make_from_config("AdamW", R"({"torch_adam": true})")->param_groups()[0].options.number("weight_decay"),
      0.01);
}

TEST(MakeOptimizer, SgdGivesTorchsUpdates) {
  for (const bool nesterov : {false, true}) {
    const auto ours = make_from_config(
        "SGD", nesterov ? R"({"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "nesterov": true})"
                        : R"({"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "dampening": 0.2})");
    expect_same_as_torch(*ours, [&](at::Tensor w) {
      return std::make_unique<torch::optim::SGD>(std::vector{w}, torch::optim::SGDOptions(0.05)
                                                                     .momentum(0.9)
                                                                     .weight_decay(0.01)
                                                                     .dampening(nesterov ? 0 : 0.2)
                                                                     .nesterov(nesterov));
    });
  }
}

TEST(MakeOptimizer, RmspropGivesTorchsUpdates) {
  for (const bool centered : {false, true}) {
    const auto ours = make_from_config(
        "RMSprop", centered ? R"({"lr": 0.02, "alpha": 0.9, "centered": true, "momentum": 0.5})"
                            : R"({"lr": 0.02, "eps": 1e-6, "weight_decay": 0.01})");
    EXPECT_EQ(ours->name(), "RMSprop");
    EXPECT_TRUE(ours->is_elementwise());
    expect_same_as_torch(*ours, [&](at::Tensor w) {
      auto options = torch::optim::RMSpropOptions(0.02);
      if (centered) options.alpha(0.9).centered(true).momentum(0.5);
      if (!centered) options.eps(1e-6).weight_decay(0.01);
      return std::make_unique<torch::optim::RMSprop>(std::vector{w}, options);
    });
  }
}

// Two groups, of which the second has a rate of its own.
TEST(MakeOptimizer, RmspropStepsEachGroupByItsOptions) {
  std::vector<ParamGroup> groups(2);
  groups[1].options.set("lr", 0.5);
  const auto optimizer = make_optimizer("RMSprop", Json::parse(R"({"alpha": 0.0, "eps": 0})"), groups);
  TestSlice first(at::ones({3}), 0), second(at::ones({3}), 1);
  second.slice.group = 1;
  for (TestSlice* slice : {&first, &second}) slice->step(*optimizer, at::full({3}, 2.0));
  EXPECT_TRUE(at::allclose(first.slice.master, at::full({3}, 0.99)));  // lr * g / sqrt(g^2)
  EXPECT_TRUE(at::allclose(second.slice.master, at::full({3}, 0.5)));
}

TEST(MakeOptimizer, MakesEveryTypeOfTheTableWithItsDefaults) {
  for (const config::NamedType& type : config::optimizer_types()) {
    const auto optimizer = make_from_config(type.name);
    const Hyperparameters& options = optimizer->param_groups()[0].options;
    for (const config::Field& field : type.params) {
      if (!options.contains(field.key) || field.default_value.is_null()) continue;
      if (field.kind == config::Kind::kFloat) {
        EXPECT_EQ(options.number(field.key), field.default_value.get<double>()) << type.name << field.key;
      } else if (field.key == "betas") {
        EXPECT_EQ(options.pair("betas").second, field.default_value[1].get<double>()) << type.name;
      }
    }
    EXPECT_TRUE(options.contains("lr")) << type.name;
    std::string upper = type.name;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    if (type.any_case) {
      EXPECT_EQ(make_from_config(upper)->name(), optimizer->name());
    }
  }
}

TEST(MakeOptimizer, Fp32OptimizerStatesFalseHalvesTheMoments) {
  const auto half = make_from_config("Adam", R"({"fp32_optimizer_states": false, "weight_decay": 0.1})");
  const auto named = make_from_config("Adam", R"({"moment_dtype": "bf16", "weight_decay": 0.1})");
  EXPECT_EQ(half->state_dtype(), at::kBFloat16);
  EXPECT_EQ(make_from_config("AdamW", R"({"fp32_optimizer_states": true})")->state_dtype(), at::kFloat);
  TestSlice a(at::ones({33})), b(at::ones({33}));
  for (const at::Tensor& gradient : test_gradients(5, {33})) {
    a.step(*half, gradient);
    b.step(*named, gradient);
  }
  EXPECT_EQ(half->state_bytes(), 33 * 2 * 2);
  EXPECT_TRUE(at::equal(a.slice.master, b.slice.master));
}

TEST(MakeOptimizer, KeepsAGroupsOwnOption) {
  std::vector<ParamGroup> groups(2);
  groups[1].options.set("weight_decay", 0.0);
  const auto optimizer = make_optimizer("AdamW", Json::parse(R"({"weight_decay": 0.1})"), groups);
  EXPECT_EQ(optimizer->param_groups()[0].options.number("weight_decay"), 0.1);
  EXPECT_EQ(optimizer->param_groups()[1].options.number("weight_decay"), 0.0);
}

// What a checkpoint does: state out, state in, and both go on alike.
void expect_state_round_trip(const std::string& type, const char* params, at::IntArrayRef shape = {33}) {
  const auto first = make_from_config(type, params), second = make_from_config(type, params);
  const auto gradients = test_gradients(6, shape);
  TestSlice a(gradients[5]);
  for (int i = 0; i < 3; ++i) a.step(*first, gradients[static_cast<size_t>(i)]);
  TestSlice b(a.slice.master.view(shape));
  second->load_state(0, first->state(0));
  EXPECT_EQ(second->state(0).step, 3);
  EXPECT_EQ(second->state_bytes(), first->state_bytes());
  for (int i = 3; i < 5; ++i) {
    a.step(*first, gradients[static_cast<size_t>(i)]);
    b.step(*second, gradients[static_cast<size_t>(i)]);
  }
  EXPECT_TRUE(at::equal(a.slice.master, b.slice.master)) << type;
}

TEST(OptimizerState, ResumesBitForBit) {
  expect_state_round_trip("AdamW", R"({"weight_decay": 0.1})");
  expect_state_round_trip("AdamW", R"({"moment_dtype": "bf16"})");
  expect_state_round_trip("SGD", R"({"momentum": 0.9})");
  expect_state_round_trip("SGD", "{}");
  expect_state_round_trip("AdamW", R"({"torch_adam": true, "amsgrad": true})");
  expect_state_round_trip("Lion", R"({"weight_decay": 0.1})");
  expect_state_round_trip("Adagrad", R"({"lr_decay": 0.1, "initial_accumulator_value": 0.1})");
  expect_state_round_trip("Lamb", R"({"weight_decay": 0.1})");
  expect_state_round_trip("RMSprop", R"({"momentum": 0.9, "centered": true})");
  expect_state_round_trip("Muon", "{}");           // of a vector: Adam
  expect_state_round_trip("Muon", "{}", {3, 11});  // of a matrix
}

TEST(OptimizerState, HasTheNamesThatCheckpointsUse) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> names = {
      {"Lion", {"exp_avg"}},
      {"Adagrad", {"sum"}},
      {"Lamb", {"exp_avg", "exp_avg_sq"}},
      {"Muon", {"momentum_buffer"}}};
  for (const auto& [type, expected] : names) {
    const auto optimizer = make_from_config(type);
    TestSlice slice(at::ones({4, 5}));
    slice.step(*optimizer, at::ones({4, 5}));
    std::vector<std::string> found;
    for (const auto& [name, tensor] : optimizer->state(0).tensors) found.push_back(name);
    EXPECT_EQ(found, expected) << type;
    EXPECT_EQ(optimizer->state_bytes(), static_cast<int64_t>(20 * 4 * expected.size())) << type;
    SliceState foreign = optimizer->state(0);
    foreign.tensors[0].first = "other";
    EXPECT_ERROR(UsageError, optimizer->load_state(0, foreign), "the state holds 'other'") << type;
    foreign = optimizer->state(0);
    for (auto& [name, tensor] : foreign.tensors) tensor = at::zeros({19});
    EXPECT_ERROR(UsageError, optimizer->load_state(0, foreign), "slice 0 has 20 elements, the state has 19")
        << type;
  }
}

TEST(OptimizerState, CountsItsBytesAndIsEmptyBeforeTheFirstStep) {
  for (const auto& [dtype, bytes] : {std::pair{"fp32", 8}, std::pair{"bf16", 4}}) {
    const auto optimizer = make_from_config("Adam", message(R"({"moment_dtype": ")", dtype, R"("})").c_str());
    EXPECT_EQ(optimizer->state_bytes(), 0);
    EXPECT_TRUE(optimizer->state(0).tensors.empty());
    TestSlice slice(at::ones({10}));
    slice.step(*optimizer, at::ones({10}));
    EXPECT_EQ(optimizer->state_bytes(), 10 * bytes);
  }
}

TEST(OptimizerState, RejectsForeignNamesAndSizes) {
  const auto optimizer = make_from_config("Adam");
  TestSlice slice(at::ones({10}));
  slice.step(*optimizer, at::ones({10}));
  SliceState state = optimizer->state(0);
  state.tensors[0].first = "momentum";
  EXPECT_ERROR(UsageError, optimizer->load_state(0, state), "[optim.adam] the state holds 'momentum'");
  state.tensors = {{"exp_avg", at::zeros({9})}, {"exp_avg_sq", at::zeros({9})}};
  EXPECT_ERROR(UsageError, optimizer->load_state(0, state), "slice 0 has 10 elements, the state has 9");
}

void expect_optimizer_error(const std::string& type, const char* params, const std::string& part) {
  EXPECT_ERROR(ConfigError, make_from_config(type, params), part);
}

TEST(MakeOptimizer, NamesTheKeyThatIsWrong) {
  expect_optimizer_error("Adam", R"({"weight_decy": 0.1})", "optimizer.params.weight_decy: unknown key");
  expect_optimizer_error("Adam", R"({"max_grad_norm": 1})", "gradient_clipping");
  expect_optimizer_error("Adam", R"({"betas": [0.9, 1.0]})", "optimizer.params.betas");
  expect_optimizer_error("Adam", R"({"betas": 0.9})", "optimizer.params.betas");
  expect_optimizer_error("Adam", R"({"lr": "fast"})", "optimizer.params.lr");
  expect_optimizer_error("Adam", R"({"amsgrad": true})", "optimizer.params.amsgrad");
  expect_optimizer_error("Adam", R"({"moment_dtype": "fp16"})", "optimizer.params.moment_dtype");
  expect_optimizer_error("SGD", R"({"nesterov": true})", "optimizer.params.nesterov");
  expect_optimizer_error("MuSGD", "{}", "optimizer.type: \"MuSGD\" is not supported yet");
  for (const std::string type : {"Lion", "adagrad", "LAMB", "Muon"}) {
    expect_optimizer_error(type, R"({"weight_decy": 0.1})", "did you mean 'optimizer.params.weight_decay'");
    expect_optimizer_error(type, R"({"max_grad_norm": 1})", "gradient_clipping");
    expect_optimizer_error(type, R"({"lr": -1})", "optimizer.params.lr");
  }
  expect_optimizer_error("Lion", R"({"eps": 1e-8})", "optimizer.params.eps");
  expect_optimizer_error("Lamb", R"({"min_coeff": 11})", "optimizer.params.min_coeff");
  expect_optimizer_error("Lamb", R"({"amsgrad": true})", "optimizer.params.amsgrad");
  expect_optimizer_error("Muon", R"({"ns_method": "grams"})", "optimizer.params.ns_method");
  expect_optimizer_error("Adam", R"({"torch_adam": true, "amsgrad": true, "moment_dtype": "bf16"})",
                         "optimizer.params.amsgrad");
  expect_optimizer_error("Lambs", "{}", "did you mean \"Lamb\"");
  expect_optimizer_error(
      "Shampoo", "{}",
      "\"Shampoo\" is unknown; by name there are Adam, AdamW, Adagrad, Lamb, Lion, Muon, SGD");
  expect_optimizer_error("Shampoo", "{}", "any torch::optim::Optimizer may be passed to initialize()");
  expect_optimizer_error("Adam", R"({"learning_rate": 0.1})", "did you mean 'optimizer.params.lr'?");
  expect_optimizer_error("Adam", R"({"wd": 0.1})", "did you mean 'optimizer.params.weight_decay'?");
  expect_optimizer_error("AdamW", R"({"epsilon": 0.1})", "did you mean 'optimizer.params.eps'?");
  expect_optimizer_error("MuAdam", "{}", "not supported yet");
  expect_optimizer_error("sgd", "{}", "did you mean \"SGD\"");
  expect_optimizer_error("Adam", R"({"fp32_optimizer_states": true, "moment_dtype": "bf16"})",
                         "optimizer.params.fp32_optimizer_states: true contradicts moment_dtype \"bf16\"");
  expect_optimizer_error("Adam", R"({"fp32_optimizer_states": false, "moment_dtype": "fp32"})",
                         "optimizer.params.fp32_optimizer_states");
  expect_optimizer_error("AdamW", R"({"torch_adam": true, "amsgrad": true, "fp32_optimizer_states": false})",
                         "optimizer.params.amsgrad");
  expect_optimizer_error("RMSprop", R"({"alpha": -1})", "optimizer.params.alpha");
  expect_optimizer_error("RMSprop", R"({"maximize": true})", "optimizer.params.maximize: unknown key");
  expect_optimizer_error("Lion", R"({"betas": [0.9, 0.99, 0.999]})", "a list of two numbers in [0, 1)");
  expect_optimizer_error("Adam", "[1]", "optimizer.params: got [1], expected an object");
}

TEST(MakeOptimizer, SaysWhichClassesOfTorchLibTorchLacks) {
  for (const std::string type :
       {"NAdam", "Adadelta", "Adafactor", "Adamax", "ASGD", "RAdam", "Rprop", "SparseAdam"}) {
    expect_optimizer_error(
        type, "{}", "\"" + type + "\" is a class of torch.optim in Python that LibTorch does not have");
    expect_optimizer_error(type, "{}", "Adagrad, Adam, AdamW, LBFGS, RMSprop and SGD");
    expect_optimizer_error(
        type, "{}",
        "SGD, RMSprop, OneBitAdam, OneBitLamb, ZeroOneAdam, and any torch::optim::Optimizer may be passed");
  }
  expect_optimizer_error("LBFGS", "{}", "evaluates the loss within its step");
  expect_optimizer_error("rmsprop", "{}", "did you mean \"RMSprop\"");
}

}  // namespace
}  // namespace deepspeed::optim
