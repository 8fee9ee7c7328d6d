#include "deepspeed/pipe/module/stage_model.h"

#include <ATen/ops/ones.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepspeed::pipe {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

StageLayer layer_of(int index, const std::string& prefix, const at::Tensor& weight, int* num_trained) {
  StageLayer layer{.index = index, .prefix = prefix, .layer = {}};
  layer.layer.model.parameters = {{"weight", weight}};
  layer.layer.model.set_training = [num_trained](bool training) { *num_trained += training ? 1 : 0; };
  return layer;
}

TEST(JoinModels, PutsTiedModulesFirstAndEachModuleOnce) {
  const at::Tensor shared = at::ones({2});
  int num_trained = 0;
  std::vector<StageLayer> layers = {
      layer_of(4, "4", at::ones({3}), &num_trained), layer_of(5, "tied_modules.embed", shared, &num_trained),
      layer_of(6, "tied_modules.embed", shared, &num_trained), layer_of(7, "7", shared, &num_trained)};
  layers[1].tied_key = layers[2].tied_key = "embed";
  const EngineModel stage = join_models(layers);
  ASSERT_EQ(stage.parameters.size(), 2);
  EXPECT_EQ(stage.parameters[0].name, "tied_modules.embed.weight");
  EXPECT_EQ(stage.parameters[1].name, "4.weight");
  EXPECT_THAT(stage.shared_parameters, ElementsAre(Pair("7.weight", "tied_modules.embed.weight")));
  stage.set_training(true);
  EXPECT_EQ(num_trained, 3);
}

}  // namespace
}  // namespace deepspeed::pipe
