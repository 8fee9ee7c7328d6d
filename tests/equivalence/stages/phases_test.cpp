// A model that one engine after the other trains: each phase goes on with the weights of the one before, at
// whatever stage, wherever the parameters wait, and however the engine before has ended.
#include <functional>

#include <ATen/ops/equal.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/init.h"
#include "deepspeed/zero/make_whole.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/step_result.h"

#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using PhaseEngine = std::shared_ptr<DeepSpeedEngine<OddNet>>;

/// How an engine ends: destroy(), destroy() that leaves the parameters partitioned, or no word at all, while
/// the program keeps the optimizer or does not.
enum class EngineEnd { kDestroy, kKeepPartitioned, kDrop, kDropButKeepOptimizer };

Json phase_config(int stage, const Json& zero = Json::object(), const Json& rest = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 200}}},
                 {"log_level", "error"}};
  if (stage == 3) config["zero_optimization"]["stage3_param_persistence_threshold"] = 13;
  config["zero_optimization"].update(zero);
  config.merge_patch(rest);
  return config;
}

Json phase_params_on_host() { return {{"offload_param", {{"device", "cpu"}}}}; }

Json phase_params_on_disk(const std::string& folder) {
  return {{"offload_param", {{"device", "nvme"}, {"nvme_path", folder}, {"buffer_size", 1000}}}};
}

PhaseEngine phase_engine(const std::shared_ptr<OddNet>& model, comm::World& world, const Json& config) {
  return initialize(model, {.config = config, .world = world}).engine;
}

void train_phase(const PhaseEngine& engine, comm::World& world, int64_t first_step) {
  for (int64_t step = first_step; step < first_step + 3; ++step) {
    const auto [inputs, targets] = odd_batch(4 * (step * world.size() + world.rank()), 4);
    engine->backward(
        engine->forward(inputs.to(engine->module().parameters().front().scalar_type()), targets));
    engine->step();
  }
}

void end_phase(PhaseEngine engine, EngineEnd how) {
  static std::vector<std::shared_ptr<zero::ZeroOptimizer>> kept;
  if (how == EngineEnd::kDropButKeepOptimizer) kept.push_back(engine->optimizer());
  if (how == EngineEnd::kDestroy) engine->destroy();
  if (how == EngineEnd::kKeepPartitioned) engine->destroy({.keep_partitioned = true});
}

void expect_all_whole(const torch::nn::Module& model) {
  for (const auto& param : model.named_parameters()) {
    EXPECT_FALSE(zero::is_partitioned(param.value())) << param.key();
  }
}

/// The weights as they lie in the model, which is whole.
std::vector<at::Tensor> weights_as_they_lie(const torch::nn::Module& model) {
  std::vector<at::Tensor> weights;
  for (const auto& param : model.parameters()) weights.push_back(param.detach().clone());
  return weights;
}

void expect_same_weights(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(at::equal(actual[i], expected[i])) << what << " " << i;
}

/// Trains a model in phases of these configs, which all end so.
std::vector<at::Tensor> train_in_phases(comm::World& world, const std::vector<Json>& configs, EngineEnd how) {
  const auto model = std::make_shared<OddNet>();
  int64_t step = 0;
  for (const Json& config : configs) {
    const PhaseEngine engine = phase_engine(model, world, config);
    train_phase(engine, world, step);
    step += 3;
    end_phase(engine, how);
  }
  if (how != EngineEnd::kDestroy) zero::make_whole(model->parameters());
  expect_all_whole(*model);
  return weights_as_they_lie(*model);
}

class Phases : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Phases, ::testing::Values(1, 2, 3));

TEST_P(Phases, TrainAtAnyStagesAsAtStageZero) {
  run_ranks(GetParam(), [](comm::World& world) {
    const std::vector<std::pair<int, int>> stages = {{3, 3}, {3, 2}, {2, 3}, {3, 0}, {0, 3}, {1, 3}, {3, 1}};
    const auto expected = train_in_phases(world, {phase_config(0), phase_config(0)}, EngineEnd::kDrop);
    for (const auto& [first, second] : stages) {
      for (const EngineEnd how : {EngineEnd::kDestroy, EngineEnd::kKeepPartitioned, EngineEnd::kDrop,
                                  EngineEnd::kDropButKeepOptimizer}) {
        const auto weights = train_in_phases(world, {phase_config(first), phase_config(second)}, how);
        expect_same_weights(weights, expected,
                            std::to_string(first) + " to " + std::to_string(second) + ", end " +
                                std::to_string(static_cast<int>(how)) + ", parameter");
      }
    }
  });
}

