// Options that contradict each other, for optimizers made without a config's checks.
#include "deepspeed/zero/update/step_options.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/fake.h"
#include "deepspeed/optim/factory.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_options.h"

#include "tests/support/error_of.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

using testing::marked_params;

/// Describes an optimizer made by hand, which is refused.
struct HandMade {
  int stage = 2;
  StepOptions update;
  at::ScalarType dtype = at::kFloat;
  std::string optimizer = "Adam";
  Json params = {{"lr", 0.5}};
  bool doubles = false;

  HandMade() { update.gradient_clipping = 0.0; }
  void make() const {
    NamedTensors tensors = marked_params({{2, 3}, {4}});
    if (doubles) {
      for (const NamedTensor& param : tensors) param.tensor.set_data(param.tensor.to(at::kDouble));
    }
    std::vector<optim::ParamGroup> groups(1);
    for (const NamedTensor& param : tensors) groups[0].param_names.push_back(param.name);
    const comm::World world = comm::make_fake_world(2);
    ZeroOptions options;
    options.update = update;
    options.gradients.communication_dtype = dtype;
    options.gradients.averaging = Averaging::mean(2);
    const ZeroOptimizer made(std::make_unique<ParamStore>(std::vector<NamedTensors>{tensors}, 2,
                                                          ParamStore::Options{dtype, false, stage}),
                             optim::make_optimizer(optimizer, params, groups),
                             std::make_unique<precision::StaticLossScaler>(1.0), ZeroGroups(world.group()),
                             options);
  }
};

OptimizerOffload super_offload() {
  OptimizerOffload offload;
  offload.device = OffloadDevice::kCpu;
  offload.super_offload = true;
  return offload;
}

TEST(StepOptions, OfMastersFitTheModelAndTheOptimizer) {
  HandMade made;
  EXPECT_NO_THROW(made.make());
  made.update.sixteen_bit_masters = true;
  EXPECT_ERROR(UsageError, made.make(), "16-bit masters of a model in fp32", "enable fp16 or bf16");
  made.update.sixteen_bit_masters = false;
  made.update.split_masters = true;
  EXPECT_ERROR(UsageError, made.make(), "split masters of a model in Float", "expected one in BFloat16");
  made.dtype = at::kBFloat16;
  EXPECT_NO_THROW(made.make());
  made.optimizer = "Adagrad";
  EXPECT_ERROR(UsageError, made.make(), "split masters with optimizer", "Adagrad", "expected Adam or AdamW");
  made.optimizer = "Adam";
  made.update.sixteen_bit_masters = true;
  EXPECT_ERROR(UsageError, made.make(), "split masters of a model in BFloat16 with 16-bit masters");
}

TEST(StepOptions, OfOffloadingFitTheStage) {
  HandMade made;
  made.update.offload.device = OffloadDevice::kCpu;
  EXPECT_NO_THROW(made.make());
  made.update.offload.ratio = 0.5;
  EXPECT_ERROR(UsageError, made.make(), "offloading of a part, 0.5, at stage 2", "expected stage 3");
  made.stage = 0;
  EXPECT_ERROR(UsageError, made.make(), "offloading at stage 0, expected stage 1, 2 or 3");
}

TEST(StepOptions, OfStepsBesideBackwardFitWhatIsStepped) {
  HandMade made;
  made.update.offload = super_offload();
  EXPECT_NO_THROW(made.make());
  const auto with = [&](auto change) {
    HandMade changed = made;
    change(changed);
    return changed;
  };
  EXPECT_ERROR(UsageError, with([](HandMade& m) { m.stage = 1; }).make(),
               "super_offload at stage 1, expected stage 2 or 3");
  EXPECT_ERROR(UsageError, with([](HandMade& m) { m.update.offload.device = OffloadDevice::kNvme; }).make(),
               "super_offload at stage 2", "with the optimizer offloaded to the CPU");
  EXPECT_ERROR(UsageError, with([](HandMade& m) { m.update.gradient_clipping = 2.0; }).make(),
               "super_offload with clipping to 2", "known after backward alone");
  EXPECT_ERROR(UsageError, with([](HandMade& m) { m.optimizer = "Adagrad"; }).make(),
               "super_offload with optimizer", "Adagrad", "expected Adam or AdamW");
  EXPECT_ERROR(UsageError, with([](HandMade& m) { m.doubles = true; }).make(),
               "super_offload with parameters in Double", "super_offload to false");
  EXPECT_ERROR(UsageError, with([](HandMade& m) {
                             m.dtype = at::kBFloat16;
                             m.update.sixteen_bit_masters = m.update.check_overflow = true;
                           }).make(),
               "super_offload with an overflow check", "states of 16 bits",
               "bf16.check_grad_overflow to false");
}

}  // namespace
}  // namespace deepspeed::zero
