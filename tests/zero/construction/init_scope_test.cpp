// Begin and end of a zero::Init, and its valid arguments.
#include <chrono>
#include <thread>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/init.h"
#include "deepspeed/zero/param_access.h"
#include "deepspeed/zero/params/set_values.h"

#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"
#include "tests/zero/construction/built_under_init.h"
#include "tests/zero/params/sharded_model.h"

namespace deepspeed::zero {
namespace {

using ::testing::AllOf;
using testing::built_under_init;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Mlp;
using testing::on_disk;

TEST(ZeroInitScope, NestsWhereOneHasAConfigThatNamesNoType) {
  testing::run_ranks(1, [](comm::World& world) {
    const Json plain = {{"train_micro_batch_size_per_gpu", 1}, {"zero_optimization", {{"stage", 3}}}};
    Json half = plain;
    half["fp16"] = {{"enabled", true}};
    {
      const Init outer({.world = world});
      const Init inner({.config_dict_or_path = plain, .world = world});
      EXPECT_ERROR(UsageError, Init({.config_dict_or_path = half, .world = world}), "another dtype");
    }
    {
      const Init outer({.config_dict_or_path = plain, .world = world});
      const Init inner({.world = world});
    }
    const Init outer({.config_dict_or_path = half, .world = world});
    EXPECT_ERROR(UsageError, Init({.config_dict_or_path = plain, .world = world}), "another dtype");
  });
}

TEST(ZeroInitScope, NestsWhereBothSayTheSame) {
  testing::run_ranks(1, [](comm::World& world) {
    const Init outer({.world = world, .max_whole_bytes = 0});
    {
      const Init inner({.world = world, .max_whole_bytes = 5});
      const Init off({.enabled = false, .dtype = at::kHalf, .world = world});
    }
    const torch::nn::Linear a(3, 3), b(3, 3), c(3, 3);
    EXPECT_TRUE(is_partitioned(a->weight));  // the outer one continues
    EXPECT_THAT(error_of<UsageError>([&] { const Init other({.dtype = at::kHalf, .world = world}); }),
                HasSubstr("another zero::Init lives"));
    EXPECT_ERROR(UsageError, Init({.module = a.ptr(), .world = world}),
                 "module: the model is passed inside of another zero::Init", "end that first");
  });
}

TEST(ZeroInitScope, IsOfItsThread) {
  testing::run_ranks(1, [](comm::World& world) {
    Init init({.world = world, .max_whole_bytes = 0});
    const torch::nn::Linear a(3, 3), b(3, 3), c(3, 3);
    std::string use, end;
    bool is_other_partitioned = true;
    std::thread([&] {
      use = error_of<UsageError>([&] { a->weight.sum(); });
      end = error_of<UsageError>([&] { init.close(); });
      const torch::nn::Linear d(3, 3), e(3, 3), f(3, 3);
      is_other_partitioned = is_partitioned(d->weight);
    }).join();
    EXPECT_THAT(use, AllOf(HasSubstr("parameter 0"), HasSubstr("another thread")));
    EXPECT_THAT(end, HasSubstr("another thread"));
    EXPECT_FALSE(is_other_partitioned);
  });
}

TEST(ZeroInitScope, EndsWithoutAWordWhereAConstructorThrows) {
  testing::run_ranks(2, [](comm::World& world) {
    at::Tensor kept;
    const auto fail = [&] {
      const Init init({.world = world, .max_whole_bytes = 0});
      const torch::nn::Linear a(3, 3), b(3, 3), c(3, 3);
      kept = a->weight;
      throw std::runtime_error("no such file");
    };
    EXPECT_ERROR(std::runtime_error, fail(), "no such file");
    EXPECT_THAT(error_of<UsageError>([&] { kept.sum(); }), HasSubstr("parameter 0"));
    const torch::nn::Linear plain(3, 3), other(3, 3);
    EXPECT_FALSE(is_partitioned(plain->weight));
    const auto model = built_under_init<Mlp>({.world = world}, 3, 1);  // another one works
    const GatheredParameters gathered(model->parameters());
    EXPECT_GT(model->linear(0)->weight.detach().abs().sum().item<float>(), 0.0F);
  });
}

TEST(ZeroInitScope, TellsWhoUsesAnOldViewAfterItsEnd) {
  testing::run_ranks(1, [](comm::World& world) {
    at::Tensor view;
    torch::nn::Linear a{nullptr};
    {
      const Init init({.world = world, .max_whole_bytes = 0});
      a = torch::nn::Linear(3, 3);
      const torch::nn::Linear b(3, 3), c(3, 3);
      view = a->weight.t();
    }
    EXPECT_THAT(error_of<UsageError>([&] { view.sum(); }), HasSubstr("make it anew"));
    const ParameterAccess access(a->parameters());
    EXPECT_EQ(a->weight.t().sum().item<float>(), a->weight.sum().item<float>());
  });
}

TEST(ZeroInitScope, RanksThatBuildDifferentModelsAreToldBeforeATimeout) {
  const auto run = [&](int rank) {
    comm::destroy_process_group();
    auto world = testing::join_world();
    return error_of<CommError>([&] {
      const Init init({.world = world, .max_whole_bytes = 0});
      const torch::nn::Linear a(8, 8), b(8, rank == 0 ? 8 : 9), c(8, 8), d(8, 8);
    });
  };
  const auto outcomes = testing::fork_ranks(2, run, {.end_together = true});
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.signal, 0);
    EXPECT_THAT(outcome.value, AllOf(HasSubstr("rank 0 called broadcast"), HasSubstr("sizes [8, 8]"),
                                     HasSubstr("sizes [9, 8]")));
  }
}

