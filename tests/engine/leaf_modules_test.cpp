// Blocks of experts at stage 3: ranks use different parts of a leaf module, and train as at stage 0.
#include "deepspeed/engine/model/leaf_modules.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/param_access.h"

#include "tests/support/error_of.h"
#include "tests/support/formula_training.h"
#include "tests/support/parting_ranks.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {

struct Expert : torch::nn::Module {
  explicit Expert(int64_t width)
      : up(register_module("up", torch::nn::Linear(width, 2 * width))),
        down(register_module("down", torch::nn::Linear(2 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return down(at::gelu(up(x))); }
  torch::nn::Linear up, down;
};

struct Experts : torch::nn::Module {
  explicit Experts(int64_t width) : router(register_module("router", torch::nn::Linear(width, 1))) {
    for (int i = 0; i < 4; ++i) all.push_back(register_module(std::to_string(i), make(width)));
  }
  at::Tensor forward(const at::Tensor& x, int64_t which) {
    const size_t chosen = static_cast<size_t>(which) % all.size();
    return x + all[chosen]->forward(x) * at::sigmoid(router(x));
  }
  static std::shared_ptr<Expert> make(int64_t width) { return std::make_shared<Expert>(width); }
  torch::nn::Linear router;
  std::vector<std::shared_ptr<Expert>> all;
};

struct ExpertNet : torch::nn::Module {
  explicit ExpertNet(bool uses_first_twice = false) : twice(uses_first_twice) {
    first = register_module("first", torch::nn::Linear(7, 9));
    a = register_module("a", std::make_shared<Experts>(9));
    between = register_module("between", torch::nn::Linear(9, 9));
    b = register_module("b", std::make_shared<Experts>(9));
    last = register_module("last", torch::nn::Linear(9, 3));
    fill_parameters(*this, 0.3);
  }
  /// which: an expert of each block; below 0: the blocks are left out.
  at::Tensor forward(const at::Tensor& inputs, int64_t which) {
    at::Tensor x = first(inputs);
    if (which >= 0) x = a->forward(x, which);
    x = at::gelu(between(x));
    if (which >= 0 && twice) x = a->forward(x, which + 1);
    if (which >= 0) x = b->forward(x, which + 2);
    return last(x).to(at::kFloat).pow(2).mean();
  }
  bool twice;
  torch::nn::Linear first{nullptr}, between{nullptr}, last{nullptr};
  std::shared_ptr<Experts> a, b;
};

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Json kAhead = {{"device", "cpu"}, {"super_offload", true}};
const Json kByClass = {{"leaf_module", {{"classes", "Experts"}}}};

Json expert_config(int stage, const Json& zero = Json::object(), const Json& patch = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 3},
                 {"gradient_clipping", 0.0},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 100}}}};
  if (stage == 3) {
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 0;
    config["zero_optimization"].update(zero);
  }
  config.merge_patch(patch);
  return config;
}

/// The losses of some steps and the weights after them; each rank uses experts of its own.
std::vector<at::Tensor> train_experts(comm::World& world, const Json& config, bool twice = false,
                                      bool direct = false) {
  const auto engine =
      initialize(std::make_shared<ExpertNet>(twice), {.config = config, .world = world}).engine;
  const auto dtype = engine->module().first->weight.scalar_type();
  std::vector<at::Tensor> results;
  for (int64_t step = 0; step < 5; ++step) {
    const at::Tensor inputs =
        at::arange(21, at::kFloat).add_(double(step + world.rank())).sin_().view({3, 7}).to(dtype);
    const at::Tensor loss = engine->forward(inputs, step + world.rank());
    if (direct) {
      loss.backward();
    } else {
      engine->backward(loss);
    }
    engine->step();
    results.push_back(loss.detach());
  }
  const zero::GatheredParameters gathered(engine->module().parameters());
  for (const at::Tensor& param : engine->module().parameters()) results.push_back(param.detach().clone());
  return results;
}

void expect_equal_results(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& expected,
                          const Json& config) {
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(results[i].equal(expected[i])) << i << config;
}

