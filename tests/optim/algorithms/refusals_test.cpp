// Options and states that an optimizer cannot take.
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/algorithms/adam.h"
#include "deepspeed/optim/algorithms/sgd.h"

#include "tests/optim/slices/slices.h"
#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

std::vector<ParamGroup> sgd_groups(double momentum, double dampening, bool nesterov) {
  std::vector<ParamGroup> groups(1);
  groups[0].options.set("momentum", momentum);
  groups[0].options.set("dampening", dampening);
  groups[0].options.set("nesterov", nesterov);
  return groups;
}

TEST(Sgd, TakesNesterovWithMomentumAndNoDampening) {
  EXPECT_NO_THROW(Sgd(sgd_groups(0.9, 0.0, true)));
  EXPECT_ERROR(UsageError, Sgd(sgd_groups(0.0, 0.0, true)), "nesterov", "got momentum 0 and dampening 0");
  EXPECT_ERROR(UsageError, Sgd(sgd_groups(0.9, 0.5, true)), "nesterov", "got momentum 0.9 and dampening 0.5");
}

TEST(Sgd, HoldsAStateAgainstItsOwn) {
  Sgd sgd(sgd_groups(0.9, 0.0, false));
  TestSlice slice(at::ones({4}));
  slice.step(sgd, at::ones({4}));
  const SliceState own = sgd.state(0);
  EXPECT_NO_THROW(sgd.check_state(own));
  EXPECT_NO_THROW(sgd.check_state({})) << "training without momentum leaves no tensor";
  SliceState other = own;
  other.tensors[0].first = "exp_avg";
  EXPECT_ERROR(UsageError, sgd.check_state(other), "exp_avg");
  other = own;
  other.tensors[0].second = at::ones({3});
  EXPECT_ERROR(UsageError, sgd.load_state(0, other), "slice 0 has 4 elements, the state has 3");
  EXPECT_TRUE(at::equal(sgd.state(0).tensors[0].second, own.tensors[0].second));
}

TEST(Sgd, TakesNoStepBack) {
  Sgd sgd(sgd_groups(0.9, 0.0, false));
  TestSlice slice(at::ones({4}));
  slice.step(sgd, at::ones({4}));
  EXPECT_ERROR(UsageError, sgd.take_back(slice.slice, 1.0), "takes no step back", "Adam");
}

TEST(Adam, HasMomentsOfAFloatType) {
  AdamOptions options;
  options.moment_dtype = at::kDouble;
  EXPECT_ERROR(UsageError, Adam({ParamGroup()}, options), "moment_dtype is Double",
               "expected Float, BFloat16 or Half");
  options.moment_dtype = at::kBFloat16;
  options.amsgrad = true;
  EXPECT_ERROR(UsageError, Adam({ParamGroup()}, options),
               "amsgrad needs moments of dtype Float, got BFloat16");
}

TEST(Adam, ContinuesInItsOwnTypeFromAStateOfAnother) {
  AdamOptions options;
  options.moment_dtype = at::kBFloat16;
  Adam wide({ParamGroup()}, {}), narrow({ParamGroup()}, options);
  TestSlice slice(at::ones({4}));
  slice.step(wide, at::full({4}, 0.5));
  narrow.load_state(0, wide.state(0));
  slice.step(narrow, at::full({4}, 0.5));
  const SliceState state = narrow.state(0);
  EXPECT_EQ(state.step, 2);
  for (const auto& [name, tensor] : state.tensors) EXPECT_EQ(tensor.scalar_type(), at::kBFloat16) << name;
}

}  // namespace
}  // namespace deepspeed::optim
