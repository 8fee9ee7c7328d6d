// Parameters that get other memory after initialize(), as torch::load() gives it, and tensors that share the
// memory of parameters before: nothing goes on with weights that training does not reach.
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <torch/serialize.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Json of_stage(int stage, Json patch = Json::object()) {
  Json config = basic({{"log_level", "error"},
                       {"gradient_clipping", 0},
                       {"zero_optimization", {{"stage", stage}, {"stage3_param_persistence_threshold", 0}}}});
  config.merge_patch(patch);
  return config;
}

std::vector<at::Tensor> values_of(const torch::nn::Module& model) {
  const zero::GatheredParameters gathered(model.parameters());
  std::vector<at::Tensor> values;
  for (const at::Tensor& param : model.parameters()) values.push_back(param.detach().clone());
  return values;
}

// A model file of torch::save(), with other weights.
std::string saved_model(double factor) {
  auto model = std::make_shared<OddNet>(0.0, /*seed=*/2);
  const c10::NoGradGuard no_grad;
  for (at::Tensor& param : model->parameters()) param.mul_(factor);
  std::ostringstream out;
  torch::save(std::static_pointer_cast<torch::nn::Module>(model), out);
  return out.str();
}

void load_model(OddNet& model, const std::string& file) {
  std::istringstream in(file);
  torch::serialize::InputArchive archive;
  archive.load_from(in);
  model.load(archive);
}

// As torch::nn::utils::vector_to_parameters() does it.
void give_other_memory(const torch::nn::Module& model) {
  for (at::Tensor& param : model.parameters()) param.set_data(at::zeros(param.sizes()));
}

TEST(ReplacedMemory, IsRefusedForTrainedParameters) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const auto engine = make_engine(of_stage(stage));
    train_step(*engine);
    if (stage < 3) {
      load_model(engine->module(), saved_model(1.0));
    } else {
      EXPECT_THAT(error_of<UsageError>([&] { load_model(engine->module(), saved_model(1.0)); }),
                  AllOf(HasSubstr("'gain'"), HasSubstr("partitioned")));
      give_other_memory(engine->module());
    }
    const auto names_it =
        AllOf(HasSubstr("'gain'"), HasSubstr("torch::load()"), HasSubstr("load_module_state_dict()"));
    EXPECT_THAT(error_of<UsageError>([&] { train_step(*engine); }), AllOf(HasSubstr("backward()"), names_it));
    const TemporaryFolder folder;
    EXPECT_THAT(error_of<UsageError>([&] { engine->save_checkpoint(folder.path()); }),
                AllOf(HasSubstr("save_checkpoint()"), names_it));
  }
}

TEST(ReplacedMemory, IsRefusedIfAParameterChangedItsTypeAndBack) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const auto engine = make_engine(of_stage(stage));
    at::Tensor bias = engine->module().named_parameters()["last.bias"];
    {
      const zero::GatheredParameters gathered({bias});
      const at::Tensor half = bias.detach().to(at::kHalf);
      if (stage < 3) {
        bias.set_data(half);
        bias.set_data(half.to(at::kFloat));
      }
    }
    if (stage == 3) bias.set_data(at::zeros(bias.sizes()));
    EXPECT_THAT(error_of<UsageError>([&] { train_step(*engine); }), HasSubstr("'last.bias'"));
  }
}

TEST(ReplacedMemory, GivesAllRanksTheValuesInsideGatheredParameters) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [](comm::World& world) {
      const int modifier = world.size() - 1;
      const auto train_with = [&](bool by_load) {
        const auto engine = make_engine(of_stage(3), world);
        train_step(*engine);
        OddNet& model = engine->module();
        {
          const zero::GatheredParameters gathered(model.parameters(), modifier);
          if (by_load) {
            load_model(model, saved_model(1.0 + (world.rank() == modifier ? 0 : 1)));
          } else if (world.rank() == modifier) {
            OddNet other;
            load_model(other, saved_model(1.0));
            const c10::NoGradGuard no_grad;
            for (size_t i = 0; i < other.parameters().size(); ++i)
              model.parameters()[i].copy_(other.parameters()[i]);
          }
        }
        for (int64_t step = 1; step < 3; ++step) train_step(*engine, 4 * step);
        return values_of(model);
      };
      const auto expected = train_with(false);
      const auto found = train_with(true);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
    });
  }
}