TEST(LeafModules, TrainAsAtStageZeroIfRanksUseDifferentExperts) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [](comm::World& world) {
      const auto expected = train_experts(world, expert_config(0));
      for (Json zero : std::vector<Json>{Json::object(),
                                         {{"stage3_max_live_parameters", 0}},
                                         {{"stage3_max_live_parameters", 700}, {"overlap_comm", false}},
                                         {{"stage3_prefetch_bucket_size", 300}},
                                         {{"stage3_max_reuse_distance", 0}},
                                         {{"stage3_param_persistence_threshold", 30}},
                                         {{"contiguous_gradients", false}},
                                         {{"offload_optimizer", kAhead}}}) {
        zero.update(kByClass);
        expect_equal_results(train_experts(world, expert_config(3, zero)), expected, zero);
      }
    });
  }
}

TEST(LeafModules, TakeInputsWithoutAGradient) {
  run_ranks(2, [](comm::World& world) {
    const auto expected = train_experts(world, expert_config(0));
    // The model itself is the leaf: what it is given comes from no operator.
    const auto results =
        train_experts(world, expert_config(3, {{"leaf_module", {{"classes", "ExpertNet"}}}}));
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(results[i], expected[i])) << i;
  });
}

TEST(LeafModules, AreGatheredAsOneIfTheEngineOnlyEvaluates) {
  run_ranks(3, [](comm::World& world) {
    Json config = expert_config(3, kByClass), whole = expert_config(0);
    for (Json* one : {&config, &whole}) one->erase("optimizer");
    const auto evaluator =
        initialize(std::make_shared<ExpertNet>(), {.config = config, .world = world}).engine;
    const auto plain = initialize(std::make_shared<ExpertNet>(), {.config = whole, .world = world}).engine;
    const torch::NoGradGuard no_grad;
    for (int64_t pass = 0; pass < 3; ++pass) {
      const int64_t expert = (pass + world.rank()) % 2;
      const at::Tensor input = at::full({3, 7}, 0.5 + double(pass));
      EXPECT_TRUE(evaluator->forward(input, expert).equal(plain->forward(input, expert))) << pass;
    }
  });
}

TEST(LeafModules, MayBeUsedSeveralTimesInAPassAndInDirectBackwards) {
  run_ranks(3, [](comm::World& world) {
    for (const bool direct : {false, true}) {
      const auto expected = train_experts(world, expert_config(0), /*twice=*/true, direct);
      expect_equal_results(train_experts(world, expert_config(3, kByClass), true, direct), expected, direct);
    }
  });
}

TEST(LeafModules, TrainInLowPrecisionAsAtStageTwo) {
  run_ranks(3, [](comm::World& world) {
    for (const Json& patch : {Json{{"bf16", {{"enabled", true}}}},
                              Json{{"torch_autocast", {{"enabled", true}, {"dtype", "bf16"}}}}}) {
      const auto expected = train_experts(world, expert_config(2, {}, patch));
      for (Json zero : {Json::object(), Json{{"stage3_max_live_parameters", 0}}}) {
        zero.update(kByClass);
        expect_equal_results(train_experts(world, expert_config(3, zero, patch)), expected, patch);
      }
    }
  });
}

TEST(LeafModules, AreNamedInEveryWay) {
  run_ranks(2, [](comm::World& world) {
    const auto expected = train_experts(world, expert_config(0));
    for (const Json& zero : {Json{{"leaf_module", {{"classes", {"deepspeed::testing::Experts"}}}}},
                             Json{{"leaf_module", {{"names", {"a", "b"}}}}},
                             Json{{"leaf_module", {{"name_suffixes", {"a"}}, {"names", {"b"}}}}},
                             Json{{"stage3_module_granularity_threshold", 1'000'000}}}) {  // the whole model
      expect_equal_results(train_experts(world, expert_config(3, zero)), expected, zero);
    }
  });
}

/// The texts of the errors with which two ranks end that pass these experts to forward().
std::vector<std::string> errors_of_experts(const Json& config, const std::vector<int64_t>& which) {
  return errors_of_two_ranks([&](comm::World& world) {
    const auto engine = initialize(std::make_shared<ExpertNet>(), {.config = config, .world = world}).engine;
    const int64_t expert = which[static_cast<size_t>(world.rank())];
    return [engine, expert] { engine->backward(engine->forward(at::ones({3, 7}), expert)); };
  });
}