TEST_P(Phases, MoveParametersFromOnePlaceToAnother) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    const Json plain = phase_config(3), host = phase_config(3, phase_params_on_host()),
               disk = phase_config(3, phase_params_on_disk(folder.string()));
    const Json zero = phase_config(0);
    const auto expected = train_in_phases(world, {zero, zero, zero}, EngineEnd::kDrop);
    for (const auto& phases : {std::vector<Json>{plain, host, disk},
                               {disk, plain, host},
                               {host, disk, disk},
                               {disk, phase_config(2), host}}) {
      for (const EngineEnd how : {EngineEnd::kDestroy, EngineEnd::kDrop})
        expect_same_weights(train_in_phases(world, phases, how), expected,
                            phases.front().dump() + " parameter");
    }
  });
}

TEST_P(Phases, TrainInSixteenBitsAsAtStageTwo) {
  run_ranks(GetParam(), [](comm::World& world) {
    const Json bf16 = {{"bf16", {{"enabled", true}}}};
    const auto two = phase_config(2, Json::object(), bf16), three = phase_config(3, Json::object(), bf16);
    const auto expected = train_in_phases(world, {two, two}, EngineEnd::kDestroy);
    for (const EngineEnd how : {EngineEnd::kDestroy, EngineEnd::kDrop}) {
      expect_same_weights(train_in_phases(world, {three, two}, how), expected, "3 to 2");
      expect_same_weights(train_in_phases(world, {two, three}, how), expected, "2 to 3");
      expect_same_weights(train_in_phases(world, {three, three}, how), expected, "3 to 3");
    }
  });
}

TEST_P(Phases, AlternateBetweenEvaluationAndTraining) {
  run_ranks(GetParam(), [](comm::World& world) {
    Json evaluation = phase_config(3);
    evaluation.erase("optimizer");
    for (const EngineEnd how : {EngineEnd::kDestroy, EngineEnd::kDrop}) {
      const auto model = std::make_shared<OddNet>(), reference = std::make_shared<OddNet>();
      const auto [inputs, targets] = odd_batch(0, 4);
      PhaseEngine engine = phase_engine(model, world, evaluation);
      const at::Tensor loss = engine->forward(inputs, targets).detach();
      EXPECT_TRUE(at::equal(loss, reference->forward(inputs, targets).detach()));
      end_phase(std::exchange(engine, nullptr), how);
      engine = phase_engine(model, world, phase_config(3));
      train_phase(engine, world, 0);
      end_phase(std::exchange(engine, nullptr), how);
      engine = phase_engine(model, world, evaluation);
      engine->forward(inputs, targets);
      engine->destroy();
      const PhaseEngine at_zero = phase_engine(reference, world, phase_config(0));
      train_phase(at_zero, world, 0);
      expect_same_weights(weights_as_they_lie(*model), weights_as_they_lie(*reference), "parameter");
    }
  });
}

TEST_P(Phases, BeginWithAModelOfZeroInit) {
  run_ranks(GetParam(), [](comm::World& world) {
    const auto expected = train_in_phases(world, {phase_config(0), phase_config(0)}, EngineEnd::kDrop);
    std::shared_ptr<OddNet> model;
    {
      const zero::Init init({.world = world});
      model = std::make_shared<OddNet>();
    }
    PhaseEngine engine = phase_engine(model, world, phase_config(3));
    train_phase(engine, world, 0);
    engine->destroy();
    expect_all_whole(*model);
    engine = phase_engine(model, world, phase_config(2));
    train_phase(engine, world, 3);
    expect_same_weights(weights_as_they_lie(*model), expected, "parameter");
  });
}

TEST(MakeWhole, GivesAModelOfZeroInitToAnyStage) {
  run_ranks(2, [](comm::World& world) {
    std::shared_ptr<OddNet> model;
    {
      const zero::Init init({.world = world});
      model = std::make_shared<OddNet>();
    }
    EXPECT_THAT(error_of<UsageError>([&] { phase_engine(model, world, phase_config(2)); }),
                AllOf(HasSubstr("zero::Init"), HasSubstr("zero::make_whole")));
    zero::make_whole(model->parameters());
    expect_all_whole(*model);
    expect_same_weights(weights_as_they_lie(*model), weights_as_they_lie(OddNet()), "parameter");
    train_phase(phase_engine(model, world, phase_config(2)), world, 0);
  });
}