TEST(ZeroInitArguments, AreCheckedByName) {
  testing::run_ranks(1, [](comm::World& world) {
    const auto error = [&]<class Error>(std::type_identity<Error>, InitArguments arguments) {
      arguments.world = world;
      return error_of<Error>([&] { const Init init(std::move(arguments)); });
    };
    const std::type_identity<NotSupportedError> not_supported;
    const std::type_identity<UsageError> usage;
    const auto group = world.group();
    EXPECT_THAT(error(not_supported, {.zero_param_parallel_group = group}),
                HasSubstr("zero_param_parallel_group"));
    EXPECT_THAT(error(usage, {.data_parallel_group = group, .sequence_data_parallel_group = group}),
                HasSubstr("sequence_data_parallel_group"));
    EXPECT_THAT(error(usage, {.dtype = at::kDouble}), HasSubstr("dtype"));
    EXPECT_THAT(error(usage, {.max_whole_bytes = -1}), HasSubstr("max_whole_bytes"));
    const Json stage2 = {{"train_micro_batch_size_per_gpu", 1}, {"zero_optimization", {{"stage", 2}}}};
    EXPECT_THAT(error(std::type_identity<ConfigError>{}, {.config_dict_or_path = stage2}),
                HasSubstr("zero_optimization.stage"));
    EXPECT_EQ(error(usage, {.mem_efficient_linear = false, .sequence_data_parallel_group = group}),
              "no error");
  });
}

TEST(ZeroInitArguments, OfWhereTheShardsAreContradictNothing) {
  testing::run_ranks(1, [](comm::World& world) {
    const auto error = [&]<class Error>(std::type_identity<Error>, InitArguments arguments) {
      arguments.world = world;
      return error_of<Error>([&] { const Init init(std::move(arguments)); });
    };
    const std::type_identity<ConfigError> config;
    const std::type_identity<UsageError> usage;
    const Json plain = {{"train_micro_batch_size_per_gpu", 1}, {"zero_optimization", {{"stage", 3}}}};
    EXPECT_THAT(error(usage, {.remote_device = "cuda:0"}),
                AllOf(HasSubstr("remote_device"), HasSubstr("\"cuda:0\"")));
    EXPECT_THAT(error(usage, {.pin_memory = true}), HasSubstr("pin_memory"));
    EXPECT_THAT(error(config, {.remote_device = "nvme"}), HasSubstr("offload_param.nvme_path"));
    EXPECT_THAT(error(config, {.remote_device = "nvme", .config_dict_or_path = plain}),
                HasSubstr("zero_optimization.offload_param.nvme_path: missing"));
    EXPECT_THAT(
        error(usage, {.remote_device = "cpu", .config_dict_or_path = on_disk("/tmp")}),
        AllOf(HasSubstr("remote_device: got \"cpu\""), HasSubstr("offload_param.device is \"nvme\"")));
    EXPECT_EQ(error(usage, {.remote_device = "cpu", .pin_memory = true}), "no error");
    const Init outer({.world = world});
    EXPECT_THAT(error(usage, {.config_dict_or_path = on_disk("/tmp")}), HasSubstr("remote_device"));
  });
}

TEST(ZeroInitArguments, OfAConfigGiveTheTypeAndTheLimits) {
  testing::run_ranks(2, [](comm::World& world) {
    const Json config = {{"train_micro_batch_size_per_gpu", 1},
                         {"bf16", {{"enabled", true}}},
                         {"zero_optimization", {{"stage", 3}, {"stage3_param_persistence_threshold", 3}}}};
    const auto model = built_under_init<Mlp>({.config_dict_or_path = config, .world = world}, 5, 1);
    EXPECT_EQ(model->linear(0)->weight.scalar_type(), at::kBFloat16);
    const auto whole = built_under_init<Mlp>({.enabled = false, .world = world}, 5, 1);
    EXPECT_FALSE(is_partitioned(whole->linear(0)->weight));
  });
}

}  // namespace
}  // namespace deepspeed::zero