TEST(LeafModules, FailAsDivergedRanksIfTheyAreNotDeclared) {
  for (const auto& text : errors_of_experts(expert_config(3), {0, 1})) {
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 called"), HasSubstr("'a.0.up."), HasSubstr("rank 1"),
                            HasSubstr("'a.1.up.")));
  }
}

TEST(LeafModules, FailAsDivergedRanksIfOneRankUsesNone) {
  for (const auto& text : errors_of_experts(expert_config(3, kByClass), {0, -1})) {
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 called"), HasSubstr("leaf module 'a'"), HasSubstr("rank 1"),
                            HasSubstr("'between.")));
  }
}

TEST(LeafModuleMarks, AreSetFoundAndTakenAway) {
  const auto model = std::make_shared<ExpertNet>();
  EXPECT_TRUE(get_z3_leaf_modules(model).empty());
  EXPECT_THAT(set_z3_leaf_modules(model, {"Experts"}), ElementsAre(model->a, model->b));
  EXPECT_THAT(get_z3_leaf_modules(model), ElementsAre(model->a, model->b));
  EXPECT_TRUE(z3_leaf_module(model->a));
  EXPECT_FALSE(z3_leaf_module(model->first.ptr()));
  EXPECT_TRUE(z3_leaf_parameter(model->b->all[2]->down->bias));
  EXPECT_FALSE(z3_leaf_parameter(model->first->weight));
  EXPECT_THAT(unset_z3_leaf_modules_by_name(model, {"a"}), ElementsAre(model->a));
  EXPECT_THAT(get_z3_leaf_modules(model), ElementsAre(model->b));
  unset_z3_leaf_modules(model, {"deepspeed::testing::Experts"});
  EXPECT_TRUE(get_z3_leaf_modules(model).empty());
  EXPECT_EQ(set_z3_leaf_modules_by_suffix(model, {".2", "first"}).size(), 3U);
  EXPECT_EQ(unset_z3_leaf_modules_by_suffix(model, {".2", "first"}).size(), 3U);
  EXPECT_THAT(error_of<UsageError>([&] {
                set_z3_leaf_modules(model, {"Block", "Xperts"});
              }),
              AllOf(HasSubstr("no module of class"), HasSubstr("'Block', 'Xperts'")));
  EXPECT_ERROR(UsageError, set_z3_leaf_modules_by_name(model, {}), "the model has no module of name none");
  EXPECT_ERROR(UsageError, get_z3_leaf_modules(nullptr), "[engine.leaf_modules] the model is null");
  const torch::nn::Module& module = *model;
  zero::register_external_parameter(module, model->first->weight);
  zero::unregister_external_parameter(module, model->first->weight);
  EXPECT_ERROR(UsageError, zero::register_external_parameter(module, at::Tensor()),
               "[zero.param_access] got an undefined tensor");
}

TEST(LeafModuleMarks, HoldForInitialize) {
  run_ranks(2, [](comm::World& world) {
    const auto model = std::make_shared<ExpertNet>();
    set_z3_leaf_modules_by_name(model, {"a", "b"});
    set_z3_leaf_module(model->a->all[1]);  // inside of one
    const auto engine = initialize(model, {.config = expert_config(3), .world = world}).engine;
    for (int step = 0; step < 3; ++step) {
      engine->backward(engine->forward(at::ones({3, 7}), world.rank() + step));
      engine->step();
    }
    EXPECT_TRUE(engine->was_step_applied());
    set_z3_leaf_module(model->a->all[1], false);
  });
}

TEST(LeafModuleMarks, AreRefusedIfTwoLeavesShareAParameter) {
  run_ranks(1, [](comm::World& world) {
    const auto model = std::make_shared<ExpertNet>();
    model->b->register_parameter("tied", model->a->all[0]->up->weight);
    EXPECT_THAT(error_of<UsageError>(
                    [&] { initialize(model, {.config = expert_config(3, kByClass), .world = world}); }),
                AllOf(HasSubstr("'a.0.up.weight'"), HasSubstr("leaf module 'a'"), HasSubstr("'b'")));
  });
}

}  // namespace
}  // namespace deepspeed::testing