TEST(Stage3Destroy, MakesTheWeightsOrdinaryTensors) {
  run_ranks(2, [](comm::World& world) {
    const auto model = std::make_shared<OddNet>();
    const at::Tensor first = model->parameters().front();
    const PhaseEngine engine = phase_engine(model, world, phase_config(3));
    train_phase(engine, world, 0);
    const auto [inputs, targets] = odd_batch(0, 4);
    const at::Tensor loss = engine->forward(inputs, targets).detach();
    const at::Tensor view = first.detach().view({-1});
    EXPECT_ERROR(UsageError, model->forward(inputs, targets),
                 "parameter 'first.bias' is partitioned over 2 ranks", "open a zero::ParameterAccess");
    engine->destroy();
    expect_all_whole(*model);
    EXPECT_TRUE(first.is_same(model->parameters().front()));
    EXPECT_EQ(first.storage().nbytes(), first.nbytes());  // without the padding of shards
    EXPECT_TRUE(first.requires_grad());
    EXPECT_TRUE(at::equal(model->forward(inputs, targets).detach(), loss));
    EXPECT_TRUE(at::equal(engine->forward(inputs, targets).detach(), loss));
    model->forward(inputs, targets).backward();
    EXPECT_TRUE(first.grad().defined());
    EXPECT_THAT(error_of<UsageError>([&] { view.sum(); }), HasSubstr("make new views"));
    engine->destroy();  // a second time changes nothing
  });
}

TEST(Stage3Destroy, LeavesTheModelPartitionedIfAsked) {
  run_ranks(2, [](comm::World& world) {
    const auto model = std::make_shared<OddNet>();
    const PhaseEngine engine = phase_engine(model, world, phase_config(3));
    const auto [inputs, targets] = odd_batch(0, 4);
    const at::Tensor loss = engine->forward(inputs, targets).detach();
    engine->destroy({.keep_partitioned = true});
    EXPECT_TRUE(zero::is_partitioned(model->parameters().front()));
    EXPECT_TRUE(at::equal(engine->forward(inputs, targets).detach(), loss));
    zero::make_whole(model->parameters());
    expect_all_whole(*model);
  });
}

TEST(Stage3Destroy, ChangesNothingInsideGatheredParameters) {
  run_ranks(2, [](comm::World& world) {
    const auto model = std::make_shared<OddNet>();
    const PhaseEngine engine = phase_engine(model, world, phase_config(3));
    {
      const zero::GatheredParameters gathered(model->parameters());
      EXPECT_THAT(error_of<UsageError>([&] { engine->destroy(); }),
                  HasSubstr("leave zero::GatheredParameters"));
    }
    train_phase(engine, world, 0);
  });
}

TEST(Stage3Model, HasOneEngineAtATime) {
  run_ranks(2, [](comm::World& world) {
    const auto model = std::make_shared<OddNet>();
    const PhaseEngine engine = phase_engine(model, world, phase_config(3));
    EXPECT_THAT(error_of<UsageError>([&] { zero::make_whole(model->parameters()); }),
                AllOf(HasSubstr("has an engine"), HasSubstr("destroy()")));
    EXPECT_THAT(error_of<UsageError>([&] { phase_engine(model, world, phase_config(3)); }),
                HasSubstr("another engine"));
    train_phase(engine, world, 0);  // goes on
  });
}

TEST(RetiredOptimizer, TakesNoStepAndNoGradients) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 2, 3}) {
      const auto model = std::make_shared<OddNet>();
      PhaseEngine engine = phase_engine(model, world, phase_config(stage));
      const auto optimizer = engine->optimizer();
      train_phase(engine, world, 0);
      engine = nullptr;
      EXPECT_THAT(error_of<UsageError>([&] { optimizer->step(4); }), HasSubstr("engine is gone"));
      EXPECT_EQ(optimizer->param_groups().front().lr(), 0.01);
      train_phase(phase_engine(model, world, phase_config(stage)), world, 3);
      EXPECT_FALSE(optimizer->gradients().is_open()) << stage;
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
