// The arguments of initialize(): which config, which job, which optimizer.
#include "deepspeed/initialize.h"

#include <fstream>

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

ConfigArguments arguments_with(const std::string& config, const std::string& deepscale_config = "",
                               int local_rank = -1) {
  ConfigArguments arguments;
  arguments.deepspeed_config = config;
  arguments.deepscale_config = deepscale_config;
  arguments.local_rank = local_rank;
  return arguments;
}

template <class E>
void refuses(const InitializeOptions& options, const char* text) {
  EXPECT_THAT([&] { initialize(std::make_shared<OddNet>(), options); }, ThrowsMessage<E>(HasSubstr(text)));
}

template <class E>
void refuses_model(const std::shared_ptr<OddNet>& model, const char* text) {
  EXPECT_THAT([&] { initialize(model, {.config = basic()}); }, ThrowsMessage<E>(HasSubstr(text)));
}

Json merged(Json config, const Json& patch) {
  config.merge_patch(patch);
  return config;
}

const Json kNoOptimizer = {{"train_batch_size", 4}, {"gradient_clipping", 0.0}};

using torch::optim::SGD;
using torch::optim::SGDOptions;

TEST(Initialize, MakesTheOptimizerByACallable) {
  const auto reference = std::make_shared<OddNet>(), model = std::make_shared<OddNet>();
  const auto sgd = std::make_shared<SGD>(reference->parameters(), SGDOptions(0.1));
  const auto expected = initialize(reference, {.config = kNoOptimizer, .optimizer = sgd}).engine;
  size_t num_params = 0;
  const auto make = [&](const std::vector<at::Tensor>& parameters) {
    num_params = parameters.size();
    return std::make_unique<SGD>(parameters, SGDOptions(0.1));
  };
  const auto engine = initialize(model, {.config = kNoOptimizer, .optimizer = make}).engine;
  EXPECT_EQ(num_params, model->parameters().size() - 1) << "all but the frozen one";
  EXPECT_EQ(engine->get_lr(), std::vector<double>{0.1});
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(train_step(*engine, 4 * step), train_step(*expected, 4 * step));
  }
  const auto of = [](const auto& net, const char* name) { return net->named_parameters()[name]; };
  EXPECT_TRUE(of(model, "first.weight").equal(of(reference, "first.weight")));
}

TEST(Initialize, TrainsAModelInSixteenBitsAsTheSectionOfItsTypeDoes) {
  const std::vector<std::pair<at::ScalarType, Json>> kinds = {
      {at::kBFloat16, {{"bf16", {{"enabled", true}}}}},
      {at::kHalf, {{"fp16", {{"enabled", true}, {"loss_scale", 1}}}}}};
  for (const auto& [dtype, section] : kinds) {
    for (const int stage : {0, 2, 3}) {
      const Json patch = {{"zero_optimization", {{"stage", stage}}}};
      const auto converted = std::make_shared<OddNet>();
      converted->to(dtype);
      const auto engine = initialize(converted, {.config = basic(patch)}).engine;
      EXPECT_EQ(converted->parameters().front().scalar_type(), dtype);
      const auto expected = make_engine(basic(merged(patch, section)));
      for (int step = 0; step < 3; ++step)
        EXPECT_EQ(train_step(*engine, 4 * step), train_step(*expected, 4 * step)) << dtype << stage;
    }
  }
}

TEST(Initialize, LeavesAModelOfSeveralTypesToTheConfig) {
  const auto mixed = std::make_shared<OddNet>();
  at::Tensor& weight = mixed->named_parameters()["first.weight"];
  weight.set_data(weight.to(at::kBFloat16));
  refuses_model<UsageError>(mixed, "'first.weight' is BFloat16, expected Float or Double");
}

TEST(Initialize, GivesTheCallableTheModelParametersThatWereNamed) {
  const auto model = std::make_shared<OddNet>();
  const at::Tensor weight = model->named_parameters()["last.weight"];
  const at::Tensor other = model->named_parameters()["first.weight"].detach().clone();
  const auto make = [](const std::vector<at::Tensor>& parameters) {
    return std::make_shared<SGD>(parameters, SGDOptions(0.1));
  };
  const auto engine =
      initialize(model, {.config = kNoOptimizer, .optimizer = make, .model_parameters = {{{weight}}}}).engine;
  train_step(*engine);
  EXPECT_TRUE(model->named_parameters()["first.weight"].equal(other));
  refuses<UsageError>(
      {.config = kNoOptimizer, .optimizer = make, .model_parameters = {{{weight}, {{"lr", 0.5}}}}},
      "beside a callable optimizer");
  const auto nothing = [](const std::vector<at::Tensor>&) { return std::shared_ptr<SGD>(); };
  refuses<UsageError>({.config = kNoOptimizer, .optimizer = nothing}, "the callable returned no optimizer");
  refuses<UsageError>({.config = kNoOptimizer, .optimizer = make({weight}), .model_parameters = {{{weight}}}},
                      "either an optimizer, which has its own groups, or model_parameters");
}