TEST(ReplacedMemory, IsSeenUntilTheEndOfGatheredParametersThatOnlyRead) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = make_engine(of_stage(3), world);
    train_step(*engine);
    const auto expected = values_of(engine->module());
    {
      const zero::GatheredParameters gathered(engine->module().parameters());
      give_other_memory(engine->module());
      for (const at::Tensor& param : engine->module().parameters())
        EXPECT_EQ(param.count_nonzero().item<int>(), 0);
    }
    const auto found = values_of(engine->module());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
    train_step(*engine);
  });
}

TEST(ReplacedMemory, IsRefusedByGatheredParametersWithOtherSizesOrType) {
  for (const at::Tensor& other : {at::ones({2}), at::ones({5}, at::kHalf)}) {
    const auto engine = make_engine(of_stage(3));
    const auto expected = values_of(engine->module());
    at::Tensor bias = engine->module().named_parameters()["last.bias"];
    EXPECT_THAT(error_of<UsageError>([&] {
                  const zero::GatheredParameters gathered({bias}, 0);
                  bias.set_data(other);
                }),
                AllOf(HasSubstr("'last.bias'"), HasSubstr("[5]"), HasSubstr("the same type and sizes")));
    const auto found = values_of(engine->module());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
    train_step(*engine);
  }
}

// A linear map and a second tensor of the same memory.
struct SharingNet : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", at::ones({4, 6}));
  at::Tensor forward(const at::Tensor& x) { return x.mm(weight).pow(2).sum(); }
};

template <class Share>
std::string error_of_sharing(int stage, Share&& share) {
  const auto model = std::make_shared<SharingNet>();
  share(*model);
  return error_of<UsageError>([&] { initialize(model, {.config = of_stage(stage)}); });
}

TEST(SharedMemory, IsRefusedForParametersAtEveryStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const auto row = [](SharingNet& model) { return model.weight.detach()[1]; };
    EXPECT_THAT(error_of_sharing(stage, [&](auto& model) { model.register_parameter("row", row(model)); }),
                AllOf(HasSubstr("'weight'"), HasSubstr("'row'"), HasSubstr("share memory")));
    EXPECT_THAT(
        error_of_sharing(stage, [&](auto& model) { model.register_parameter("row", row(model), false); }),
        AllOf(HasSubstr("'weight'"), HasSubstr("'row'")));
    EXPECT_THAT(error_of_sharing(
                    stage, [](auto& model) { model.register_buffer("turned", model.weight.detach().t()); }),
                AllOf(HasSubstr("'weight'"), HasSubstr("buffer 'turned'")));
  }
}

TEST(SharedMemory, IsAllowedForOtherElements) {
  for (int stage = 0; stage <= 3; ++stage) {
    const auto model = std::make_shared<SharingNet>();
    const at::Tensor memory = at::ones({4, 12});
    model->weight.set_data(memory.narrow(1, 0, 6));
    model->register_parameter("right", memory.narrow(1, 6, 6));
    model->register_parameter("same", at::ones({1}).expand({8}));
    model->register_buffer("first", at::ones({2, 3}));
    model->register_buffer("twin", model->named_buffers()["first"].view({-1}));  // of a buffer
    const auto engine = initialize(model, {.config = of_stage(stage)}).engine;
    engine->backward(engine->forward(at::ones({2, 4})));
    engine->step();
  }
}

}  // namespace
}  // namespace deepspeed::testing
