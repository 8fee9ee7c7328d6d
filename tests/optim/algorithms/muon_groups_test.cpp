// The engine's groups for Muon: matrices apart from the rest, unless a group says for itself.
#include <gtest/gtest.h>

#include "deepspeed/optim/slices/optimizer.h"

#include "tests/engine/make_engine.h"

namespace deepspeed::testing {
namespace {

const Json kMuon = {
    {"train_micro_batch_size_per_gpu", 4},
    {"optimizer",
     {{"type", "muon"}, {"params", {{"muon_lr", 0.02}, {"adam_lr", 0.001}, {"momentum", 0.9}}}}}};

using Names = std::vector<std::string>;

TEST(MuonGroups, AreMatricesAndTheRest) {
  const auto engine = make_engine(kMuon);
  const auto& groups = engine->optimizer()->param_groups();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].param_names, (Names{"first.weight", "shared.weight", "last.weight"}));
  EXPECT_TRUE(groups[0].options.flag("use_muon"));
  EXPECT_EQ(groups[1].param_names.size(), 7U);
  EXPECT_FALSE(groups[1].options.flag("use_muon"));
  EXPECT_EQ(engine->get_lr(), (std::vector<double>{0.02, 0.001}));
  EXPECT_EQ(engine->get_mom()[0], (std::pair{0.9, 0.0}));
  train_step(*engine);
  const auto& optimizer = engine->optimizer()->base_optimizer();
  EXPECT_EQ(optimizer.state(0).tensors.size(), 1U);
  EXPECT_EQ(optimizer.state(0).tensors[0].first, "momentum_buffer");
  EXPECT_EQ(optimizer.state(1).tensors.size(), 2U);
}

TEST(MuonGroups, StayAsTheyWereGiven) {
  auto model = std::make_shared<OddNet>();
  auto params = model->named_parameters();
  InitializeOptions options{.config = kMuon};
  options.model_parameters = {{{params["first.weight"]}, {{"use_muon", false}, {"lr", 0.5}}},
                              {{params["last.weight"], params["last.bias"]}, {{"weight_decay", 0.25}}},
                              {{params["gain"]}, Json::object()}};
  const auto engine = initialize(model, options).engine;
  const auto& groups = engine->optimizer()->param_groups();
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[0].param_names, (Names{"first.weight"}));
  EXPECT_EQ(groups[1].param_names, (Names{"last.weight"}));
  EXPECT_EQ(groups[2].param_names, (Names{"last.bias"}));
  EXPECT_EQ(groups[3].param_names, (Names{"gain"}));
  EXPECT_EQ(engine->get_lr(), (std::vector<double>{0.5, 0.02, 0.001, 0.001}));
  EXPECT_EQ(groups[2].options.number("weight_decay"), 0.25);
}

}  // namespace
}  // namespace deepspeed::testing