TEST(Initialize, TakesTheConfigFromItsArguments) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "ds_config.json").string();
  std::ofstream(path) << R"({"train_batch_size": 6})";
  const auto batch_of = [](const InitializeOptions& options) {
    return initialize(std::make_shared<OddNet>(), options).engine->config().train_batch_size;
  };
  EXPECT_EQ(batch_of({.config = path}), 6);
  EXPECT_EQ(batch_of({.config = path.c_str()}), 6);
  EXPECT_EQ(batch_of({.args = arguments_with(path)}), 6);
  EXPECT_EQ(batch_of({.args = arguments_with("", path)}), 6);
  EXPECT_EQ(batch_of({.config_params = Json{{"train_batch_size", 8}}}), 8);
  EXPECT_EQ(batch_of({.config = Json{{"train_batch_size", 8}}, .args = ConfigArguments{}}), 8);
  const Json json = {{"train_batch_size", 8}};
  refuses<UsageError>({}, "got no config");
  refuses<UsageError>({.config = json, .config_params = json}, "got 2 configs");
  refuses<UsageError>({.config = json, .args = arguments_with(path)}, "got 2 configs");
  refuses<UsageError>({.args = arguments_with(path, path)}, "--deepscale_config");
  refuses<UsageError>({.config = json, .args = arguments_with("", "", 3)}, "--local_rank is 3");
}

TEST(Initialize, SaysWhatItCannotDo) {
  const Json json = {{"train_batch_size", 8}};
  refuses<UsageError>({.config = json, .mesh_param = {{2, 1}}}, "mesh_param: got (2, 1)");
  refuses<UsageError>({.config = json, .mesh_param = {{1}}}, "mesh_param: got (1)");
  EXPECT_EQ(initialize(std::make_shared<OddNet>(), {.config = json, .mesh_param = {{1, 1}}})
                .engine->dp_world_size(),
            1);
  EXPECT_THAT([&] { initialize(std::shared_ptr<OddNet>(), {.config = json}); },
              ThrowsMessage<UsageError>(HasSubstr("the model is null")));
  EXPECT_THAT([&] { initialize(torch::nn::Linear(nullptr), InitializeOptions{.config = json}); },
              ThrowsMessage<UsageError>(HasSubstr("the model is null")));
}

TEST(Initialize, JoinsTheJobAsItIsTold) {
  run_ranks(2, [](comm::World&) {
    const Json json = {{"train_batch_size", 8}};
    const auto size_of = [&](const InitializeOptions& options) {
      return initialize(std::make_shared<OddNet>(), options).engine->dp_world_size();
    };
    EXPECT_EQ(size_of({.config = json, .dist_init_required = false}), 2);
    EXPECT_EQ(size_of({.config = json, .dist_init_required = true}), 2);
    EXPECT_THAT(
        [&] {
          size_of({.config = json, .mesh_param = {{1, 2}}});
        },
        ThrowsMessage<NotSupportedError>(HasSubstr("sequence parallel size of 2")));
  });
  const auto outcomes = fork_ranks(1, [](int) -> std::string {
    comm::destroy_process_group();  // the world of one that other tests of this process made
    const Json json = {{"train_batch_size", 8}};
    return testing::error_of<UsageError>(
        [&] { initialize(std::make_shared<OddNet>(), {.config = json, .dist_init_required = false}); });
  });
  EXPECT_THAT(outcomes.at(0).value, HasSubstr("dist_init_required: got false"));
}

TEST(Initialize, JoinsTheJobAtTheLevelOfItsConfig) {
  const auto lines_at = [](const char* level) {
    return fork_ranks(
               1,
               [&](int) {
                 comm::destroy_process_group();  // the world of one that other tests of this process made
                 std::string lines;
                 log::set_sink([&](log::Level, const std::string& line) { lines += line + "\n"; });
                 make_engine(basic({{"log_level", level}}));
                 log::set_sink({});
                 return lines;
               })
        .at(0)
        .value;
  };
  EXPECT_THAT(lines_at("info"), HasSubstr("comm: gloo, 1 rank"));
  EXPECT_EQ(lines_at("warning"), "");
}

}  // namespace
}  // namespace deepspeed::testing
