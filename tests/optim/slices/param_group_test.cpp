#include "deepspeed/optim/slices/param_group.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/slices/hyperparameters_json.h"

#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

TEST(Hyperparameters, AreRefusedByNameAndKind) {
  Hyperparameters options;
  options.set("lr", 0.5);
  options.set("steps", int64_t{3});
  EXPECT_EQ(options.number("steps"), 3.0);
  EXPECT_ERROR(UsageError, options.number("eps"), "no hyperparameter 'eps'", "set it in the options");
  EXPECT_ERROR(UsageError, options.flag("lr"), "hyperparameter 'lr' is no flag");
  EXPECT_ERROR(UsageError, options.pair("lr"), "hyperparameter 'lr' is no pair of numbers");
  EXPECT_ERROR(UsageError, options.text("steps"), "hyperparameter 'steps' is no text");
}

TEST(Hyperparameters, ComeBackFromJson) {
  const Json json = {
      {"amsgrad", true}, {"lr", 0.5}, {"steps", 3}, {"ns_method", "gram"}, {"betas", {0.5, 1.5}}};
  Hyperparameters options;
  set_from_json(options, json, "group");
  EXPECT_EQ(to_json(options), json);
  set_from_json(options, {{"lr", nullptr}, {"steps", 4}}, "group");
  EXPECT_EQ(options.number("lr"), 0.5) << "null leaves what was there";
  EXPECT_EQ(options.number("steps"), 4.0);
}

TEST(Hyperparameters, NameWhatDoesNotFitInJson) {
  Hyperparameters options;
  EXPECT_ERROR(UsageError, set_from_json(options, {{"betas", {1, 2, 3}}}, "group"), "group.betas is [1,2,3]",
               "a pair of numbers");
}

TEST(ParamGroup, TakesNoRateBelowZero) {
  ParamGroup group;
  group.set_lr(0.25);
  EXPECT_ERROR(UsageError, group.set_lr(-1.0), "the learning rate is -1", "at least 0");
  EXPECT_EQ(group.lr(), 0.25);
}

}  // namespace
}  // namespace deepspeed::optim
