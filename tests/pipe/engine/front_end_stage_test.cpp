// Tests a front end that builds, describes and runs its stage itself.
#include <ATen/ops/ones.h>

#include <gtest/gtest.h>

#include "deepspeed/pipe/module/pipeline_module.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

EngineModel model_of(const std::string& name, const at::Tensor& weight) {
  EngineModel model;
  model.parameters = {{name, weight}};
  return model;
}

std::vector<LayerSpec> layers(const at::Tensor& weight) {
  const auto make = [weight] { return pipe::TiedModule{"Lone", nullptr, model_of("weight", weight)}; };
  const auto bind = [](const pipe::TiedModule&) { return pipe::TensorFunction(); };
  return {LayerSpec("First",
                    [] {
                      return pipe::Layer{"First", {}, {}};
                    }),
          TiedLayerSpec("Lone", pipe::Tie{"key", {"weight"}, make, bind})};
}

PipelineModuleOptions options_of(const at::Tensor& weight) {
  const auto forward = [weight](int, const pipe::Tensors& inputs) {
    return pipe::Tensors{inputs.front() * weight};
  };
  PipelineModuleOptions options{.num_stages = 1};
  options.front_end = pipe::FrontEndStage{{0, 2}, model_of("its.own", weight), forward};
  return options;
}

TEST(FrontEndStage, RunsByItsOwnForwardUnderItsOwnNames) {
  run_ranks(1, [](comm::World&) {
    const at::Tensor weight = at::ones({2}) * 3;
    PipelineModule module(layers(weight), options_of(weight));
    EXPECT_EQ(module.parts(), (Parts{0, 2}));
    ASSERT_EQ(module.named_parameters().size(), 1);
    EXPECT_EQ(module.named_parameters().front().name, "its.own");
    EXPECT_TRUE(module.forward({at::ones({2}) * 2}).front().equal(at::ones({2}) * 6));
    EXPECT_EQ(module.layers().back().layer.model.parameters.front().name, "weight");
  });
}

TEST(FrontEndStage, MayHaveATiedKeyThatOneLayerAloneHas) {
  run_ranks(1, [](comm::World&) {
    const at::Tensor weight = at::ones({2});
    PipelineModuleOptions own = options_of(weight);
    own.front_end.reset();
    EXPECT_TRUE(
        throws_error<UsageError>([&] { PipelineModule(layers(weight), own); }, {"the tied key 'key'"}));
    EXPECT_EQ(PipelineModule(layers(weight), options_of(weight)).num_layers(), 2);
  });
}

}  // namespace
}  // namespace deepspeed::testing
